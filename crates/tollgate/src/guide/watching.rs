//! How to see what the limiter does: metrics, span fields and closures of your own.
//!
//! All of it is optional. Without an observer a request costs nothing more.
//!
//! ```
//! # #[cfg(feature = "metrics")] {
//! use std::time::Duration;
//! use tollgate::metrics::{StoreMetrics, count_errors};
//! use tollgate::{CircuitBreaker, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//!
//! # let redis = MemoryStore::new();
//! // First, in your code: `PrometheusBuilder::new().install()?;`
//! // Then `let redis = RedisStore::connect("redis://127.0.0.1/").await?;`
//! let memory = MemoryStore::new();
//! let guarded = redis.timeout(Duration::from_millis(50)).circuit_breaker(CircuitBreaker::default());
//! let watched = StoreMetrics::new().memory(&memory).circuit(guarded.circuit());
//! let store = guarded.fall_back_to(memory, Share::new(1, 3)).observe(count_errors());
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store).metrics();
//!
//! // Every few seconds, in a task or before each scrape:
//! watched.update();
//! # }
//! ```
//!
//! # Metrics
//!
//! The feature `metrics` uses the facade [`metrics`](https://docs.rs/metrics). You choose the
//! exporter, such as `metrics-exporter-prometheus`. **Install it before you build the layer:**
//! handles are registered once, at construction, and without an exporter they count nothing.
//!
//! | name | labels | kind | is | comes from |
//! |---|---|---|---|---|
//! | `tollgate_decisions_total` | `policy`, `outcome`, `source` | counter | decisions, one for each rule of a request | `RateLimitLayer::metrics` |
//! | `tollgate_units_total` | `policy`, `outcome` | counter | units that requests asked for | the same |
//! | `tollgate_store_seconds` | | histogram | how long requests waited for the store, in seconds | the same |
//! | `tollgate_policy_limit` | `policy` | gauge | the limit, in units for each window | the same |
//! | `tollgate_store_errors_total` | `kind` | counter | requests, refunds and resets that the store failed, with those that a circuit breaker refused | `count_errors` |
//! | `tollgate_circuit_state` | | gauge | 0 closed, 1 half open, 2 open | `StoreMetrics::circuit` |
//! | `tollgate_memory_keys` | | gauge | keys in memory | `StoreMetrics::memory` |
//! | `tollgate_evictions_total` | | counter | keys that lost their place before their reset | the same |
//! | `tollgate_overflows_total` | | counter | decisions by the entry that keys without a place share | the same |
//! | `tollgate_lease_stranded` | | gauge | units that this process holds and has not spent | `StoreMetrics::leased` |
//!
//! No label holds a key, so callers cannot add series. A rule with tiers has one policy name, and
//! its limit is that of the policy itself. Two layers with a policy of the same name add to the
//! same counters. `tollgate_store_seconds` has no sample of an answer that was available at once.
//!
//! The `kind` of an error is that of [`ErrorKind::name`](crate::store::ErrorKind::name): `timeout`,
//! `unavailable`, `overloaded`, `circuit-open`, `moving` or `misconfigured`.
//!
//! # Outcomes
//!
//! Each rule of a layer counts each request once:
//!
//! | outcome | the rule | the request |
//! |---|---|---|
//! | `allowed` | charged it | passes |
//! | `delayed` | charged it, in the queue of a leaky bucket | passes after a wait |
//! | `denied` | refused it, or the failure policy did | is refused: 429, or 503 by a failure policy |
//! | `never-possible` | can never grant that cost | is refused: 422 |
//! | `no-key` | found no key | is refused: 400, or 500 without the peer's address |
//! | `not-charged` | had room, or was not asked; another rule refused | is refused by the other rule |
//! | `skipped` | does not apply: exempt, or without a key under [`MissingKey::Skip`](crate::MissingKey::Skip), or the layer is off | depends on the other rules |
//!
//! A request is refused if one of its rules says `denied`, `never-possible` or `no-key`. To find
//! the ratio of a rule, add `denied` and `never-possible`, and divide by these two plus `allowed`
//! and `delayed`. The others say nothing about the rule's own quota.
//!
//! The `source` says what decided. All rules of a request that applied have the same:
//!
//! | source | decided |
//! |---|---|
//! | `store` | the store, such as Redis or the memory of this process |
//! | `lease` | units that this process [fetched ahead](super::scale#leases) |
//! | `deny-cache` | a [denial that this process remembers](super::scale#the-cache-of-denials) |
//! | `fallback` | the [fallback](super::outages#a-share), by its share, while the store failed |
//! | `failure-policy` | [`fail_open`](crate::StoreExt::fail_open) or [`fail_closed`](crate::StoreExt::fail_closed), while the store failed |
//! | `rule` | a rule that did not apply or found no key; the store was not asked |
//!
//! # Spans
//!
//! With the feature `tracing` the layer records its decision in three fields, if the current span
//! declares them. It logs no event for a request.
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! use tracing::field::Empty;
//!
//! // For example in `TraceLayer::make_span_with`, outside of the limit.
//! let span = tracing::info_span!(
//!     "request",
//!     rate_limit.decision = Empty,
//!     rate_limit.policy = Empty,
//!     rate_limit.source = Empty,
//! );
//! # }
//! ```
//!
//! If a rule refused, the fields show that rule. Otherwise they show the first one that was
//! charged. Several layers in one span overwrite each other: the innermost remains.
//!
//! # Closures
//!
//! [`observe`](crate::RateLimitLayer::observe) calls a closure for each decision. It gets a
//! [`Decision`](crate::Decision) with policy, outcome, units, source, wait and latency:
//!
//! ```
//! use tollgate::{Outcome, Quota, RateLimitLayer};
//!
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).observe(|decision| {
//!     if let (Outcome::Denied, Some(wait)) = (decision.outcome(), decision.wait()) {
//!         println!("{} denies for {wait:?}", decision.policy().name());
//!     }
//! });
//! ```
//!
//! It runs within the request and must not block. It gets no key: to report keys, use the
//! [`Denial`](crate::Denial) in the response's extensions, in a layer that knows the caller.
//!
//! The example `playground` counts decisions in this way and shows them live, with the keys that
//! are denied most, at `/dashboard`. Its folder `dashboard` is made for copying.
//!
//! # What it costs
//!
//! `benches/layer.rs` compares an allowed request in memory with itself, on one thread:
//!
//! | header fields | a closure that does nothing | metrics |
//! |---|--:|--:|
//! | [`Fields::Ietf`](crate::Fields::Ietf), the default | 1.02 × | 1.05 × |
//! | [`Fields::None`](crate::Fields::None) | 1.05 × | 1.14 × |
//!
//! All threads add to the same counters. A clock is read only for requests that wait for a store.
