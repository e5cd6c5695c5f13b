//! How to move a service from the rate limit of
//! [tower](https://docs.rs/tower/0.5/tower/limit/rate) 0.5: `ServiceBuilder::rate_limit` and
//! `tower::limit::RateLimitLayer`.
//!
//! # The same service
//!
//! A client may make five calls each 100 ms, and further ones wait. Before:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let mut client = ServiceBuilder::new()
//!     // The limit is no `Clone`: clones of the buffer share it.
//!     .buffer(1_024)
//!     .rate_limit(5, Duration::from_millis(100))
//!     .service(service_fn(async |id: u32| Ok::<_, Infallible>(id)));
//!
//! # let start = tokio::time::Instant::now();
//! for _ in 0..6 {
//!     client.ready().await.unwrap().call(7).await.unwrap();
//! }
//! # assert!(start.elapsed() >= Duration::from_millis(90));
//! # }
//! ```
//!
//! After:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use tollgate::calls::CallLimitLayer;
//! use tollgate::{Algorithm, Key, Limiter, Policy, Quota};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let calls = Policy::new("calls", Quota::new(5, Duration::from_millis(100)))
//!     .with_algorithm(Algorithm::FIXED_WINDOW);
//! let limit = CallLimitLayer::new(Limiter::new([calls]), |_: &u32| Some(Key::global()));
//! let mut client = ServiceBuilder::new()
//!     .layer(limit.wait_at_most(Duration::from_secs(60)))
//!     .service(service_fn(async |id: u32| Ok::<_, Infallible>(id)));
//!
//! # let start = tokio::time::Instant::now();
//! for _ in 0..6 {
//!     client.ready().await.unwrap().call(7).await.unwrap();
//! }
//! # assert!(start.elapsed() >= Duration::from_millis(90));
//! # }
//! ```
//!
//! For a server, a [`RateLimitLayer`](crate::RateLimitLayer) with a rule by
//! [`global`](crate::extract::global) answers 429 instead:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # use {axum::body::Body, http::Request, tower::ServiceExt};
//! use axum::{Router, routing::get};
//! use tollgate::extract::global;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! let all = Policy::new("all", Quota::per_second(5)).by(global());
//! let app: Router = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(all));
//! # for nth in 0..6 {
//! #     let status = app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap().status();
//! #     assert_eq!(status, if nth < 5 { 200 } else { 429 });
//! # }
//! # }
//! ```
//!
//! # The terms
//!
//! | tower | tollgate |
//! |---|---|
//! | `.rate_limit(n, per)`, `RateLimitLayer::new(n, per)` | [`Quota::new(n, per)`](crate::Quota::new) |
//! | its window, which the first call opens | [`FIXED_WINDOW`](crate::Algorithm::FIXED_WINDOW). A [`LeakyBucket`](crate::Algorithm::LeakyBucket) spaces calls evenly, the [default](super::algorithms) refills continuously |
//! | waiting until the service is ready | [`wait_at_most`](crate::calls::CallLimitLayer::wait_at_most), or a leaky bucket |
//! | `.load_shed()` outside, and its error `Overloaded` | leave out `wait_at_most`: [`CallLimitError::Denied`](crate::calls::CallLimitError::Denied) says when to retry |
//! | `.buffer(n)` outside, so that clones share the limit | not needed: services of one layer count together |
//! | `HandleErrorLayer` outside of those, in axum | not needed: a [`RateLimitLayer`](crate::RateLimitLayer) makes responses |
//! | the panic of a zero | the same, and [`try_new`](crate::Quota::try_new) returns an error |
//!
//! # What behaves differently
//!
//! | | tower | tollgate |
//! |---|---|---|
//! | the limit counts | all requests of one service | by key, with [`Key::global`](crate::Key::global) for all |
//! | each use of the layer | makes a limit of its own | shares the counts of the layer |
//! | at the limit | the service is not ready | the service is ready, and its response waits or is an error |
//! | so a caller that waits | holds up all behind it, in its buffer | holds up no other key |
//! | and the wait | has no bound | has one. A call that would wait longer is refused at once |
//! | the order of waiting calls | is that of the buffer | is that of arrival, for each key |
//! | the inner service | need not be `Clone` | must be `Clone`; if it is not, put a buffer around it |
//! | the state | is in the process | is in the process, or [in Redis](super::outages) |
//!
//! A wait in a response counts as a request in flight, for a timeout or a concurrency limit
//! outside: see [layers](super::layers#load-shed-buffer-and-concurrency-limit).
