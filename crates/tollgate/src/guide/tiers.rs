//! Other quotas for some callers, routes or methods; and none for some requests.
//!
//! | you want | write |
//! |---|---|
//! | another quota by plan, tenant, route or method | [`Rule::tiers`](crate::Rule::tiers) |
//! | some requests to take more of the same quota | [`Rule::cost`](crate::Rule::cost) |
//! | routes or methods counted apart | them in the key: `.by((PeerIp::new(), method()))` |
//! | no limit for health checks, preflights, the office | [`Rule::exempt`](crate::Rule::exempt) |
//! | one more limit for some callers | a second rule whose key the others lack, with [`MissingKey::Skip`](crate::MissingKey::Skip) |
//!
//! # Plans
//!
//! The policy's own quota is that of everybody who is in no tier. A caller whose plan is not listed, or whom nobody knows,
//! has that one: no mistake makes anybody unlimited.
//!
//! ```
//! use http::{Request, request::Parts};
//! use tollgate::extract::extension;
//! use tollgate::{Key, Limiter, Policy, PolicyExt, Quota};
//!
//! // Left in the extensions by the layer that knows the caller.
//! #[derive(Clone)]
//! struct Caller { id: u64, plan: &'static str }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let rule = Policy::new("api", Quota::per_minute(60))
//!     .by(extension(|caller: &Caller| caller.id))
//!     .tiers(
//!         [("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000).burst(500))],
//!         |parts: &Parts, _: &Key| parts.extensions.get::<Caller>().map(|caller| caller.plan),
//!     );
//!
//! // The same rules make a layer, by `RateLimitLayer::new`.
//! let limiter = Limiter::new([rule]);
//! for (id, plan, at_once) in [(1, "free", 60), (2, "pro", 600), (3, "enterprise", 500), (4, "misspelt", 60)] {
//!     let request = Request::get("/").extension(Caller { id, plan }).body(()).unwrap();
//!     let permit = limiter.check(&request.into_parts().0).await.unwrap();
//!     let (policy, status) = permit.report().get("api").unwrap();
//!     assert_eq!((policy.capacity(), status.remaining()), (at_once, at_once - 1));
//! }
//! # }
//! ```
//!
//! Name and algorithm are the same for all tiers. Callers see their own quota in the fields of the response, and not the
//! name of the tier.
//!
//! **A tier by a header is the caller's to choose**, unless something outside of the layer has checked the header. The closure
//! sees the key as well: a tenant's tier can be looked up by it.
//!
//! # Who changes his tier
//!
//! Among tiers of one window a key has one state, and takes what it has used along. What that means in units is the
//! algorithm's: a window keeps the count, the token bucket keeps the time that it needs to fill.
//!
//! ```
//! use http::{Request, request::Parts};
//! use tollgate::extract::global;
//! use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, PolicyExt, Quota, Timestamp};
//!
//! #[derive(Clone)]
//! struct Plan(&'static str);
//!
//! async fn left_after_the_upgrade(algorithm: Algorithm) -> u32 {
//!     let rule = Policy::new("api", Quota::per_minute(60)).with_algorithm(algorithm).by(global()).tiers(
//!         [("pro", Quota::per_minute(600))],
//!         |parts: &Parts, _: &Key| parts.extensions.get::<Plan>().map(|plan| plan.0),
//!     );
//!     let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//!     let limiter = Limiter::new([rule]).store(MemoryStore::builder().clock(&time).build());
//!     let of = |plan| Request::get("/").extension(Plan(plan)).body(()).unwrap().into_parts().0;
//!     for _ in 0..30 {
//!         limiter.check(&of("free")).await.unwrap();
//!     }
//!     limiter.look(&of("pro")).await.unwrap().statuses()[0].remaining()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! assert_eq!(left_after_the_upgrade(Algorithm::FIXED_WINDOW).await, 570, "30 of 600 are used");
//! assert_eq!(left_after_the_upgrade(Algorithm::Gcra).await, 300, "half of the bucket is");
//! # }
//! ```
//!
//! A tier of another window has a state of its own: who comes and goes between the two has both quotas. Where that would pay,
//! give the tiers one window. [`Limiter::reset`](crate::Limiter::reset) forgets what a key has used of all of them, as a gift to
//! those who upgrade.
//!
//! # From a configuration
//!
//! [`Rule::try_tiers`](crate::Rule::try_tiers) takes names and quotas that are known only at run time, and returns a
//! [`TiersError`](crate::TiersError) that names the wrong one. Thousands of tiers cost a request a few comparisons.
//!
//! # Exemptions
//!
//! An exempt request is not charged by this rule, and needs no key there. The other rules stand.
//!
//! ```
//! use http::request::Parts;
//! use tollgate::exempt::{cors_preflight, from_networks};
//! use tollgate::extract::PeerIp;
//! use tollgate::{Policy, PolicyExt, Quota};
//!
//! # fn main() -> Result<(), tollgate::extract::TrustError> {
//! let rule = Policy::new("api", Quota::per_minute(60))
//!     .by(PeerIp::new())
//!     .exempt(cors_preflight())
//!     .exempt(from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"])?)
//!     .exempt(|parts: &Parts| parts.uri.path() == "/health");
//! # Ok(())
//! # }
//! ```
//!
//! What callers can write is no ground for an exemption: [`exempt`](crate::exempt#whom-to-believe) tells which are holes. A
//! route of axum that is never to be limited is simplest [added after the layer](super::layers#what-a-layer-of-axum-covers).
//!
//! # To tell callers what is left
//!
//! With [`expose_verdict`](crate::RateLimitLayer::expose_verdict), handlers find a [`Report`](crate::Report) in the request's
//! extensions; with the feature `axum` it is an extractor. A cost of 0 lets a page show it without charging for it.
