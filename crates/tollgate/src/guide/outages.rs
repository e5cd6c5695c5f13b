//! What happens to requests while the store is away.
//!
//! A [`MemoryStore`](crate::MemoryStore) always answers, and this chapter is not about it. A store over a network is slow or
//! away at times, and a layer takes it only after it was told what happens then: forgetting it is a compile error that says
//! what to write. [`failure`](crate::failure) has the tables: each fault under each policy, what callers see, what the limit
//! then means. In short:
//!
//! | if, without the limit, | write after the store |
//! |---|---|
//! | nothing worse happens than load that you can bear for an hour | `.timeout(..).circuit_breaker(..).fail_open()` |
//! | money, messages or passwords are lost | `.timeout(..).circuit_breaker(..).fail_closed()` |
//! | neither is acceptable, and you know how many nodes there are | `.timeout(..).circuit_breaker(..).fall_back_to(MemoryStore::new(), Share::new(1, nodes))` |
//!
//! **Under `fail_open`, whoever slows the store down switches the limit off**: requests that it answers too late pass, and once
//! the circuit opens, all do. Where that is to be feared, fall back to a share; or have a second layer outside, with a generous
//! rule by address in memory.
//!
//! One store serves several layers, each with a failure policy of its own; a clone shares its connections and its states, so
//! that the layers' policies need different names:
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::{get, post}};
//! use tollgate::{CircuitBreaker, FailureExt, Quota, RateLimitLayer};
//! use tollgate::{MemoryStore, Policy, PolicyExt, extract::PeerIp};
//!
//! // In its place: `RedisStore::connect("redis://127.0.0.1/").await?`
//! # let redis = MemoryStore::new();
//! let store = redis.timeout(Duration::from_millis(50)).circuit_breaker(CircuitBreaker::default());
//!
//! let pages = RateLimitLayer::new([Policy::new("pages", Quota::per_minute(100)).by(PeerIp::new())])
//!     .store(store.clone().fail_open());
//! let log_ins = RateLimitLayer::new([Policy::new("log-ins", Quota::per_hour(20)).by(PeerIp::new())])
//!     .store(store.fail_closed());
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }).layer(pages))
//!     .route("/log-in", post(|| async { "welcome" }).layer(log_ins));
//! ```
//!
//! # The timeout
//!
//! It is what a request waits at most for the store, in an outage as on a bad day: a few times the slowest answer that you
//! measure in normal operation, and much less than your callers' patience. It does not undo a charge:
//! [what came late may have been counted](crate::failure#a-timeout-does-not-undo-a-charge), once.
//!
//! # The circuit breaker
//!
//! Without it, while a store hangs, every request waits for the whole timeout. With it, after 5 requests that failed and none
//! between them that did not, or 50 failures among the last 100, requests are decided at once, and one of them now and then
//! finds out whether the store is back. Clones of a store share one circuit; a store that is set up wrongly never opens it,
//! since waiting mends no password.
//!
//! # A share
//!
//! A fallback on N nodes, of 1/N each, admits together what the quota says: once more, beside what the store had admitted
//! before. A policy of which that share is less than one unit is refused when the layer is made, not when the outage comes:
//!
//! ```
//! use tollgate::{FailureExt, MemoryStore, Quota, RateLimitLayer, RulesError, Share};
//!
//! # let redis = MemoryStore::new();
//! let store = redis.fall_back_to(MemoryStore::new(), Share::new(1, 20));
//! let error = RateLimitLayer::per_ip(Quota::per_minute(10)).try_store(store).err();
//! assert!(matches!(error, Some(RulesError::Unsupported(policy, _)) if policy.name() == "default"));
//! ```
//!
//! # To be woken for
//!
//! The log tells when a store begins to fail and when it answers again; an **error** there, instead of a warning, will not
//! pass by itself. [To watch](crate::failure#to-watch) has the events for your metrics: who decided, and how the store failed.
//! What callers see of `fail_open` is no more than that the `RateLimit` fields are missing.
//!
//! # Before it happens
//!
//! Try it: stop Redis beside a running service, and pause it, which is worse: a server that is down refuses connections at
//! once, one that hangs says nothing. [`testing`](super::testing#outages) does it without a server.
