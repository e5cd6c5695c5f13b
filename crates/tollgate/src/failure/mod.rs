//! What happens when a store fails: wrappers around any [`Store`], each of them a store.
//!
//! [`MemoryStore`](crate::MemoryStore) never fails. A store over a network can be slow, unreachable
//! or misconfigured. A layer or a limiter accepts it only with a failure policy: the compiler asks.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, FailureExt, MemoryStore, Quota, RateLimitLayer, Share};
//!
//! # let shared_store = MemoryStore::new();
//! // On each of three nodes.
//! let store = shared_store
//!     .timeout(Duration::from_millis(50))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! Each wrapper acts on the store before it. Put the timeout first, then the circuit breaker, then
//! the failure policy:
//!
//! | wrapper | what it does | choose it |
//! |---|---|---|
//! | [`timeout`](FailureExt::timeout) | turns a late answer into a failure | always: without it, requests wait as long as the store does |
//! | [`circuit_breaker`](FailureExt::circuit_breaker) | stops asking a store that keeps failing: requests no longer wait for the timeout each | almost always |
//! | [`fail_open`](FailureExt::fail_open) | lets requests pass while the store fails, unlimited and without `RateLimit` fields | if serving matters more than limiting. **A caller that can make the store late switches every limit off** |
//! | [`fail_closed`](FailureExt::fail_closed) | refuses requests while the store fails: 503 with `Retry-After` | if a request without a limit is worse than none: log-ins, text messages, what costs money |
//! | [`fall_back_to`](FailureExt::fall_back_to) | lets another store, usually in memory, grant a share of every quota | by default: the limit stays, and an outage grants at most the quota once more |
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
//! use tollgate::extract::header;
//! use tollgate::{FailureExt, Key, Limiter, Policy, PolicyExt, Quota, Reason};
//! # use std::{error, fmt, future::{Pending, pending}};
//! # use tollgate::{Check, ErrorKind, Grant, Reply, Store, StoreError, Times, Verdict};
//! # #[derive(Debug)] struct Never;
//! # impl fmt::Display for Never { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("never") } }
//! # impl error::Error for Never {}
//! # impl StoreError for Never { fn kind(&self) -> ErrorKind { ErrorKind::Unavailable } }
//! # #[derive(Clone)] struct Silent;
//! # impl Store for Silent {
//! #     type Error = Never;
//! #     type Acquire = Pending<Result<Verdict, Never>>;
//! #     type Done = Pending<Result<(), Never>>;
//! #     fn acquire(&self, _: &[Check<'_>], _: Times) -> Reply<Result<Verdict, Never>, Self::Acquire> { Reply::Later(pending()) }
//! #     fn refund(&self, _: &[Grant<'_>]) -> Reply<Result<(), Never>, Self::Done> { Reply::Later(pending()) }
//! #     fn reset(&self, _: &Key, _: &[&Policy]) -> Reply<Result<(), Never>, Self::Done> { Reply::Later(pending()) }
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // `Silent` is a store that never answers.
//! let silent = Silent.timeout(Duration::from_millis(50));
//! let (ada, daily) = (Key::from("ada"), || Policy::new("daily", Quota::per_day(100)).by(header("x-user")));
//!
//! let open = Limiter::new([daily()]).store(silent.clone().fail_open());
//! let permit = open.check_key(&ada, 1).await.expect("open");
//! assert!(permit.report().statuses().is_empty(), "what is left is unknown");
//!
//! let closed = Limiter::new([daily()]).store(silent.fail_closed());
//! let denial = closed.check_key(&ada, 1).await.unwrap_err();
//! assert_eq!(denial.reason(), Reason::Unavailable);
//! assert_eq!(denial.retry_after_seconds(), Some(1));
//! # }
//! ```
//!
//! # A timeout does not undo a charge
//! A late store may have decided, or may still decide. A request that [`OnFailure`] lets pass or
//! refuses after a timeout may therefore be charged: once at most, and the charge stays. A request
//! that [`FallBack`] decides may be charged in both stores.
//!
//! # During an outage
//! - Under `fail_open` and `fail_closed`, the [`Report`](crate::Report) of a
//!   [look](crate::Limiter::look), or of a request that passed, has no statuses. Under a fallback
//!   it shows the share: [`Report::share`](crate::Report::share).
//! - What the store granted cannot be [refunded](crate::Limiter::refund) to it and stays charged. A
//!   [reset](crate::Limiter::reset) does not reach the store. What a fallback granted is refunded
//!   to the fallback, even if the store is back. What passed open has no refund: no charge is
//!   known.
//! - A request that costs nothing passes, as always.
//!
//! # Events
//! [`OnFailure::observe`] and [`FallBack::observe`] report what decided each request and how the
//! store failed. [`Breaking::observe`] reports changes of the circuit, and [`Breaking::circuit`]
//! shows its state at any time. The chapter [watching](crate::guide::watching) has metrics of both.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use tollgate::failure::Event;
//! use tollgate::{FailureExt, MemoryStore, Source};
//!
//! let undecided = Arc::new(AtomicU64::new(0));
//! let count = undecided.clone();
//! let store = MemoryStore::new().fail_open().observe(move |event| {
//!     if event == Event::Decided(Source::Policy) {
//!         count.fetch_add(1, Ordering::Relaxed);
//!     }
//! });
//! ```
//!
//! # What the log says
//! One line when the store begins to fail: a warning, or an error if waiting will not help
//! ([`StoreError::is_transient`](crate::StoreError::is_transient)). One line when it answers again.
//! A store that fails now and then is logged at most once in 10 seconds. Clones count as one store.
//!
//! A circuit breaker logs a warning when it opens, and a line when it closes, each time. If a part
//! of the store is lost and probes reach the other parts, that is every few seconds. The level
//! `debug` adds a line for each failure, with its kind, and for each change of a circuit. The level
//! `trace` adds one for each decision, with its source. No line contains a key.

