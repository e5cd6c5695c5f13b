//! How to move a service from [axum-governor](https://docs.rs/axum-governor) 2.
//!
//! Version 1 was another program, on the crate `lazy-limit`. This page is not about it.
//!
//! # The same service
//!
//! Clients behind a load balancer may send 60 requests a minute, ten at once, and 6 of them may
//! write. Before:
//!
//! ```text
//! let config = GovernorConfigBuilder::default()
//!     .with_extractor(SmartIp::new().with_trusted_proxies(["10.0.0.0/8".parse()?]))
//!     .expect_connect_info()
//!     .quota_default(Quota::requests_per_minute(nz!(60u32)).burst(nz!(10u32)))
//!     .quota_for(Method::POST, Quota::requests_per_minute(nz!(6u32)))
//!     .whitelist_paths(["/health"])
//!     .body_preset(BodyPreset::ProblemJson)
//!     .finish()?;
//! let app = Router::new().route("/", get(read).post(write)).layer(GovernorLayer::new(config));
//! ```
//!
//! After:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, http::Request, tollgate::extract::PeerAddr, tower::ServiceExt};
//! # async fn read() {}
//! # async fn write() {}
//! use axum::{Router, routing::get};
//! use http::Method;
//! use tollgate::extract::ClientIp;
//! use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).ipv6_prefix(56);
//! let is_health = |head: &Head<'_>| head.uri().path() == "/health";
//! let limit = RateLimitLayer::new([
//!     Policy::new("default", Quota::per_minute(60).burst(10))
//!         .by(client.clone())
//!         .exempt(move |head: &Head<'_>| head.method() == Method::POST || is_health(head)),
//!     Policy::new("post", Quota::per_minute(6))
//!         .by(client)
//!         .exempt(move |head: &Head<'_>| head.method() != Method::POST || is_health(head)),
//! ]);
//! let app: Router = Router::new().route("/", get(read).post(write)).layer(limit);
//! # for (method, passing) in [("POST", 6), ("GET", 10)] {
//! #     for nth in 0..20 {
//! #         let request = Request::builder().method(method).header("x-forwarded-for", "203.0.113.7");
//! #         let request = request.extension(PeerAddr(([10, 0, 0, 1], 4_000).into()));
//! #         let status = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status();
//! #         assert_eq!(status, if nth < passing { 200 } else { 429 }, "{method} {nth}");
//! #     }
//! # }
//! # }
//! ```
//!
//! In `Cargo.toml`, give `tollgate` the feature `axum`. The server keeps
//! `into_make_service_with_connect_info`.
//!
//! # The terms
//!
//! | axum-governor | tollgate |
//! |---|---|
//! | `Quota::requests_per_second(n)`, `_per_minute`, `_per_hour` | [`Quota::per_second(n)`](crate::Quota::per_second) and its like, with the same burst |
//! | `Quota::seconds_per_request(n)` | [`Quota::new(1, Duration::from_secs(n))`](crate::Quota::new) |
//! | `.quota_default(quota)` | a [rule](crate::PolicyExt::by) |
//! | `.quota_for(method, quota)` | a second rule, with [exemptions](crate::Rule::exempt) as above; or [tiers](crate::Rule::tiers) that count together |
//! | `.stack(name, extractor, quota)`, `.quotas(..)` | a rule each, in [one layer](crate::RateLimitLayer::new) |
//! | `KeyOutcome { quota_override, .. }` | [`Rule::tiers`](crate::Rule::tiers) |
//! | `PeerIp`, `Global` | [`PeerIp`](crate::extract::PeerIp), [`global`](crate::extract::global) |
//! | `SmartIp` | [`ClientIp`](crate::extract::ClientIp), with the header named |
//! | `Header(&NAME)`, `Cookie(name)` | [`header(name)`](crate::extract::header), [`cookie(name)`](crate::extract::cookie) |
//! | `Extension::<T>::new()`: all of `T` is the key | [`extension`](crate::extract::extension), with a closure |
//! | `Compound(a, b)` | `(a, b)` |
//! | an `AsyncKeyExtractor` | a middleware outside, which leaves the key in the [extensions](crate::extract::extension) |
//! | `.whitelist_methods`, `.whitelist_paths` | [`Rule::exempt`](crate::Rule::exempt), with a closure |
//! | `.whitelist_ips(networks)` | [`.exempt(from_networks(PeerIp::new(), networks))`](crate::exempt::from_networks) |
//! | `.body_preset(..)`, `.error_handler(..)` | a problem document, or [`.answer(..)`](crate::RateLimitLayer::answer) |
//! | both `RateLimit` and `X-RateLimit-*`, always | [`.fields(Fields::IetfAndXDelta)`](crate::Fields::IetfAndXDelta); by default those of the IETF draft |
//! | `.legacy_reset_epoch(true)` | [`Fields::IetfAndXEpoch`](crate::Fields::IetfAndXEpoch) |
//! | `.max_keys(n)` | [`max_keys`](crate::memory::MemoryStoreBuilder::max_keys) of the store: a hard cap, by default 1,000,000 |
//! | `.gc_interval(..)`, `.gc_disable()` | not needed |
//! | `.redact_keys(true)` | not needed: no key is logged |
//! | `.expect_connect_info()` | not needed. If the server provides no addresses, requests get a 500 and the log names the missing call |
//! | `BoxedGovernorLayer` | [`RateLimitLayer`](crate::RateLimitLayer), whose type does not name its keys |
//! | `layer.limiter().snapshot()` | [metrics](super::watching), and the [top keys](crate::usage) |
//!
//! # What behaves differently
//!
//! | | axum-governor | tollgate |
//! |---|---|---|
//! | the header of `SmartIp` | `X-Forwarded-For`, else `X-Real-IP`, else `Forwarded` | the one that you name |
//! | an entry with a port, `203.0.113.7:8080` | is skipped | is read |
//! | a peer that is no trusted proxy, with such a header | gets a 400 | counts by its own address |
//! | an IPv6 address | counts by its /56 | counts by its /64, unless you set `ipv6_prefix` |
//! | several limits | are asked in order: those before the one that refuses have charged | all are charged, or none |
//! | `RateLimit` | shows one policy | shows each |
//! | `Retry-After` | is rounded down, and at least 1: it can be too early | is rounded up: a caller that waits that long passes |
//! | a caller that changes its tier | has a full quota there | keeps its [usage](super::tiers#when-a-caller-changes-tier) |
//! | idle keys | are removed by a task | are removed as requests arrive |
//! | the cap on keys | starts a removal of idle keys; fresh keys may stay | holds |
//! | gRPC | a 429 | [a status](super::grpc) and the time to wait |
//!
//! # What tollgate adds
//!
//! [Costs](crate::Rule::cost), [other algorithms](super::algorithms), a store
//! [for a fleet](super::outages), servers without axum, a [limiter](crate::Limiter) for handlers,
//! and [tests without waiting](super::testing).
