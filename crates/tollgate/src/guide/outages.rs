//! What happens to requests while the store is away.
//!
//! A [`MemoryStore`](crate::MemoryStore) always answers, and this chapter is not about it. A store
//! over a network can be slow or down. A layer accepts such a store only with a failure policy:
//! without one, a compile error says what to write. [`failure`](crate::failure) has the details:
//! each fault under each policy, what callers see, and what the limit then means.
//!
//! # Which policy
//!
//! **Keep a limit: fall back to a share.** This is the form to start with:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, FailureExt, MemoryStore, Quota, RateLimitLayer, Share};
//!
//! // Stands for `RedisStore::connect("redis://127.0.0.1/").await?`
//! # let redis = MemoryStore::new();
//! let nodes = 3;
//! let store = redis
//!     .timeout(Duration::from_millis(50))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .fall_back_to(MemoryStore::new(), Share::new(1, nodes));
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! | while the store fails | write last | choose it if |
//! |---|---|---|
//! | each node grants its share of every quota | `.fall_back_to(MemoryStore::new(), Share::new(1, nodes))` | you know the number of nodes: the default choice |
//! | requests are refused with 503 | `.fail_closed()` | a request without a limit costs money, messages or passwords |
//! | requests pass without limit | `.fail_open()` | load is all that the limit prevents, and you can bear it for an hour |
//!
//! **`fail_open` is a switch that callers can press.** A caller that can make the store late lifts
//! every limit: late decisions pass, and once the circuit opens, all requests do. It takes no
//! outage, only load on Redis, and an attacker can produce that. Never use it for log-ins. If you
//! use it, add an outer layer with a generous rule by address in memory.
//!
//! One store can serve several layers, each with its own failure policy. Clones share connections
//! and state, so the policies of the layers need different names:
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::{get, post}};
//! use tollgate::{CircuitBreaker, FailureExt, Quota, RateLimitLayer, Share};
//! use tollgate::{MemoryStore, Policy, PolicyExt, extract::PeerIp};
//!
//! # let redis = MemoryStore::new();
//! let store = redis.timeout(Duration::from_millis(50)).circuit_breaker(CircuitBreaker::default());
//!
//! let pages = RateLimitLayer::new([Policy::new("pages", Quota::per_minute(100)).by(PeerIp::new())])
//!     .store(store.clone().fall_back_to(MemoryStore::new(), Share::new(1, 3)));
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
