//! Rate limiting for every Tower stack: one [`RateLimitLayer`] on an axum router, around a tonic server, or in front of any
//! clonable `tower::Service` over `http::Request`.
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
//! refused with 500 and the log names the missing call.
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
//! A rule may grant some callers, routes or methods another quota, and leave some requests alone:
//!
//! ```
//! use http::request::Parts;
//! use tollgate::exempt::{cors_preflight, from_networks};
//! use tollgate::extract::{PeerIp, extension};
//! use tollgate::{Key, Policy, PolicyExt, Quota};
//!
//! // Left in the extensions by the layer that knows the caller.
//! #[derive(Clone)]
//! struct Caller { id: u64, plan: &'static str }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Whoever is in no tier, or in one that is not there, has the policy's own quota: nobody is unlimited by mistake.
//! let rule = Policy::new("api", Quota::per_minute(60))
//!     .by(extension(|caller: &Caller| caller.id))
//!     .tiers(
//!         [("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000))],
//!         |parts: &Parts, _: &Key| parts.extensions.get::<Caller>().map(|caller| caller.plan),
//!     )
//!     .exempt(cors_preflight())
//!     .exempt(from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"])?);
//! # Ok(())
//! # }
//! ```
//!
//! - [`extract`] has the keys: addresses, headers, cookies, extensions, closures, and how to combine them. **Read there
//!   whom to believe**: a key that callers can invent limits nobody.
//! - [`Rule::tiers`] tells what a caller keeps who changes his tier, [`exempt`] which exemptions are holes.
//! - [`algorithm`] tells what each algorithm guarantees and when to choose it.
//! - [`memory`] tells what a key costs and what happens when there are too many.
//! - [`failure`] tells what happens when a store fails, which stores over a network do.
//! - [`guide`] has a chapter for each question that comes up on the way to production.
//!
//! # What a client sees
//!
//! | request | answer | by default | gRPC and Connect |
//! |---|---|---|---|
//! | passes | that of the inner service | with [`Fields::Ietf`] | the same |
//! | exceeds a quota | 429 | problem document, `Retry-After` | 8 `RESOURCE_EXHAUSTED`, pushback |
//! | costs more than a quota can ever grant | 422 | problem document, no `Retry-After` | 8, pushback -1 |
//! | has no key that a rule needs | 400 | problem document; or [`MissingKey::Skip`], [`MissingKey::Share`] | 3 `INVALID_ARGUMENT`, pushback -1 |
//! | needs the peer's address, which the server does not provide | 500 | problem document | 13 `INTERNAL`, pushback -1 |
//! | finds the store failing, under [`fail_closed`](FailureExt::fail_closed) | 503 | problem document, `Retry-After` | 14 `UNAVAILABLE`, pushback |
//!
//! While a refusal is sent, the rest of the request's body is read within a bound, so that the
//! client and proxies see the answer: see [`RateLimitLayer::drain_body`].
//!
//! [`RateLimitLayer::answer`] replaces the answer by your own; each refusal carries its [`Denial`] in the response's
//! extensions. [`RateLimitLayer::expose_verdict`] tells handlers how the rules stand, as a [`Report`].
//!
//! # gRPC and Connect
//!
//! One layer serves HTTP, gRPC, gRPC-Web and Connect on one port: the request decides the form of
//! the answer. gRPC and gRPC-Web get a status in the headers, with `RetryInfo`, `QuotaFailure` and
//! `grpc-retry-pushback-ms`, which clients with a retry policy obey by themselves. Connect gets an
//! error in JSON with the same details. [`Denial::response_to`] lists both. Calls that pass,
//! streams included, pass as they are.
//!
//! With the feature `tonic` the address of a peer is known under tonic's own server, a [`Denial`]
//! becomes a `tonic::Status` by `?`, and the layer may stand around one service of several:
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
//! that all processes of a fleet share, in Redis or Valkey. It can fail, so the compiler asks what happens then:
//!
//! ```text
//! let store = RedisStore::connect("redis://127.0.0.1/")
//!     .await?
//!     .timeout(Duration::from_millis(50))
//!     .circuit_breaker(CircuitBreaker::default())
//!     // While Redis fails, each of 3 nodes grants a third of every quota.
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! [`failure`] has the other policies. A program that chooses its store at run time takes
//! [`StoreExt::boxed`] after one of them.
//!
//! # Without a layer
//!
//! A [`Limiter`] asks the same rules and store directly: for WebSocket messages, jobs, keys that are found in a body.
//!
//! # On the other side
//!
//! The same layer limits what a client sends: around hyper-util's `Client`, or whatever else is a service over
//! `http::Request`. A [leaky bucket](Algorithm::LeakyBucket) makes requests wait for their turn instead of failing. What would
//! wait longer than its `max_wait` is answered 429 without having been sent, with a [`Denial`] in the extensions, which tells it
//! from a 429 of the other side.
//!
//! ```
//! use std::time::Duration;
//! use http::request::Parts;
//! use tollgate::{Algorithm, Fields, Key, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! // Ten requests a second to each host, evenly spaced.
//! let ours = Policy::new("ours", Quota::per_second(10))
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(30) })
//!     .by(|parts: &Parts| parts.uri.host().map(Key::from));
//! // Without fields of ours, which would stand among those of the other side. No connection waits for refused bodies.
//! let layer = RateLimitLayer::new([ours]).fields(Fields::None).drain_body(0, Duration::ZERO);
//! ```
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
//! | `axum` | no | peer addresses from `ConnectInfo`, `extract::matched_path`, [`Report`] as an extractor, and [`Denial`] as a response |
//! | `tonic` | no | peer addresses from tonic's server, `tonic::Status` from a [`Denial`], `NamedService`; gRPC is answered as such without it |
//! | `tracing` | yes | writes to the log: what is missing if requests carry no peer address or extension; that a memory store is full of denied keys; that a store begins to fail, and that it answers again |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod exempt;
pub mod extract;
pub mod failure;
pub mod guide;
pub mod memory;
#[cfg(feature = "tonic")]
mod named;

mod answer;
mod body;
mod deadline;
mod denial;
mod drain;
mod fields;
mod future;
mod interned;
mod layer;
mod limiter;
mod place;
mod problem;
mod report;
mod rule;
mod rules;
mod service;
mod shared;

pub use body::ResponseBody;
pub use denial::Denial;
pub use failure::{CircuitBreaker, CircuitBreakerError, CircuitState, FailureExt};
pub use fields::Fields;
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use limiter::{Limiter, NeverFails, Permit};
pub use memory::MemoryStore;
pub use problem::Reason;
#[cfg(feature = "axum")]
pub use report::MissingReport;
pub use report::Report;
pub use rule::{MissingKey, PolicyExt, Rule, TiersError};
pub use rules::RulesError;
pub use service::RateLimit;
pub use tollgate_core::{
    Algorithm, BoxStore, Check, Clock, ErrorKind, Grant, Key, ManualClock, Policy, PolicyError, Quota,
    QuotaError, Reply, Share, ShareError, Stamp, Status, Store, StoreError, StoreExt, Times, Timestamp,
    Verdict, Wait, algorithm,
};
