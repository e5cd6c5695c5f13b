//! How to move a service from [tower_governor](https://docs.rs/tower_governor) 0.8.
//!
//! # The same service
//!
//! Each address gets one request every two seconds, and up to five at once. Before:
//!
//! ```text
//! let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).use_headers().finish().unwrap();
//! let config = Arc::new(config);
//!
//! let limiter = Arc::clone(config.limiter());
//! std::thread::spawn(move || loop {
//!     std::thread::sleep(Duration::from_secs(60));
//!     limiter.retain_recent();
//! });
//!
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(GovernorLayer::new(config));
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! ```
//!
//! After:
//!
//! ```no_run
//! # #[cfg(feature = "axum")] mod service {
//! use std::net::SocketAddr;
//! use axum::{Router, routing::get};
//! use tollgate::{Fields, Quota, RateLimitLayer};
//! # use tokio::net::TcpListener;
//!
//! # async fn serve(listener: TcpListener) -> std::io::Result<()> {
//! let limit = RateLimitLayer::per_ip(Quota::per_minute(30).burst(5)).fields(Fields::XDelta);
//!
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! In `Cargo.toml`, give `tollgate` the feature `axum`. It reads the address that
//! `with_connect_info` provides.
//!
//! # The terms
//!
//! **`per_second(2)` in tower_governor is one request every two seconds. In tollgate it is two
//! every second.** No other name has two meanings.
//!
//! | tower_governor | tollgate |
//! |---|---|
//! | `.per_second(n)`, `.per_millisecond(n)`, `.period(d)`: the time for one request | [`Quota::new(1, d)`](crate::Quota::new), or the number in a second, a minute, an hour, a day |
//! | `.burst_size(n)` | [`.burst(n)`](crate::Quota::burst). Without it the burst is the limit, not 8 |
//! | `GovernorConfig::default()`: 500 ms, 8 | `Quota::per_second(2).burst(8)` |
//! | `GovernorConfig::secure()`: 4 s, 2 | `Quota::per_minute(15).burst(2)` |
//! | `.finish()`, `None` for zeros | a zero in a constant is a compile error, elsewhere a panic; for values from a configuration, [`try_per_second`](crate::Quota::try_per_second) and its like return an error |
//! | `PeerIpKeyExtractor` | [`PeerIp`](crate::extract::PeerIp) |
//! | `SmartIpKeyExtractor` | [`ClientIp`](crate::extract::ClientIp), and [a choice of proxies](super::keys#behind-a-proxy): see below |
//! | `GlobalKeyExtractor` | [`global`](crate::extract::global) |
//! | `impl KeyExtractor`, generic over the body | a closure `Fn(&Head) -> Option<Key>`; after authentication, [`extension`](crate::extract::extension). For the user, or the address of others: `extension_ref(\|user: &User\| user.name.as_str()).or(PeerIp::new())` |
//! | `.use_headers()` | [`.fields(Fields::XDelta)`](crate::RateLimitLayer::fields). Without `.use_headers()`, write `.fields(Fields::None)`: by default the layer sends those of the IETF draft, [`Fields::Ietf`](crate::Fields::Ietf) |
//! | `.error_handler(..)` of the layer | [`.answer(..)`](crate::RateLimitLayer::answer), whose closure also gets the request. Take the status from [`Denial::status`](crate::Denial::status); there is [a recipe](super::recipes::applications#the-applications-json-error) with an error of your own |
//! | `GovernorError::TooManyRequests { wait_time, .. }` | [`Denial::retry_after`](crate::Denial::retry_after); [`Denial::reason`](crate::Denial::reason) for other causes |
//! | `.methods(vec![Method::POST])` | an [exemption](crate::Rule::exempt) of the other methods: `.exempt(\|head: &Head<'_>\| head.method() != Method::POST)` |
//! | `retain_recent` in a thread | not needed: remove the thread |
//! | `config.limiter().len()` | [`MemoryStore::keys`](crate::MemoryStore::keys) of a store that you [give](crate::RateLimitLayer::store) to the layer |
//!
//! # What behaves differently
//!
//! | | tower_governor | tollgate |
//! |---|---|---|
//! | the client behind proxies | the first address in `X-Forwarded-For` that can be read, else `X-Real-IP`, else `Forwarded`, else the peer, no matter who wrote the header | one header that you name, as far as it comes from proxies that you name |
//! | an IPv6 address | is one caller | its /64 is one caller |
//! | a request without a key | 500, unless your extractor says otherwise | 400, or [your choice](crate::MissingKey); 500 if the server does not provide the peer's address |
//! | a refusal's body | text | a problem document (RFC 9457) |
//! | `Retry-After` | rounded down, so it can be 0 and too early | rounded up, at least 1: a caller that waits that long passes |
//! | `x-ratelimit-after`, `x-ratelimit-whitelisted` | sent | not sent: `Retry-After` replaces the first |
//! | `x-ratelimit-reset` | not sent | sent: the seconds until the quota is full again, or in a refusal until the request would pass |
//! | gRPC | with its feature `tonic`, around tonic services: a status | around any service, by the content type of the request: [a status](super::grpc) and the time to wait |
//! | idle keys | stay until `retain_recent` | are removed as requests arrive, and memory has [a bound](crate::memory) |
//! | two limits | two layers: the outer one also charges requests that the inner one refuses | several [rules](crate::RateLimitLayer::new) in one layer: all are charged, or none. With [authentication in between](super::layers#before-and-after-authentication), still two layers |
//!
//! The algorithm is the same, GCRA. Callers that stay within the limit see no difference:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! for quota in [Quota::per_minute(30).burst(5), Quota::new(1, Duration::from_secs(2)).burst(5)] {
//!     let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//!     let limiter = Limiter::new([Policy::new("default", quota)])
//!         .store(MemoryStore::builder().clock(&time).build());
//!     for _ in 0..5 {
//!         assert!(limiter.check(&Key::global(), 1).await.is_ok());
//!     }
//!     let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
//!     assert_eq!(denial.retry_after(), Some(Duration::from_secs(2)));
//! }
//! # }
//! ```
//!
//! # What tollgate adds
//!
//! [Costs](crate::Rule::cost), [other algorithms](super::algorithms), a store
//! [for a fleet](super::outages), a [limiter for direct use](crate::Limiter), and
//! [tests without waiting](super::testing).
