//! Rate limiting for every Tower stack: one [`RateLimitLayer`] on an axum router, or in front of any `tower::Service` over
//! `http::Request`.
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
//! - [`guide`] has a chapter for each question that comes up on the way to production.
//!
//! # What a client sees
//!
//! | request | answer | by default |
//! |---|---|---|
//! | passes | that of the inner service | with [`Fields::Ietf`] |
//! | exceeds a quota | 429 | problem document, `Retry-After` |
//! | costs more than a quota can ever grant | 422 | problem document, no `Retry-After` |
//! | has no key that a rule needs | 400 | problem document; or [`MissingKey::Skip`], [`MissingKey::Share`] |
//! | finds the store failing, under [`fail_closed`](FailureExt::fail_closed) | 503 | problem document, `Retry-After` |
//!
//! [`RateLimitLayer::answer`] replaces the answer by your own; each refusal carries its [`Denial`] in the response's
//! extensions.
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
//! A [`ManualClock`] moves only when it is told to: see [how to test limits without waiting](guide::testing).
//!
//! # Order of layers
//!
//! Outside of what is dear, inside of CORS and of tracing: see [where the limit stands](guide::layers).
//!
//! # Features
//!
//! | feature | default | for |
//! |---|---|---|
//! | `axum` | no | peer addresses from `ConnectInfo`, and `extract::matched_path` |
//! | `tsc` | yes | reads the processor's time-stamp counter for the time, where that is reliable, and the operating system's clock elsewhere: about 15 ns less for each request |
//! | `tracing` | yes | says once, in the log, what is missing where requests carry no peer address, and when a store begins to fail and answers again |

pub mod extract;
pub mod failure;
pub mod guide;
pub mod memory;

mod body;
mod denial;
mod fields;
mod future;
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
