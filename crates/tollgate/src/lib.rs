//! Rate limiting for every Tower stack: one [`RateLimitLayer`] on an axum router, around a tonic server, or in front of any
//! `tower::Service` over `http::Request`.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::get};
//! use tollgate::{Quota, RateLimitLayer};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::per_ip(Quota::per_minute(100).burst(20)));
//! # }
//! ```
//!
//! The server has to say who its peers are (feature `axum`):
//! `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`. Where it does not, requests are
//! refused with 400 and the log names the missing call.
//!
//! # Rules
//!
//! A [`Policy`] is a named [`Quota`] with an [`Algorithm`]. [`by`](PolicyExt::by) divides it among callers and makes it a
//! [`Rule`]; a layer takes one or several and decides them together: a request is charged to all that apply to it, or to
//! none.
//!
//! ```
//! use http::{Method, request::Parts};
//! use tollgate::extract::{ClientIp, header};
//! use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = RateLimitLayer::new([
//!     Policy::new("burst", Quota::per_second(10).burst(20))
//!         .by(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])?),
//!     Policy::new("daily", Quota::per_day(5_000))
//!         .with_algorithm(Algorithm::SLIDING_BUCKETS)
//!         .by(header("x-api-key"))
//!         .cost(|parts: &Parts| if parts.method == Method::POST { 5 } else { 1 }),
//! ]);
//! # Ok(())
//! # }
//! ```
//!
//! - [`extract`] has the keys: addresses, headers, cookies, extensions, closures, and how to combine them. **Read there
//!   whom to believe**: a key that callers can invent limits nobody.
//! - [`algorithm`] tells what each algorithm guarantees and when to choose it.
//! - [`memory`] tells what a key costs and what happens when there are too many.
//! - [`failure`] tells what happens when a store fails, which stores over a network do.
//!
//! # What a client sees
//!
//! | request | answer | by default | gRPC |
//! |---|---|---|---|
//! | passes | that of the inner service | with [`Fields::Ietf`] | the same |
//! | exceeds a quota | 429 | problem document, `Retry-After` | 8 `RESOURCE_EXHAUSTED`, pushback |
//! | costs more than a quota can ever grant | 422 | problem document, no `Retry-After` | 8, pushback -1 |
//! | has no key that a rule needs | 400 | problem document; or [`MissingKey::Skip`], [`MissingKey::Share`] | 3 `INVALID_ARGUMENT`, pushback -1 |
//! | finds the store failing, under [`fail_closed`](FailureExt::fail_closed) | 503 | problem document, `Retry-After` | 14 `UNAVAILABLE`, pushback |
//!
//! [`RateLimitLayer::answer`] replaces the answer by your own; each refusal carries its [`Denial`] in the response's
//! extensions.
//!
//! # gRPC
//!
//! One layer serves HTTP and gRPC on one port: what it answers goes by the content type of the request. gRPC and gRPC-Web
//! get a status in the headers ([`Denial::response_to`] tells which), with `grpc-retry-pushback-ms`, which clients with
//! a retry policy obey by themselves. Calls that pass, streams included, pass as they are.
//!
//! With the feature `tonic` the address of a peer is known under tonic's own server, statuses carry `RetryInfo` and
//! `QuotaFailure`, a [`Denial`] becomes a `tonic::Status` by `?`, and the layer may stand around one service of several:
//!
//! ```
//! # #[cfg(feature = "tonic")] {
//! # use tollgate::{Quota, RateLimitLayer};
//! # use tonic::body::Body;
//! # fn mount<G>(greeter: G, uploads: G)
//! # where
//! #     G: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible>,
//! #     G: tonic::server::NamedService + Clone + Send + Sync + 'static,
//! #     G::Future: Send + 'static,
//! # {
//! use tonic::transport::Server;
//! use tower::ServiceBuilder;
//!
//! // All services of a server,
//! let all = RateLimitLayer::per_ip(Quota::per_second(50).burst(100));
//! let server = Server::builder().layer(all).add_service(greeter);
//!
//! // or one of them.
//! let few = RateLimitLayer::per_ip(Quota::per_minute(10));
//! let server = Server::builder().add_service(ServiceBuilder::new().layer(few).service(uploads));
//! # }
//! # }
//! ```
//!
//! tonic's `Routes` take a router of axum (`Routes::from(router).add_service(..).into_axum_router()`), around which the same
//! layer stands.
//!
//! # For a fleet
//!
//! A [`MemoryStore`] limits what one process lets pass. The crate [tollgate-redis](https://docs.rs/tollgate-redis) has a store
//! that all processes of a fleet share, in Redis or Valkey. It can fail, so that the compiler asks what happens then:
//!
//! ```text
//! let store = RedisStore::connect("redis://127.0.0.1/").await?.timeout(Duration::from_millis(50)).fail_open();
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! [`failure`] has the policies. A program that chooses its store at run time takes [`StoreExt::boxed`] after one of them.
//!
//! # Without a layer
//!
//! A [`Limiter`] asks the same rules and store directly: for WebSocket messages, jobs, keys that are found in a body.
//!
//! # In tests
//!
//! A [`ManualClock`] moves only when it is told to:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::extract::global;
//! use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, PolicyExt, Quota, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let limiter = Limiter::new([Policy::new("one", Quota::per_minute(1)).by(global())])
//!     .store(MemoryStore::builder().clock(&time).build());
//!
//! assert!(limiter.check_key(&Key::global(), 1).await.is_ok());
//! let denial = limiter.check_key(&Key::global(), 1).await.unwrap_err();
//! assert_eq!(denial.retry_after(), Some(Duration::from_secs(60)));
//! time.advance(Duration::from_secs(60));
//! assert!(limiter.check_key(&Key::global(), 1).await.is_ok());
//! # }
//! ```
//!
//! # Order of layers
//!
//! A layer limits what is inside it. Put it outside of what is dear (body limits, handlers, authentication against a
//! database) and inside of what its answers need: a 429 that is made outside of the CORS layer cannot be read by a
//! browser, and one outside of tracing is not logged. A rule by user stands inside of the layer that finds the user.
//!
//! A request that a leaky bucket delays keeps the place in the inner service that it was promised: a concurrency limit
//! belongs outside of such a layer, or sleepers take up its slots.
//!
//! # Features
//!
//! | feature | default | for |
//! |---|---|---|
//! | `axum` | no | peer addresses from `ConnectInfo`, and `extract::matched_path` |
//! | `tsc` | yes | reads the processor's time-stamp counter for the time, where that is reliable, and the operating system's clock elsewhere: about 15 ns less for each request |
//! | `tonic` | no | peer addresses from tonic's server, details in gRPC statuses, `tonic::Status` from a [`Denial`], `NamedService`; gRPC is answered as such without it |
//! | `tracing` | yes | says once, in the log, what is missing where requests carry no peer address, and when a store begins to fail and answers again |

pub mod extract;
pub mod failure;
pub mod memory;

mod body;
mod denial;
mod fields;
mod future;
mod grpc;
mod interned;
mod layer;
mod limiter;
mod problem;
mod report;
mod rule;
mod service;
mod shared;

pub use body::ResponseBody;
pub use denial::Denial;
pub use failure::FailureExt;
pub use fields::Fields;
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use limiter::{Limiter, NeverFails, Permit};
pub use memory::MemoryStore;
pub use problem::Reason;
pub use report::Report;
pub use rule::{MissingKey, PolicyExt, Rule, RulesError};
pub use service::RateLimit;
pub use tollgate_core::{
    Algorithm, BoxStore, Check, CircuitBreaker, CircuitBreakerError, CircuitState, Clock, ErrorKind, Grant,
    Key, ManualClock, Policy, PolicyError, Quota, QuotaError, Reply, Share, ShareError, Stamp, Status, Store,
    StoreError, StoreExt, Times, Timestamp, Verdict, Wait, algorithm,
};
