//! What happens to requests while the store fails.
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
//! use tollgate::{CircuitBreaker, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//!
//! // In your code: `let redis = RedisStore::connect("redis://127.0.0.1/").await?;`
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
//! | requests pass without limit | `.fail_open()` | the limit only prevents load, and the service can handle that load for an hour |
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
//! use tollgate::{CircuitBreaker, Quota, RateLimitLayer, Share, StoreExt};
//! use tollgate::extract::PeerIp;
//! use tollgate::{MemoryStore, Policy, PolicyExt};
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
//! No request waits longer than this for the store, in an outage or under load. Choose a few times
//! the slowest answer that you measure in normal operation, and much less than your callers wait. A
//! timeout does not undo a charge: [a late check may have been
//! counted](crate::failure#a-timeout-does-not-undo-a-charge), once.
//!
//! # The circuit breaker
//!
//! Without it, every request waits for the whole timeout while a store hangs. With it, the circuit
//! opens after 5 failures in a row, or after 50 failures among the last 100. Then requests are
//! decided at once, and a probe asks the store from time to time.
//!
//! Clones of a store share one circuit. A misconfigured store never opens it, because waiting does
//! not fix a password.
//!
//! # Callers that wait
//!
//! [`until_ready`](crate::Limiter::until_ready) and
//! [`wait_at_most`](crate::calls::CallLimitLayer::wait_at_most) also wait for a store that is
//! unavailable, if the failure policy refuses. Of each queue only the first asks, at most every
//! second in a long outage. [`Limiter::wait_for_store`](crate::Limiter::wait_for_store) switches
//! that off.
//!
//! # A share
//!
//! With a share of 1/N on N nodes, the nodes together admit the whole quota: once more, in addition
//! to what the store has already admitted. If the share of a policy is less than one unit, the
//! error appears when the layer is built, not in the outage:
//!
//! ```
//! use tollgate::{MemoryStore, Quota, RateLimitLayer, SetupError, Share, StoreExt};
//!
//! # let redis = MemoryStore::new();
//! let store = redis.fall_back_to(MemoryStore::new(), Share::new(1, 20));
//! let error = RateLimitLayer::per_ip(Quota::per_minute(10)).try_store(store).err();
//! assert!(matches!(error, Some(SetupError::Unsupported(policy, _)) if policy.name() == "default"));
//! ```
//!
//! # Alerts
//!
//! The log says when a store starts to fail and when it answers again. An **error** there, instead
//! of a warning, has to be fixed by an operator. [Events](crate::failure#events) lists the events
//! for your metrics: which store decided, and how the store failed. Under `fail_open` callers see
//! only that the `RateLimit` fields are missing.
//!
//! # Try it in advance
//!
//! Stop Redis while your service runs. Then pause Redis, which is worse: a stopped server refuses
//! connections at once, but a paused one does not answer. [`testing`](super::testing#outages) does
//! both without a server.
