//! How to give some callers, routes or methods another quota, and exempt some requests.
//!
//! | you want | write |
//! |---|---|
//! | another quota by plan, tenant, route or method | [`Rule::tiers`](crate::Rule::tiers) |
//! | some requests to use more of the same quota | [`Rule::cost`](crate::Rule::cost) |
//! | routes or methods counted separately | put them in the key: `.by((PeerIp::new(), method()))` |
//! | no limit for health checks, preflights, the office | [`Rule::exempt`](crate::Rule::exempt) |
//! | one more limit for some callers | a second rule by a key that the others lack, with [`MissingKey::Skip`](crate::MissingKey::Skip) |
//!
//! # Plans
//!
//! A caller without a tier, or with an unknown one, gets the policy's own quota. So no mistake
//! makes a caller unlimited.
//!
//! ```
//! use http::Request;
//! use tollgate::extract::extension;
//! use tollgate::{Head, Key, Policy, PolicyExt, Quota, RequestLimiter};
//!
//! // The authentication layer inserts it into the extensions.
//! #[derive(Clone)]
//! struct Caller { id: u64, plan: &'static str }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let rule = Policy::new("api", Quota::per_minute(60))
//!     .by(extension(|caller: &Caller| caller.id))
//!     .tiers(
//!         [("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000).burst(500))],
//!         |head: &Head<'_>, _: &Key| head.extensions().get::<Caller>().map(|caller| caller.plan),
//!     );
//!
//! // The same rules make a layer, by `RateLimitLayer::new`.
//! let limiter = RequestLimiter::new([rule]);
//! for (id, plan, at_once) in [(1, "free", 60), (2, "pro", 600), (3, "enterprise", 500), (4, "misspelt", 60)] {
//!     let request = Request::get("/").extension(Caller { id, plan }).body(()).unwrap();
//!     let permit = limiter.check(&Head::from(&request)).await.unwrap();
//!     let (policy, status) = permit.report().get("api").unwrap();
//!     assert_eq!((policy.capacity(), status.remaining()), (at_once, at_once - 1));
//! }
//! # }
//! ```
//!
//! Name and algorithm are the same for all tiers. Callers see their own quota in the fields of the
//! response, but not the name of the tier.
//!
//! **A caller can choose a tier that depends on a header**, unless an outer layer has checked that
//! header. The closure also gets the key, for example to look up the tier of a tenant.
//!
//! # When a caller changes tier
//!
//! Tiers with the same window share one state for each key, so a caller keeps its usage. The
//! algorithm decides what that means in units: a window keeps the count, and the token bucket keeps
//! the time that it needs to fill.
//!
//! ```
//! use http::Request;
//! use tollgate::extract::global;
//! use tollgate::{
//!     Algorithm, Head, Key, ManualClock, MemoryStore, Policy, PolicyExt, Quota, RequestLimiter, Timestamp,
//! };
//!
//! #[derive(Clone)]
//! struct Plan(&'static str);
//!
//! async fn left_after_the_upgrade(algorithm: Algorithm) -> u64 {
//!     let rule = Policy::new("api", Quota::per_minute(60)).with_algorithm(algorithm).by(global()).tiers(
//!         [("pro", Quota::per_minute(600))],
//!         |head: &Head<'_>, _: &Key| head.extensions().get::<Plan>().map(|plan| plan.0),
//!     );
//!     let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//!     let limiter = RequestLimiter::new([rule]).store(MemoryStore::builder().clock(&time).build());
//!     let of = |plan| Request::get("/").extension(Plan(plan)).body(()).unwrap();
//!     for _ in 0..30 {
//!         limiter.check(&Head::from(&of("free"))).await.unwrap();
//!     }
//!     limiter.look(&Head::from(&of("pro"))).await.unwrap().statuses()[0].remaining()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! assert_eq!(left_after_the_upgrade(Algorithm::FIXED_WINDOW).await, 570, "30 of 600 are used");
//! assert_eq!(left_after_the_upgrade(Algorithm::Gcra).await, 300, "half of the bucket is");
//! # }
//! ```
//!
//! A tier with another window has a state of its own: a caller that switches between the two has
//! both quotas. Give the tiers one window if callers could profit from that.
//! [`RequestLimiter::reset`](crate::RequestLimiter::reset) forgets the usage of a key in all tiers,
//! for example as a gift after an upgrade.
//!
//! # From a configuration
//!
//! [`Rule::try_tiers`](crate::Rule::try_tiers) takes names and quotas that are known only at run
//! time. Its [`SetupError`](crate::SetupError) names the wrong one. Even with thousands of tiers, a
//! request costs a few comparisons.
//!
//! # Exemptions
//!
//! This rule does not charge an exempt request, which then needs no key for it. The other rules
//! still apply.
//!
//! ```
//! use tollgate::exempt::{cors_preflight, from_networks};
//! use tollgate::extract::PeerIp;
//! use tollgate::{Head, Policy, PolicyExt, Quota};
//!
//! let rule = Policy::new("api", Quota::per_minute(60))
//!     .by(PeerIp::new())
//!     .exempt(cors_preflight())
//!     .exempt(from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"]))
//!     .exempt(|head: &Head<'_>| head.uri().path() == "/health");
//! ```
//!
//! Never exempt by anything that callers can write: see [`exempt`](crate::exempt) for exemptions
//! that attackers can use. To leave a route of axum without any limit, [add it after the
//! layer](super::layers#what-a-layer-of-axum-covers).
//!
//! # Show callers what is left
//!
//! With [`expose_report`](crate::RateLimitLayer::expose_report), handlers find a
//! [`Report`](crate::Report) in the request's extensions. With the feature `axum` it is an
//! extractor:
//!
//! ```
//! use tollgate::Report;
//!
//! async fn me(report: Report) -> String {
//!     match report.get("api") {
//!         Some((policy, status)) => format!("{} of {}", status.remaining(), policy.capacity()),
//!         None => "no limit".to_owned(),
//!     }
//! }
//! ```
//!
//! With a cost of 0, a page shows what is left without a charge.
