//! Rate limiting for every Tower stack: one [`RateLimitLayer`] on an axum router, around a tonic
//! server, or in front of any clonable `tower::Service` over `http::Request`.
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::get};
//! use tollgate::{Quota, RateLimitLayer};
//!
//! // For each IP address 20 requests at once, and 100 a minute after that.
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
//! **The [`guide`] has a chapter for each question on the way to production**, and recipes to copy.
//!
//! # Rules
//!
//! A [`Policy`] is a named [`Quota`] with an [`Algorithm`]. [`by`](PolicyExt::by) adds a key
//! extractor, which makes it a [`Rule`]. A layer decides its rules together: if one refuses a
//! request, none is charged.
//!
//! ```
//! use http::Method;
//! use tollgate::exempt::cors_preflight;
//! use tollgate::extract::{ClientIp, extension};
//! use tollgate::{Algorithm, Head, Key, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! // Inserted into the extensions by an outer authentication layer.
//! #[derive(Clone)]
//! struct Caller { id: u64, plan: &'static str }
//!
//! let layer = RateLimitLayer::new([
//!     Policy::new("burst", Quota::per_second(10).burst(20))
//!         .by(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])),
//!     Policy::new("daily", Quota::per_day(5_000))
//!         .with_algorithm(Algorithm::SLIDING_BUCKETS)
//!         .by(extension(|caller: &Caller| caller.id))
//!         // A caller without a tier, or with an unknown one, gets the policy's own quota.
//!         .tiers([("pro", Quota::per_day(50_000))], |head: &Head<'_>, _: &Key| {
//!             head.extensions().get::<Caller>().map(|caller| caller.plan)
//!         })
//!         .cost(|head: &Head<'_>| if head.method() == Method::POST { 5 } else { 1 })
//!         .exempt(cors_preflight()),
//! ]);
//! ```
//!
//! - [`extract`] lists the key extractors: addresses, headers, cookies, extensions, closures, and
//!   combinations. **It also says which keys to trust**: a key that callers invent is no limit.
//! - [`Rule::reserve`] charges an estimate, and a [`Charge`] corrects it after the work:
//!   [`guide::charges`] does so with tokens, bytes and money.
//! - [`algorithm`] says what each algorithm guarantees and when to choose it.
//! - [`exempt`] says which exemptions attackers can use.
//! - [`memory`] says what a key costs and what happens at the cap.
//!
//! # For a fleet
//!
//! A [`MemoryStore`], the default, limits one process. The crate
//! [tollgate-redis](https://docs.rs/tollgate-redis) has a store in Redis or Valkey for all
//! processes of a fleet. It can fail, so the compiler asks what happens then:
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
//! [`failure`] lists the other failure policies.
//!
//! # What a client sees
//!
//! | request | answer | by default | gRPC and Connect |
//! |---|---|---|---|
//! | passes | the response of the inner service | with [`Fields::Ietf`] | the same |
//! | exceeds a quota | 429 | problem document, `Retry-After` | 8 `RESOURCE_EXHAUSTED`, pushback |
//! | costs more than a quota can ever grant | 422 | problem document | 8, pushback -1 |
//! | [may not ask for anything](Limit::Nothing) | 403 | problem document | 7 `PERMISSION_DENIED`, pushback -1 |
//! | has no key that a rule needs | 400 | problem document; or [`MissingKey`] | 3 `INVALID_ARGUMENT`, pushback -1 |
//! | brings a [limit](Rule::quota) that cannot be read, or needs the peer's address, which the server does not provide | 500 | problem document | 13 `INTERNAL`, pushback -1 |
//! | finds the store failing, under [`fail_closed`](StoreExt::fail_closed) or a fallback whose share is too small; or the layer [closed](RateLimitLayer::close) | 503 | problem document, `Retry-After` | 14 `UNAVAILABLE`, pushback |
//!
//! - [`RateLimitLayer::answer`] replaces the answer by your own. Each refusal carries its
//!   [`Denial`] in the response's extensions.
//! - [`RateLimitLayer::expose_report`] shows handlers the state of the rules, as a [`Report`].
//! - One layer serves HTTP, gRPC, gRPC-Web and Connect on one port: see [`guide::grpc`].
//!
//! # Without a layer, and in a client
//!
//! A [`Limiter`] asks policies and a store directly, with keys that code has: for WebSocket
//! messages, jobs, and keys from a request's body. [`Limiter::until_ready`] waits instead of
//! refusing, for a client of an API that has a limit. [`Limiter::check_each`] asks several policies
//! by keys, costs and [limits](Question::limit) of their own, and [`Limiter::check_now`] is for
//! callers that are not `async`. A [`RequestLimiter`] asks the rules of a
//! layer, with the head of a request. A [`CallLimitLayer`](calls::CallLimitLayer) limits a Tower
//! service over any other type of request.
//!
//! A [`RateLimitLayer`] around a client's service over `http::Request` limits what it sends:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Algorithm, Fields, Head, Key, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! // Each host allows ten requests a second: one is sent every 110 ms. A request that would wait
//! // longer than 30 s is not sent, and its answer has a `Denial` in the extensions.
//! let ours = Policy::new("ours", Quota::per_second(10).paced())
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(30) })
//!     .by(|head: &Head<'_>| head.uri().host().map(Key::from));
//! // No fields, which would mix with those of the server. No connection waits for refused bodies.
//! let layer = RateLimitLayer::new([ours]).fields(Fields::None).drain_body(0, Duration::ZERO);
//! ```
//!
//! With the feature `client`, `pause::PauseLayer` obeys the limits that a server reports.
//!
//! # What happened, and tests
//!
//! [`RateLimitLayer::observe`] shows each [`Decision`] to a closure. [`guide::watching`] lists the
//! metrics and the fields of spans. A [`ManualClock`] stands still until a test moves it: see
//! [`guide::testing`].
//!
//! # Features
//!
//! | feature | default | for |
//! |---|---|---|
//! | `axum` | no | peer addresses from `ConnectInfo`, `extract::matched_path`, [`Report`] and [`Charge`] as extractors, [`Denial`] as a response |
//! | `calendar` | no | the module `calendar`: quotas for each day, week or month of a time zone |
//! | `client` | no | the module `pause`, for clients that obey `Retry-After`, `RateLimit` and gRPC's pushback |
//! | `config` | no | the module `config`: rules from a file in TOML or JSON |
//! | `metrics` | no | `RateLimitLayer::metrics` and the module `metrics` |
//! | `tonic` | no | peer addresses from tonic's server, `tonic::Status` from a [`Denial`], `NamedService`. Answers to gRPC need no feature |
//! | `top-keys` | no | the module `usage::top_keys`: the keys that are allowed and denied most often |
//! | `tracing` | yes | decisions in [fields of the current span](guide::watching#spans), and failures of a store in the log |
//! | `tsc` | yes | the processor's time-stamp counter as clock, if it is steady: see [`Clock::system`](time::Clock::system) |
//! | `uuid` | no | [`Key`] from a `Uuid` |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "calendar")]
#[cfg_attr(docsrs, doc(cfg(feature = "calendar")))]
pub mod calendar;
pub mod calls;
pub mod charge;
#[cfg(feature = "config")]
#[cfg_attr(docsrs, doc(cfg(feature = "config")))]
pub mod config;
pub mod extract;
pub mod failure;
pub mod guide;
pub mod jobs;
pub mod layer;
pub mod memory;
#[cfg(feature = "client")]
#[cfg_attr(docsrs, doc(cfg(feature = "client")))]
pub mod pause;
pub mod scale;
pub mod store;
pub mod time;
pub mod usage;
pub mod watch;

mod answer;
mod blocks;
mod decision;
mod errors;
mod in_flight;
mod limiter;
mod plan;
mod rule;
mod table;

pub use answer::fields::Fields;
#[doc(inline)]
pub use charge::Charge;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use decision::observe::stores as metrics;
pub use decision::observe::{Decision, Outcome};
pub use decision::{Denial, Report};
pub use errors::{Reason, SetupError};
#[doc(inline)]
pub use extract::Head;
#[doc(inline)]
pub use failure::CircuitBreaker;
pub use in_flight::Slot;
#[doc(inline)]
pub use layer::RateLimitLayer;
pub use limiter::{Limiter, Permit, Question, RequestLimiter};
#[doc(inline)]
pub use memory::MemoryStore;
pub use rule::{Limit, MissingKey, PolicyExt, Rule, exempt};
#[doc(inline)]
pub use scale::Lease;
#[doc(inline)]
pub use store::StoreExt;
pub use tollgate_core::{
    Algorithm, Key, ManualClock, Policy, PolicyError, Quota, QuotaError, Share, TextError, Timestamp, Wait,
    algorithm,
};
