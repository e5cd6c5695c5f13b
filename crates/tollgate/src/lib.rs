//! Rate limiting for every Tower stack: one [`RateLimitLayer`] on an axum router, around a tonic
//! server, or in front of any clonable `tower::Service` over `http::Request`.
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
//! The server has to provide the addresses of its peers (feature `axum`):
//! `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`. Otherwise
//! requests are answered 500, and the log names the missing call. Behind a proxy all callers would
//! share one quota: limit them by [`extract::ClientIp`] there.
//!
//! # Rules
//!
//! A [`Policy`] is a named [`Quota`] with an [`Algorithm`]. [`by`](PolicyExt::by) adds a key
//! extractor, which makes it a [`Rule`]. A layer decides its rules together: if one refuses a
//! request, none is charged.
//!
//! ```
//! use http::Method;
//! use tollgate::extract::{ClientIp, header};
//! use tollgate::{Algorithm, Head, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! let layer = RateLimitLayer::new([
//!     Policy::new("burst", Quota::per_second(10).burst(20))
//!         .by(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])),
//!     Policy::new("daily", Quota::per_day(5_000))
//!         .with_algorithm(Algorithm::SLIDING_BUCKETS)
//!         .by(header("x-api-key"))
//!         .cost(|head: &Head<'_>| if head.method() == Method::POST { 5 } else { 1 }),
//! ]);
//! ```
//!
//! A rule may give some callers, routes or methods another quota, and ignore some requests:
//!
//! ```
//! use tollgate::exempt::{cors_preflight, from_networks};
//! use tollgate::extract::{PeerIp, extension};
//! use tollgate::{Head, Key, Policy, PolicyExt, Quota};
//!
//! // Inserted into the extensions by an outer authentication layer.
//! #[derive(Clone)]
//! struct Caller { id: u64, plan: &'static str }
//!
//! // A caller without a tier, or with an unknown one, gets the policy's own quota.
//! let rule = Policy::new("api", Quota::per_minute(60))
//!     .by(extension(|caller: &Caller| caller.id))
//!     .tiers(
//!         [("pro", Quota::per_minute(600)), ("enterprise", Quota::per_minute(6_000))],
//!         |head: &Head<'_>, _: &Key| head.extensions().get::<Caller>().map(|caller| caller.plan),
//!     )
//!     .exempt(cors_preflight())
//!     .exempt(from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"]));
//! ```
//!
//! - [`extract`] lists the key extractors: addresses, headers, cookies, extensions, closures, and
//!   combinations. **It also says which keys to trust**: a key that callers invent is no limit.
//! - [`Rule::tiers`] says what happens to usage when a caller changes tier, and [`exempt`] which
//!   exemptions attackers can use.
//! - [`algorithm`] says what each algorithm guarantees and when to choose it.
//! - [`memory`] says what a key costs and what happens at the cap.
//! - [`failure`] says what happens when a store over a network fails.
//! - [`guide`] has a chapter for each question on the way to production.
//!
//! # What a client sees
//!
//! | request | answer | by default | gRPC and Connect |
//! |---|---|---|---|
//! | passes | the response of the inner service | with [`Fields::Ietf`] | the same |
//! | exceeds a quota | 429 | problem document, `Retry-After` | 8 `RESOURCE_EXHAUSTED`, pushback |
//! | costs more than a quota can ever grant | 422 | problem document, no `Retry-After` | 8, pushback -1 |
//! | has no key that a rule needs | 400 | problem document; or [`MissingKey::Skip`], [`MissingKey::OneKey`] | 3 `INVALID_ARGUMENT`, pushback -1 |
//! | needs the peer's address, which the server does not provide | 500 | problem document | 13 `INTERNAL`, pushback -1 |
//! | finds the store failing, under [`fail_closed`](StoreExt::fail_closed) | 503 | problem document, `Retry-After` | 14 `UNAVAILABLE`, pushback |
//!
//! While a refusal is sent, the rest of the request's body is read within a bound, so that the
//! client and proxies see the answer: see [`RateLimitLayer::drain_body`].
//!
//! [`RateLimitLayer::answer`] replaces the answer by your own. Each refusal carries its [`Denial`]
//! in the response's extensions. [`RateLimitLayer::expose_report`] shows handlers the state of the
//! rules, as a [`Report`].
//!
//! # gRPC and Connect
//!
//! One layer serves HTTP, gRPC, gRPC-Web and Connect on one port: the request decides the form of
//! the answer. gRPC and gRPC-Web get a status in the headers, with `RetryInfo`, `QuotaFailure` and
//! `grpc-retry-pushback-ms`, which clients with a retry policy obey. Connect gets an error in JSON
//! with the same details. [`Denial::response_to`] lists both. Allowed calls, including streams, are
//! not changed.
//!
//! With the feature `tonic`, extractors find the peer's address under tonic's own server, and `?`
//! turns a [`Denial`] into a `tonic::Status`. The layer may also wrap one service of several:
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
//! The layer also wraps tonic's `Routes` as a router of axum:
//! `Routes::from(router).add_service(..).into_axum_router()`.
//!
//! # For a fleet
//!
//! A [`MemoryStore`] limits one process. The crate [tollgate-redis](https://docs.rs/tollgate-redis)
//! has a store in Redis or Valkey for all processes of a fleet. It can fail, so the compiler asks
//! what happens then:
//!
//! ```text
//! let store = RedisStore::connect("redis://127.0.0.1/")
//!     .await?
//!     .timeout(Duration::from_millis(250))
//!     .circuit_breaker(CircuitBreaker::default())
//!     // While Redis fails, each of 3 nodes grants a third of every quota.
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! [`failure`] lists the other failure policies. A program that chooses its store at run time calls
//! [`StoreExt::boxed`] after one of them.
//!
//! # What happened
//!
//! [`RateLimitLayer::observe`] shows each [`Decision`] to a closure. [`guide::watching`] lists the
//! metrics and the fields of spans.
//!
//! # Without a layer
//!
//! A [`Limiter`] asks policies and a store directly, with keys that code has: for WebSocket
//! messages, jobs, and keys from a request's body. A [`RequestLimiter`] asks the rules of a layer,
//! with the head of a request. [`Limiter::until_ready`] waits instead of refusing. A
//! [`CallLimitLayer`](calls::CallLimitLayer) limits a Tower service over any other type of request:
//! see [`calls`].
//!
//! # In a client
//!
//! The same layer limits the requests of a client: around hyper-util's `Client` or any other
//! service over `http::Request`. A [leaky bucket](Algorithm::LeakyBucket) delays requests instead
//! of refusing them. A request that would wait longer than its `max_wait` is answered 429 and not
//! sent. A [`Denial`] in the extensions distinguishes that answer from a 429 of the server.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Algorithm, Fields, Head, Key, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! // Each host allows ten requests a second: one is sent every 110 ms.
//! let ours = Policy::new("ours", Quota::per_second(10).paced())
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(30) })
//!     .by(|head: &Head<'_>| head.uri().host().map(Key::from));
//! // No fields, which would mix with those of the server. No connection waits for refused bodies.
//! let layer = RateLimitLayer::new([ours]).fields(Fields::None).drain_body(0, Duration::ZERO);
//! ```
//!
//! With the feature `client`, `pause::PauseLayer` obeys the limits that a server reports.
//!
//! # In tests
//!
//! A [`ManualClock`] stands still until the test moves it: see
//! [how to test limits without waiting](guide::testing).
//!
//! # Order of layers
//!
//! Put the limit outside expensive layers, and inside CORS and tracing: see [`guide::layers`].
//!
//! # Features
//!
//! | feature | default | for |
//! |---|---|---|
//! | `axum` | no | peer addresses from `ConnectInfo`, `extract::matched_path`, [`Report`] as an extractor, and [`Denial`] as a response |
//! | `client` | no | the module `pause`, for clients that obey `Retry-After` and `RateLimit` |
//! | `tsc` | yes | reads the processor's time-stamp counter instead of the system's clock, if it is steady: about 15 ns less for each request. It is calibrated once, when the first layer or store is made, for up to 200 ms. On a busy machine the result may be wrong by some hundred parts in a million: aligned windows and resets told as a time drift by that. After a hibernation the system's clock is used |
//! | `metrics` | no | `RateLimitLayer::metrics` and the module `metrics`: decisions and stores as metrics, see [`guide::watching`] |
//! | `top-keys` | no | the module `usage::top_keys` and `StoreExt::count_usage`: the keys that are allowed and denied most often, and a time series |
//! | `tonic` | no | peer addresses from tonic's server, `tonic::Status` from a [`Denial`], `NamedService`. Answers to gRPC need no feature |
//! | `uuid` | no | [`Key`] from a `Uuid` |
//! | `tracing` | yes | records decisions in [fields of the current span](guide::watching#spans); logs a missing peer address or extension, a memory store full of denied keys, and the begin and end of a store's failures |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod calls;
pub mod extract;
pub mod failure;
pub mod guide;
pub mod layer;
pub mod memory;
#[cfg(feature = "client")]
#[cfg_attr(docsrs, doc(cfg(feature = "client")))]
pub mod pause;
pub mod scale;
pub mod store;
pub mod usage;

mod answer;
mod denial;
mod fields;
mod interned;
mod limiter;
mod observe;
mod policy_set;
mod reason;
mod report;
mod rule;
mod setup_error;
mod table;
mod waiting_call;

pub use denial::Denial;
pub use extract::Head;
pub use failure::CircuitBreaker;
pub use fields::Fields;
pub use layer::RateLimitLayer;
pub use limiter::{Limiter, Permit, RequestLimiter};
pub use memory::MemoryStore;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use observe::stores as metrics;
pub use observe::{Decision, Outcome};
pub use reason::Reason;
pub use report::Report;
pub use rule::{MissingKey, PolicyExt, Rule, exempt};
pub use scale::Lease;
pub use setup_error::SetupError;
pub use store::StoreExt;
pub use tollgate_core::{
    Algorithm, Clock, Key, ManualClock, Policy, PolicyError, Quota, QuotaError, Share, ShareError, Status,
    Timestamp, Wait, algorithm,
};
