//! Which caller a request is charged to, and what to believe about it.
//!
//! A rule counts by the [`Key`](crate::Key) that its extractor finds in a request. [`extract`](crate::extract) lists the
//! extractors. This chapter says which one to choose.
//!
//! | your callers | count by |
//! |---|---|
//! | are strangers, and connect directly | [`PeerIp`](crate::extract::PeerIp), which is what [`per_ip`](crate::RateLimitLayer::per_ip) takes |
//! | are strangers, behind proxies of yours or a CDN | [`ClientIp`](crate::extract::ClientIp) |
//! | have logged in | [`extension`](crate::extract::extension): the identity that the authentication layer left |
//! | send a credential that an outer layer has checked, but that layer leaves nothing | [`bearer`](crate::extract::bearer), [`basic_user`](crate::extract::basic_user), [`header`](crate::extract::header) or [`cookie`](crate::extract::cookie) |
//! | send a credential that nothing has checked yet | the same, and a second rule by address |
//! | do not matter: what is behind has a limit of its own | [`global`](crate::extract::global) |
//!
//! # Credentials
//!
//! **Count by the authenticated identity**, not by the credential. The rule then stands inside the
//! authentication layer and reads what that layer left in the request's extensions. [Limit
//! twice](super::layers#before-and-after-authentication) has the code.
//!
//! A raw credential is second best, for two reasons:
//!
//! - Outside of authentication an attacker can invent credentials. Each has a fresh quota, and a
//!   rule by the credential limits nothing.
//! - One identity may have several credentials, and one quota with each.
//!
//! If you count by a credential, take the extractor that knows its form. `Authorization: Bearer
//! tok` has many spellings: `bearer tok`, or two blanks, or over HTTP/2 a blank in front.
//! [`bearer`](crate::extract::bearer) and [`basic_user`](crate::extract::basic_user) make one key
//! of them. [`header`](crate::extract::header) removes blanks at the ends only.
//!
//! # Behind a proxy
//!
//! The peer is then the proxy, and all callers share one quota. Nothing fails: a busy service merely starts to refuse.
//! Say which header the *nearest* proxy writes, and which proxies to trust:
//!
//! | in front of the service | extractor |
//! |---|---|
//! | one proxy or load balancer that appends to `X-Forwarded-For` | `ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])?`, with the network it is in |
//! | a CDN before that | the same, trusting the networks that the CDN publishes as well |
//! | proxies whose addresses change, always two | `ClientIp::from_header("x-forwarded-for").trusting_hops(2)` |
//! | a proxy on a Unix socket | `..trusting_hops(1)`: such a peer has no address to trust |
//! | one that writes `Forwarded` (RFC 7239) | `ClientIp::from_header("forwarded")`, and as above |
//! | a CDN that writes the client alone, such as `CF-Connecting-IP` | `ClientIp::from_header("cf-connecting-ip").trusting([..])?` with the networks of whoever connects to you |
//! | a balancer of TCP connections that speaks the PROXY protocol | [`PeerIp`](crate::extract::PeerIp), and a [`PeerAddr`](crate::extract::PeerAddr) inserted by what reads that protocol |
//!
//! - **A hop count believes the network**: it is safe only where nobody reaches the service but through that many proxies.
//!   Trusted networks are checked against the peer, and a stranger who connects directly counts as himself, whatever he
//!   writes.
//! - **A header that a CDN writes is the client's own** in a request that did not come through the CDN. If a load balancer
//!   stands between, have it accept the CDN's connections only.
//! - The list is read from the right, as far as trusted proxies vouch for it. What a client writes into the header itself
//!   stands to the left of that:
//!
//! ```
//! use http::Request;
//! use tollgate::extract::{ClientIp, PeerAddr};
//!
//! # fn main() -> Result<(), tollgate::extract::TrustError> {
//! let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])?;
//! let seen = |peer: [u8; 4], header: &str| {
//!     let request = Request::get("/").header("x-forwarded-for", header);
//!     let request = request.extension(PeerAddr((peer, 443).into())).body(()).unwrap();
//!     client.address(&request.into_parts().0).unwrap().to_string()
//! };
//!
//! assert_eq!(seen([10, 0, 0, 1], "203.0.113.7"), "203.0.113.7");
//! assert_eq!(seen([10, 0, 0, 1], "192.0.2.1, 203.0.113.7, 10.0.0.2"), "203.0.113.7", "the first was invented");
//! assert_eq!(seen([203, 0, 113, 9], "192.0.2.1"), "203.0.113.9", "not a proxy of ours");
//! # Ok(())
//! # }
//! ```
//!
//! # IPv6
//!
//! One customer is given 2^64 addresses or more. Both extractors count the /64 as one caller. Use
//! `.ipv6_prefix(56)` or 48 if your callers are given more. IPv4-mapped, NAT64, 6to4 and Teredo
//! addresses count as the IPv4 address in them: see [Addresses](crate::extract#addresses).
//!
//! # Missing keys
//!
//! | [`on_missing_key`](crate::Rule::on_missing_key) | a request in which the rule finds no key | for |
//! |---|---|---|
//! | [`Refuse`](crate::MissingKey::Refuse), the default | is answered 400, and charged nowhere | whatever a caller could leave out |
//! | [`Skip`](crate::MissingKey::Skip) | passes this rule; the others stand | a rule for some callers, beside one for all |
//! | [`Share`](crate::MissingKey::Share) | is counted with all others that have none | anonymous callers, who together get what one user gets |
//!
//! An empty key is none. `(a, b)` has one where both have; [`a.or(b)`](crate::extract::KeyExtractor::or) where one has, and
//! keeps the two apart, so that nobody writes somebody's address into a header to spend his quota.
//!
//! # Invented keys
//!
//! A header, a cookie or a path is what the caller wrote: a rule by it limits nobody who writes another each time. A second
//! rule by address does. Both are charged, or none is:
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::extract::{PeerAddr, PeerIp, header};
//! use tollgate::{Denial, Limiter, Policy, PolicyExt, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // The same rules make a layer, by `RateLimitLayer::new`.
//! let limiter = Limiter::new([
//!     Policy::new("address", Quota::per_hour(3)).by(PeerIp::new()),
//!     Policy::new("api-key", Quota::per_hour(1_000)).by(header("x-api-key")),
//! ]);
//! let with = |api_key: &str| {
//!     let request = Request::get("/").header("x-api-key", api_key);
//!     request.extension(PeerAddr(([192, 0, 2, 1], 443).into())).body(()).unwrap().into_parts().0
//! };
//! for invented in ["a", "b", "c"] {
//!     assert!(limiter.check(&with(invented)).await.is_ok());
//! }
//! let denial = limiter.check(&with("d")).await.unwrap_err();
//! assert_eq!(denial.violated().collect::<Vec<_>>(), ["address"]);
//! # }
//! ```
//!
//! Invented keys do not fill the memory either: [`memory`](crate::memory) is bounded, and tells what happens at the bound.
//!
//! # Several parts, and parts of your own
//!
//! A pair is counted as a pair: `(PeerIp::new(), method())` gives each address a quota for each method. And closures over
//! the request's head are extractors:
//!
//! ```
//! use http::request::Parts;
//! use tollgate::extract::method;
//! use tollgate::{Key, Policy, PolicyExt, Quota};
//!
//! // Left in the extensions by a layer that has checked it.
//! #[derive(Clone)]
//! struct Tenant { id: u64, is_internal: bool }
//!
//! let tenant = |parts: &Parts| match parts.extensions.get::<Tenant>()? {
//!     Tenant { is_internal: true, .. } => Some(Key::from("internal")),
//!     Tenant { id, .. } => Some(Key::from(*id)),
//! };
//! let rule = Policy::new("tenant", Quota::per_minute(600)).by((tenant, method()));
//! ```
//!
//! Numbers, texts and addresses become keys by `Key::from`, and `7` and `"7"` are two. Of an IPv6 address that is the /64, as of
//! an extractor's.
//!
//! For a quota by route take [`matched_path`] (feature `axum`), not the path: paths can be invented, and `/users/1` and
//! `/users/2` are one route.
//!
//! # Keys in a body
//!
//! A layer reads no bodies. Whose log-in it is that fails, say, is known to the handler, which asks a
//! [`Limiter`](crate::Limiter). Here only those that fail are counted. (A quota by a user's name can be used up by anybody who
//! knows the name: leave it room, and have a rule by address beside it.)
//!
//! ```
//! use axum::body::Body;
//! use http::Response;
//! use tollgate::extract::header;
//! use tollgate::{Algorithm, Key, Limiter, Policy, PolicyExt, Quota};
//!
//! # fn is_right(_: &str, password: &str) -> bool { password == "secret" }
//! async fn log_in(failures: &Limiter, user: &str, password: &str) -> Response<Body> {
//!     let key = Key::from(user.to_lowercase());
//!     // Charged before the password is looked at: of requests at the same time, no more pass than the limit says.
//!     let permit = match failures.check_key(&key, 1).await {
//!         Ok(permit) => permit,
//!         Err(denial) => return denial.response().map(Body::from),
//!     };
//!     if is_right(user, password) {
//!         failures.refund(permit).await;
//!         return Response::new(Body::from("welcome"));
//!     }
//!     Response::builder().status(401).body(Body::empty()).unwrap()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // What the rule would find in a request does not matter to `check_key`.
//! let rule = Policy::new("failures", Quota::per_hour(2)).with_algorithm(Algorithm::SLIDING_LOG).by(header("x-user"));
//! let failures = Limiter::new([rule]);
//! for password in ["secret", "1234", "secret", "qwerty"] {
//!     assert_ne!(log_in(&failures, "Ada", password).await.status(), 429);
//! }
//! assert_eq!(log_in(&failures, "ada", "secret").await.status(), 429);
//! # }
//! ```
//!
#![cfg_attr(feature = "axum", doc = "[`matched_path`]: crate::extract::matched_path()")]
#![cfg_attr(not(feature = "axum"), doc = "[`matched_path`]: crate::extract")]
