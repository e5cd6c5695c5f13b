//! How to test limits without waiting.
//!
//! A [`MemoryStore`](crate::MemoryStore) reads the time from its clock, and a
//! [`ManualClock`](crate::ManualClock) moves only when the test moves it. Such tests take no time
//! and are exact: a refused request passes after [`retry_after`](crate::Denial::retry_after), and
//! not a microsecond earlier.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let limiter = Limiter::new([Policy::new("one", Quota::per_minute(1))])
//!     .store(MemoryStore::builder().clock(&time).build());
//!
//! assert!(limiter.check(&Key::global(), 1).await.is_ok());
//! let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
//! assert_eq!(denial.retry_after(), Some(Duration::from_secs(60)));
//!
//! time.advance(Duration::from_micros(59_999_999));
//! assert!(limiter.check(&Key::global(), 1).await.is_err());
//! time.advance(Duration::from_micros(1));
//! assert!(limiter.check(&Key::global(), 1).await.is_ok());
//! # }
//! ```
//!
//! # Your own service
//!
//! Let the function that builds the service take the store, so that tests can pass one with a
//! manual clock. Requests need no socket, but they need a peer: a
//! [`PeerAddr`](crate::extract::PeerAddr) in their extensions, or axum's `MockConnectInfo` as the
//! outermost layer (feature `axum`).
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::extract::{PeerAddr, PeerIp};
//! use tollgate::store::{NeverFails, Store};
//! use tollgate::{ManualClock, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Timestamp};
//! use tower::ServiceExt;
//!
//! // `main` passes the store of production: any store with a failure policy.
//! fn app<S>(store: S) -> Router
//! where
//!     S: Store<Error: NeverFails>,
//! {
//!     let rule = Policy::new("pages", Quota::per_minute(60).burst(2)).by(PeerIp::new());
//!     Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new([rule]).store(store))
//! }
//!
//! // In your tests: `#[tokio::test] async fn the_third_page_is_refused()`.
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let app = app(MemoryStore::builder().clock(&time).build());
//! let get = async |last: u8| {
//!     let peer = PeerAddr(([192, 0, 2, last], 4_000).into());
//!     let request = Request::get("/").extension(peer).body(Body::empty()).unwrap();
//!     app.clone().oneshot(request).await.unwrap()
//! };
//!
//! assert_eq!(get(1).await.status(), StatusCode::OK);
//! assert_eq!(get(1).await.headers()["ratelimit"], "\"pages\";r=0;t=2");
//! let refused = get(1).await;
//! assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(refused.headers()["retry-after"], "1");
//! assert_eq!(get(2).await.status(), StatusCode::OK, "another address");
//!
//! time.advance(Duration::from_secs(1));
//! assert_eq!(get(1).await.status(), StatusCode::OK);
//! # }
//! ```
//!
//! Tests of other features may send more than the limit allows. Switch it off there:
//! [`RateLimitLayer::enabled(false)`](crate::RateLimitLayer::enabled) changes no type.
//!
//! # Delays
//!
//! The store's clock determines the delay of a leaky bucket, and tokio's clock ends the sleep. If
//! tokio's time is paused (feature `test-util` of tokio, `#[tokio::test(start_paused = true)]`),
//! the sleep ends at once:
//!
//! ```
//! use std::convert::Infallible;
//! use std::pin::pin;
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tokio::time::timeout;
//! use tollgate::extract::global;
//! use tollgate::{Algorithm, ManualClock, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Timestamp};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let even = Policy::new("even", Quota::per_minute(1))
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(60) });
//! let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let layer = RateLimitLayer::new([even.by(global())]).store(MemoryStore::builder().clock(&time).build());
//! let service = ServiceBuilder::new()
//!     .layer(layer)
//!     .service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
//!
//! // By the paused clock, the first passes at once, and the second after a minute.
//! let first = service.clone().oneshot(Request::default());
//! timeout(Duration::from_millis(1), first).await.expect("no wait").unwrap();
//! let mut second = pin!(service.oneshot(Request::default()));
//! timeout(Duration::from_secs(59), second.as_mut()).await.expect_err("it waits for its slot");
//! timeout(Duration::from_secs(2), second).await.expect("its slot has come").unwrap();
//! # }
//! ```
//!
//! # Outages
//!
//! A store that fails takes a few lines. It shows what your service does in an outage:
//!
//! ```
//! use std::future::{Ready, ready};
//! use std::{error, fmt};
//! use tollgate::store::{Check, ErrorKind, Grant, Reply, Store, StoreError, Times, Verdict};
//! use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, Reason, Share, StoreExt};
//!
//! #[derive(Debug)]
//! struct Away;
//! # impl fmt::Display for Away {
//! #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("away") }
//! # }
//! # impl error::Error for Away {}
//! impl StoreError for Away {
//!     fn kind(&self) -> ErrorKind { ErrorKind::Unavailable }
//! }
//!
//! #[derive(Clone)]
//! struct Broken;
//! impl Store for Broken {
//!     type Error = Away;
//!     type Acquire = Ready<Result<Verdict, Away>>;
//!     type Done = Ready<Result<(), Away>>;
//!     fn acquire(&self, _: &[Check<'_>], _: Times) -> Reply<Result<Verdict, Away>, Self::Acquire> {
//!         Reply::Later(ready(Err(Away)))
//!     }
//!     fn refund(&self, _: &[Grant<'_>]) -> Reply<Result<(), Away>, Self::Done> {
//!         Reply::Later(ready(Err(Away)))
//!     }
//!     fn reset(&self, _: &Key, _: &[&Policy]) -> Reply<Result<(), Away>, Self::Done> {
//!         Reply::Later(ready(Err(Away)))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let policy = || Policy::new("two", Quota::per_minute(2));
//! let half = Limiter::new([policy()]).store(Broken.fall_back_to(MemoryStore::new(), Share::new(1, 2)));
//! assert!(half.check(&Key::global(), 1).await.is_ok());
//! assert!(half.check(&Key::global(), 1).await.is_err());
//!
//! let closed = Limiter::new([policy()]).store(Broken.fail_closed());
//! let denial = closed.check(&Key::global(), 1).await.unwrap_err();
//! assert_eq!(denial.reason(), Reason::Unavailable);
//! # }
//! ```
//!
//! With `std::future::pending()` instead, and a [`timeout`](crate::StoreExt::timeout), the store
//! hangs: [`failure`](crate::failure#example) has that example.
//!
//! # With Redis
//!
//! The store of [tollgate-redis](https://docs.rs/tollgate-redis) uses the clock of its server. With
//! its feature `test-util`, `RedisStoreBuilder::clock` sets another clock.
//! [tollgate-conformance](https://docs.rs/tollgate-conformance) has Redis and Valkey servers for
//! tests, behind its feature `servers`. They download themselves, and a test can pause and kill
//! them.