// From top to bottom; imports run down this list only: on_failure, fall_back, breaker, timeout,
// done, outage, log, event, circuit.
mod breaker;
mod circuit;
mod done;
mod event;
mod fall_back;
#[cfg(feature = "tracing")]
mod log;
mod on_failure;
mod outage;
mod timeout;

use std::convert::Infallible;
use std::time::Duration;

use tollgate_core::{Share, Store};

use crate::or_panic::or_panic;

pub use breaker::{BreakerError, Breaking, CircuitView, Watched};
pub use circuit::{CircuitBreaker, CircuitBreakerError, CircuitState};
pub use done::Done;
pub use event::Event;
pub use fall_back::{FallBack, FallingBack};
pub use on_failure::{Decided, OnFailure};
pub use timeout::{Timed, Timeout, TimeoutError, ZeroTimeout};
pub use tollgate_core::Source;

/// Wrappers for a [`Store`] that can fail: see the [module docs](self).
///
/// ```
/// use std::time::Duration;
/// use tollgate::extract::PeerIp;
/// use tollgate::{FailureExt, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Share};
///
/// // A memory store never fails. It stands for a store over a network here.
/// let store = MemoryStore::new().timeout(Duration::from_millis(50));
///
/// let a_third = store.clone().fall_back_to(MemoryStore::new(), Share::new(1, 3));
/// let pages = RateLimitLayer::per_ip(Quota::per_minute(100)).store(a_third);
/// let log_ins = RateLimitLayer::new([Policy::new("log-ins", Quota::per_hour(20)).by(PeerIp::new())])
///     .store(store.fail_closed());
/// ```
pub trait FailureExt: Store {
    /// Fails with [`TimeoutError::Elapsed`] if an answer of this store takes longer than `limit`,
    /// counted from the call.
    ///
    /// An answer that is available at once needs no timer. Nor does a store that
    /// [ends waits by itself](Store::end_waits_after), such as `RedisStore`: it fails with an error
    /// of its own, of the kind [`Timeout`](crate::ErrorKind::Timeout).
    ///
    /// # Panics
    /// If `limit` is zero. Also outside of a tokio runtime with a timer, where the store is asked
    /// or its answer awaited, if the answer is not available at once.
    #[track_caller]
    fn timeout(self, limit: Duration) -> Timeout<Self> {
        or_panic(self.try_timeout(limit))
    }

    /// [`FailureExt::timeout`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`ZeroTimeout`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::failure::ZeroTimeout;
    /// use tollgate::{FailureExt, MemoryStore};
    ///
    /// let from_a_config_file = Duration::ZERO;
    /// assert_eq!(MemoryStore::new().try_timeout(from_a_config_file).unwrap_err(), ZeroTimeout);
    /// ```
    fn try_timeout(self, limit: Duration) -> Result<Timeout<Self>, ZeroTimeout> {
        Timeout::try_new(self, limit)
    }

    /// Stops asking this store while it keeps failing. Requests then fail at once with
    /// [`BreakerError::Open`], except for a probe from time to time, which shows whether the store
    /// is back. Only [transient](crate::StoreError::is_transient) errors count.
    ///
    /// Put it after a [`timeout`](FailureExt::timeout), without which a silent store never fails,
    /// and before the failure policy. Callers should wait longer than the timeout: a request whose
    /// caller leaves earlier does not count as failed. Keep the timeout no longer than the first
    /// wait: otherwise a probe is replaced before it fails.
    fn circuit_breaker(self, settings: CircuitBreaker) -> Breaking<Self> {
        Breaking::new(self, settings)
    }

    /// Lets `fallback`, such as a [`MemoryStore`](crate::MemoryStore), decide while this store
    /// fails, by `share` of every quota. The nodes of a fleet do not know of each other then. With
    /// 1/N on each of N nodes, together they admit no more than the quota.
    ///
    /// A layer or a limiter refuses a policy whose share is less than one unit. Fields and reports
    /// show the share.
    ///
    /// What the fallback admits is not charged to this store afterwards. The fallback does not know
    /// what this store admitted before: an outage grants at most one share more.
    ///
    /// Do not nest fallbacks: fields then show the share of the outer one, and refunds go to its
    /// store.
    fn fall_back_to<F>(self, fallback: F, share: Share) -> FallBack<Self, F>
    where
        F: Store<Error = Infallible>,
    {
        FallBack::new(self, fallback, share)
    }

    /// Lets requests pass while this store fails, without limit. They are not delayed, and their
    /// responses carry no fields.
    ///
    /// **Callers can switch limits off with it.** A decision that comes too late is a failure, and
    /// load makes decisions late. A caller that produces such load passes, and so do all others.
    /// Prefer [`fall_back_to`](FailureExt::fall_back_to), under which a limit stays.
    fn fail_open(self) -> OnFailure<Self> {
        OnFailure::open(self)
    }

    /// Refuses requests while this store fails, with
    /// [`Reason::Unavailable`](crate::Reason::Unavailable): a layer answers 503 with a problem
    /// document and `Retry-After`. Requests that cost nothing pass.
    fn fail_closed(self) -> OnFailure<Self> {
        OnFailure::closed(self)
    }
}

impl<S: Store> FailureExt for S {}
