//! What happens when a store fails: wrappers around any [`Store`](crate::store::Store), each of
//! them a store.
//!
//! [`MemoryStore`](crate::MemoryStore) never fails. A store over a network can be slow, unreachable
//! or misconfigured. A layer or a limiter accepts it only with a failure policy: the compiler asks.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//!
//! # let shared_store = MemoryStore::new();
//! // On each of three nodes.
//! let store = shared_store
//!     .timeout(Duration::from_millis(250))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! Each wrapper acts on the store before it, so put the failure policy last. The timeout and the
//! circuit breaker are one wrapper, [`Guarded`], and stand in any order:
//!
//! | wrapper | what it does | choose it |
//! |---|---|---|
//! | [`timeout`](crate::StoreExt::timeout) | turns a late answer into a failure | always: without it, requests wait as long as the store does |
//! | [`circuit_breaker`](crate::StoreExt::circuit_breaker) | stops asking a store that keeps failing: requests no longer wait for the timeout each | almost always |
//! | [`fail_open`](crate::StoreExt::fail_open) | lets requests pass while the store fails, unlimited and without `RateLimit` fields | if serving matters more than limiting. **A caller that can make the store late switches every limit off** |
//! | [`fail_closed`](crate::StoreExt::fail_closed) | refuses requests while the store fails: 503 with `Retry-After` | if a request without a limit is worse than none: log-ins, text messages, what costs money |
//! | [`fall_back_to`](crate::StoreExt::fall_back_to) | lets another store, usually in memory, grant a share of every quota | by default: the limit stays, and an outage grants at most the quota once more |
//!
//! # What callers see
//!
//! With a timeout of D:
//!
//! | the store | without a circuit breaker | with one |
//! |---|---|---|
//! | refuses connections: it is down or starting | the policy decides at once | the same |
//! | is silent or slower than D: paused, overloaded, cut off | the policy decides after D, for each request | after D while the circuit is closed: under load until Redis was silent for 2 × D, else for the first 5 failures. Then the circuit is open and the policy decides at once; a probe asks the store from time to time |
//! | loses an answer after the charge | the policy decides after D, or at once if the connection broke: charged once | the same: requests that shared the call are one failure |
//! | fails over: its connections break, or it is read-only | the policy decides until the new master is found: usually half a second and one attempt to connect after it is up | until the next probe after that |
//! | lost a part: a Cluster without one of its masters | the policy decides the keys of that part, the store all others | until 5 fail in a row, which soon happens. Then the policy decides all, except between a probe that reaches another part and the next 5 in a row. A circuit that [tolerates a lost part](crate::CircuitBreaker::failures_of) changes nothing |
//! | is full and evicts nothing | the policy decides at once | the same |
//! | is misconfigured: a changed password, a missing permission | the policy decides at once, and the log has an error | the same: such an error never opens the circuit |
//!
//! The limit during the outage:
//!
//! | policy | a request gets | the fleet admits | when the store is back |
//! |---|---|---|---|
//! | open | its response, without fields | everything | it does not know what passed |
//! | closed | 503 with `Retry-After`, unless it costs nothing | nothing | its state is unchanged |
//! | fallback, 1/N on each of N nodes | what a share of the quota allows, 429 beyond it, and 503 for a cost that fits the quota but no share | at most the quota once more, in addition to what the store admitted before | it does not know what the nodes admitted |
//! | fallback, the whole on each of N nodes | what the whole quota allows | at most N times the quota | the same |
//!
//! What a fallback admits is not charged to the store afterwards. That would need a record of every
//! key of the outage, and another round trip for each when the store has just recovered. A fallback
//! keeps its counts between outages, so that a flapping store does not grant a new share each time.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Key, Limiter, Policy, Quota, Reason, StoreExt};
//! # use std::{error, fmt, future::{Pending, pending}};
//! # use tollgate::store::{Check, End, ErrorKind, Grant, Reply, Store, StoreError, Times, Verdict};
//! # #[derive(Debug)] struct Never;
//! # impl fmt::Display for Never { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("never") } }
//! # impl error::Error for Never {}
//! # impl StoreError for Never { fn kind(&self) -> ErrorKind { ErrorKind::Unavailable } }
//! # #[derive(Clone)] struct Silent;
//! # impl Store for Silent {
//! #     type Error = Never;
//! #     type Acquire = Pending<Result<Verdict, Never>>;
//! #     fn acquire(&self, _: &[Check<'_>], _: Times) -> Reply<Result<Verdict, Never>, Self::Acquire> { Reply::Later(pending()) }
//! #     fn refund(&self, _: &[Grant<'_>]) -> impl End<(), Never> + use<> { pending() }
//! #     fn reset(&self, _: &Key, _: &[&Policy]) -> impl End<(), Never> + use<> { pending() }
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // `Silent` is a store that never answers.
//! let silent = Silent.timeout(Duration::from_millis(250));
//! let (ada, daily) = (Key::from("ada"), || Policy::new("daily", Quota::per_day(100)));
//!
//! let open = Limiter::new([daily()]).store(silent.clone().fail_open());
//! let permit = open.check(&ada, 1).await.expect("open");
//! assert!(permit.report().statuses().is_empty(), "what is left is unknown");
//!
//! let closed = Limiter::new([daily()]).store(silent.fail_closed());
//! let denial = closed.check(&ada, 1).await.unwrap_err();
//! assert_eq!(denial.reason(), Reason::Unavailable);
//! assert_eq!(denial.retry_after_seconds(), Some(1));
//! # }
//! ```
//!
//! # A timeout does not undo a charge
//! A late store may have decided, or may still decide. A request that passes or is refused after a
//! timeout, because the policy is open or closed, may therefore be charged: once at most, and the
//! charge stays. A request that a fallback decides may be charged in both stores.
//!
//! A set with a slot of [requests in flight](crate::Policy::in_flight) is the exception, if the
//! store has [`sent_claims`](crate::store::Store::sent_claims), as `RedisStore` has: what it grants
//! too late is given back at once, with the rates of the set. A request that passed open goes on
//! without the slot.
//!
//! # During an outage
//! - Under `fail_open` and `fail_closed`, the [`Report`](crate::Report) of a
//!   [look](crate::Limiter::look), or of a request that passed, has no statuses. Under a fallback
//!   it shows the share: [`Report::share`](crate::Report::share).
//! - What the store granted cannot be [refunded](crate::Permit::refund) to it and stays charged,
//!   and what was used beyond an estimate is forgiven: unless
//!   [corrections are kept](Answering::keep_corrections) until the store is back. A
//!   [reset](crate::Limiter::reset) does not reach the store. An open circuit refuses all of these
//!   until the next probe is due. What a fallback granted is refunded to the fallback, even if the
//!   store is back. What passed open has no refund: no charge is known.
//! - A request that costs nothing passes, as always.
//!
//! # Events
//! [`Answering::observe`] reports what decided each request and how the store failed.
//! [`CircuitBreaker::observe`](crate::CircuitBreaker::observe) reports changes of the circuit, and
//! [`Guarded::circuit`] shows its state at any time. The chapter
//! [watching](crate::guide::watching) has metrics of both.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use tollgate::failure::Event;
//! use tollgate::store::Source;
//! use tollgate::{MemoryStore, StoreExt};
//!
//! let undecided = Arc::new(AtomicU64::new(0));
//! let count = undecided.clone();
//! let store = MemoryStore::new().fail_open().observe(move |event| {
//!     if event == Event::Decided(Source::FailurePolicy) {
//!         count.fetch_add(1, Ordering::Relaxed);
//!     }
//! });
//! ```
//!
//! # What the log says
//! One line when the store begins to fail: a warning, or an error if waiting will not help
//! ([`StoreError::is_transient`](crate::store::StoreError::is_transient)). One line when it answers
//! again. A store that fails now and then is logged at most once in 10 seconds. Clones count as one
//! store.
//!
//! A circuit breaker logs a warning when it opens, and a line when it closes, each time. If a part
//! of the store is lost and probes reach the other parts, that is every few seconds. The level
//! `debug` adds a line for each failure, with its kind, and for each change of a circuit. The level
//! `trace` adds one for each decision, with its source. No line contains a key.

mod answering;
mod by_share;
mod circuit;
mod circuit_state;
mod event;
mod fixed;
mod guard;
mod guard_error;
mod guarding;
mod kept;
#[cfg(feature = "tracing")]
mod log;
mod outage;
#[cfg(test)]
mod schedules;
mod settings;
mod shared_circuit;
mod substitute;

// The circuit's, which its schedules replace by loom's.
use std::sync;

pub use answering::Answering;
pub use by_share::ByShare;
pub use circuit_state::CircuitState;
pub use event::Event;
pub use fixed::Fixed;
pub use guard::Guarded;
pub use guard_error::GuardError;
pub use kept::CorrectionCounts;
pub use settings::CircuitBreaker;
pub use shared_circuit::CircuitView;
