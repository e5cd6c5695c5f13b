//! Which caller a request is charged to, and what to believe about it.
//!
//! A rule counts by the [`Key`](crate::Key) that its extractor finds in a request.
//! [`extract`](crate::extract) lists the extractors. This chapter says which one to choose.
//!
//! | your callers | count by |
//! |---|---|
//! | are strangers, and connect directly | [`PeerIp`](crate::extract::PeerIp), which is what [`per_ip`](crate::RateLimitLayer::per_ip) takes |
//! | are strangers, behind your proxies or a CDN | [`ClientIp`](crate::extract::ClientIp) |
//! | have logged in | [`extension`](crate::extract::extension): the identity that the authentication layer left |
//! | send a credential that an outer layer has checked, but that layer leaves nothing | [`bearer`](crate::extract::bearer), [`basic_user`](crate::extract::basic_user), [`header`](crate::extract::header) or [`cookie`](crate::extract::cookie) |
//! | send a credential that nothing has checked yet | the same, and a second rule by address |
//! | do not matter: the service behind has a limit of its own | [`global`](crate::extract::global) |
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
//! The peer is then the proxy, and all callers share one quota. No error shows it: a busy service
//! just starts to refuse requests. Name the header that the *nearest* proxy writes, and the proxies
//! to trust:
//!
//! | in front of the service | extractor |
//! |---|---|
//! | one proxy or load balancer that appends to `X-Forwarded-For` | `ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])`, with the network of the proxy |
//! | a CDN before that | the same, and also trust the networks that the CDN publishes |
//! | proxies whose addresses change, always two | `ClientIp::from_header("x-forwarded-for").trusting_hops(2)` |
//! | a proxy on a Unix socket | `..trusting_hops(1)`: such a peer has no address to trust |
//! | a proxy that writes `Forwarded` (RFC 7239) | `ClientIp::from_header("forwarded")`, then as above |
//! | a CDN that writes only the client, such as `CF-Connecting-IP` | `ClientIp::from_header("cf-connecting-ip").trusting([..])` with the networks of the peers that connect to you |
//! | a TCP load balancer that speaks the PROXY protocol | [`PeerIp`](crate::extract::PeerIp), and the code that reads that protocol inserts a [`PeerAddr`](crate::extract::PeerAddr) |
//!
//! - **A hop count trusts the network.** It is safe only if every request comes through that many
//!   proxies. Trusted networks are safer: they are checked against the peer. A stranger that
//!   connects directly counts by its own address, whatever it writes.
//! - **Clients can forge a CDN's header** in requests that bypass the CDN. If a load balancer
//!   stands between, let it accept connections from the CDN only.
//! - The list is read from the right, as long as the entries come from trusted proxies. Entries
//!   that a client wrote itself are further to the left:
//!
//! ```
//! use http::Request;
//! use tollgate::Head;
//! use tollgate::extract::{AddressExtractor, ClientIp, PeerAddr};
//!
//! let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
//! let seen = |peer: [u8; 4], header: &str| {
//!     let request = Request::get("/").header("x-forwarded-for", header);
//!     let request = request.extension(PeerAddr((peer, 443).into())).body(()).unwrap();
//!     client.address(&Head::from(&request)).unwrap().to_string()
//! };
//!
//! assert_eq!(seen([10, 0, 0, 1], "203.0.113.7"), "203.0.113.7");
//! assert_eq!(seen([10, 0, 0, 1], "192.0.2.1, 203.0.113.7, 10.0.0.2"), "203.0.113.7", "the first is forged");
//! assert_eq!(seen([203, 0, 113, 9], "192.0.2.1"), "203.0.113.9", "not a proxy of ours");
//! ```
//!
//! # IPv6
//!
//! One customer has 2^64 addresses or more. Both extractors count the /64 as one caller. Use
//! `.ipv6_prefix(56)` or 48 if your callers have more. IPv4-mapped, NAT64, 6to4 and Teredo
//! addresses count as the IPv4 address in them: see [Addresses](crate::extract#addresses).
//!
//! # Missing keys
//!
//! | [`on_missing_key`](crate::Rule::on_missing_key) | a request in which the rule finds no key | for |
//! |---|---|---|
//! | [`Refuse`](crate::MissingKey::Refuse), the default | gets a 400, and no rule is charged | anything that a caller could leave out |
//! | [`Skip`](crate::MissingKey::Skip) | passes this rule; the others still apply | a rule for some callers, in addition to one for all |
//! | [`OneKey`](crate::MissingKey::OneKey) | is counted with all others without a key | anonymous callers, which together get the quota of one user |
//!
//! An empty key counts as missing. `(a, b)` has a key if both have one, and
//! [`a.or(b)`](crate::extract::KeyExtractor::or) if one of them has. `or` keeps the keys of the two
//! separate: a caller cannot spend another's quota by writing that caller's address into a header.
//!
//! # Invented keys
//!
//! A caller chooses its headers, cookies and paths. A rule by one of them does not limit a caller
//! that writes another value each time. A second rule by address does. Both are charged, or none
//! is:
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::extract::{PeerAddr, PeerIp, header};
//! use tollgate::{Denial, Head, Policy, PolicyExt, Quota, RequestLimiter};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // The same rules make a layer, by `RateLimitLayer::new`.
//! let limiter = RequestLimiter::new([
//!     Policy::new("address", Quota::per_hour(3)).by(PeerIp::new()),
//!     Policy::new("api-key", Quota::per_hour(1_000)).by(header("x-api-key")),
//! ]);
//! let with = |api_key: &str| {
//!     let request = Request::get("/").header("x-api-key", api_key);
//!     request.extension(PeerAddr(([192, 0, 2, 1], 443).into())).body(()).unwrap()
//! };
//! for invented in ["a", "b", "c"] {
//!     assert!(limiter.check(&Head::from(&with(invented))).await.is_ok());
//! }
//! let denial = limiter.check(&Head::from(&with("d"))).await.unwrap_err();
//! assert_eq!(denial.violated().collect::<Vec<_>>(), ["address"]);
//! # }
//! ```
//!
//! Invented keys do not fill the memory either: [`memory`](crate::memory) has a bound, and says
//! what happens there.
//!
//! # Several parts, and parts of your own
//!
//! A pair is one key: `(PeerIp::new(), method())` gives each address a quota for each method. A
//! closure over the request's head is an extractor:
//!
//! ```
//! use tollgate::extract::method;
//! use tollgate::{Head, Key, Policy, PolicyExt, Quota};
//!
//! // An authentication layer inserts it into the extensions.
//! #[derive(Clone)]
//! struct Tenant { id: u64, is_internal: bool }
//!
//! let tenant = |head: &Head<'_>| match head.extensions().get::<Tenant>()? {
//!     Tenant { is_internal: true, .. } => Some(Key::from("internal")),
//!     Tenant { id, .. } => Some(Key::from(*id)),
//! };
//! let rule = Policy::new("tenant", Quota::per_minute(600)).by((tenant, method()));
//! ```
//!
//! `Key::from` makes keys of numbers, texts and addresses. `7` and `"7"` are two keys. The key of
//! an IPv6 address is its /64, as in the extractors.
//!
//! For a quota by route use [`matched_path`] (feature `axum`), not the path. Callers can invent
//! paths, and `/users/1` and `/users/2` are one route.
//!
//! # Keys in a body
//!
//! Extractors do not see bodies. If the key is in the body, such as the user of a log-in, let the
//! handler ask a [`Limiter`](crate::Limiter). This one counts failed log-ins only. Anyone who knows
//! a user's name can use up a quota by that name, so leave it room and add a rule by address.
//!
//! ```
//! use axum::body::Body;
//! use http::Response;
//! use tollgate::{Algorithm, Key, Limiter, Policy, Quota};
//!
//! # fn is_right(_: &str, password: &str) -> bool { password == "secret" }
//! async fn log_in(failures: &Limiter, user: &str, password: &str) -> Response<Body> {
//!     let key = Key::from(user.to_lowercase());
//!     // Charge before checking the password: concurrent requests cannot exceed the limit.
//!     let permit = match failures.check(&key, 1).await {
//!         Ok(permit) => permit,
//!         Err(denial) => return denial.response().map(Body::new),
//!     };
//!     if is_right(user, password) {
//!         failures.refund(permit).await;
//!         return Response::new(Body::from("welcome"));
//!     }
//!     Response::builder().status(401).body(Body::empty()).unwrap()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // A log admits at most two failures in any hour. A bucket would let more guesses pass as it refills.
//! let policy = Policy::new("failures", Quota::per_hour(2)).with_algorithm(Algorithm::SLIDING_LOG);
//! let failures = Limiter::new([policy]);
//! for password in ["secret", "1234", "secret", "qwerty"] {
//!     assert_ne!(log_in(&failures, "Ada", password).await.status(), 429);
//! }
//! assert_eq!(log_in(&failures, "ada", "secret").await.status(), 429);
//! # }
//! ```
//!
#![cfg_attr(feature = "axum", doc = "[`matched_path`]: crate::extract::matched_path()")]
#![cfg_attr(not(feature = "axum"), doc = "[`matched_path`]: crate::extract")]
