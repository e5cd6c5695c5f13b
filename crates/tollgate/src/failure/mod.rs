//! What it means when a store fails: wrappers around any [`Store`], each a store itself.
//!
//! [`MemoryStore`](crate::MemoryStore) always answers. A store that is asked over a network can be slow, unreachable or
//! set up wrongly, and a layer or a limiter takes it only after somebody has chosen what happens then: the compiler asks.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, FailureExt, MemoryStore, Quota, RateLimitLayer, Share};
//!
//! # let store_of_the_fleet = MemoryStore::new();
//! // On each of three nodes.
//! let store = store_of_the_fleet
//!     .timeout(Duration::from_millis(50))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! ```
//!
//! Each acts on what stands before it. First what makes a failure of silence, then what leaves a failing store alone, last
//! the policy, after which there is an answer to everything:
//!
//! | written after the store | what it does | choose it |
//! |---|---|---|
//! | [`timeout`](FailureExt::timeout) | what takes longer is a failure | always: without it, requests wait for as long as the store does |
//! | [`circuit_breaker`](FailureExt::circuit_breaker) | a store that fails again and again is not asked for a while: requests no longer wait for the timeout each | nearly always |
//! | [`fail_open`](FailureExt::fail_open) | requests pass while the store fails: unlimited, and without `RateLimit` fields | where serving matters more than limiting. **A caller that can make the store late switches every limit off** |
//! | [`fail_closed`](FailureExt::fail_closed) | requests are refused while the store fails: 503 with `Retry-After` | where a request without a limit is worse than none: log-ins, text messages, what costs money |
//! | [`fall_back_to`](FailureExt::fall_back_to) | another store, in memory as a rule, grants a share of every quota | by default: a fleet goes on with a limit, and an outage grants at most the quota once more |
//!
//! # What callers see
//!
//! With a timeout of D, while what is in the first column lasts:
//!
//! | the store | without a circuit breaker | with one |
//! |---|---|---|
//! | refuses connections: it is down, or starting | decided by the policy at once | the same |
//! | is silent or slower than D: paused, overloaded, cut off | decided by the policy after D, each request | after D until it opens, which the first 5 requests to fail do, often of one moment; then at once, but for a probe now and then |
//! | loses an answer after it has charged | decided by the policy after D, or at once where the connection broke: charged once | the same; where five or more requests shared the call, it opens until a probe finds the store well |
//! | fails over: its connections break, or it is read-only | decided by the policy until the new master is found: half a second and an attempt to connect after it is there, as a rule | until the next probe after that |
//! | has lost a part: a Cluster without one of its masters | the keys of that part by the policy, all others by the store | until 5 fail in a row, which they soon do; then all by the policy, but for the moments between a probe that finds another part and the next such row. A circuit that [bears a lost part](crate::CircuitBreaker::failures_of) leaves it as it is without one |
//! | is full, and evicts nothing | decided by the policy at once | the same |
//! | is set up wrongly: a password was changed, a permission is missing | decided by the policy at once, and an error in the log | the same: such an error never opens it |
//!
//! And what the limit means then:
//!
//! | policy | a request gets | the fleet admits | when the store is back |
//! |---|---|---|---|
//! | open | its response, without fields | anything | it knows nothing of what passed |
//! | closed | 503 with `Retry-After`, if it costs something | nothing | what it had is as it was |
//! | fallback, 1/N on each of N nodes | what a share of the quota has room for; 429 beyond it; 503 if it costs more than a share can ever grant, and the quota could | at most the quota once more, beside what the store had admitted before | it knows nothing of what the nodes admitted |
//! | fallback, the whole on each of N nodes | what the whole quota has room for | at most N times the quota | the same |
//!
//! That a fallback's admissions are not charged to the store afterwards is a choice: charging them would take a record of
//! every key of the outage, and a second trip for each of them when the store has just come up. A fallback keeps its own
//! counts from one outage to the next, so that a store which comes and goes does not hand out a share each time.
//!
//! # In code
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
//! // `Silent` is a store that takes every question and never answers.
//! let silent = Silent.timeout(Duration::from_millis(50));
//! let (ada, daily) = (Key::from("ada"), || Policy::new("daily", Quota::per_day(100)).by(header("x-user")));
//!
//! let open = Limiter::new([daily()]).store(silent.clone().fail_open());
//! let permit = open.check_key(&ada, 1).await.expect("open");
//! assert!(permit.report().statuses().is_empty(), "nobody knows what is left");
//!
//! let closed = Limiter::new([daily()]).store(silent.fail_closed());
//! let denial = closed.check_key(&ada, 1).await.unwrap_err();
//! assert_eq!(denial.reason(), Reason::Unavailable);
//! assert_eq!(denial.retry_after_seconds(), Some(1));
//! # }
//! ```
//!
//! # A timeout does not undo a charge
//! A store that is late may have decided, or decide yet: a request that [`FailOpen`] lets through after a timeout may have
//! been charged, and so may one that [`FailClosed`] refuses. It was charged once at most, and that charge stands. One that
//! [`FallBack`] decides may have been charged there and here.
//!
//! # During an outage
//! - A [look](crate::Limiter::look) tells nothing under [`FailOpen`] and [`FailClosed`]: its [`Report`](crate::Report) has no
//!   statuses. Nor has that of a request which passed. Under a fallback both tell of the share:
//!   [`Report::share`](crate::Report::share).
//! - What the store granted and should have been [refunded](crate::Limiter::refund) to it stays charged, and a
//!   [reset](crate::Limiter::reset) forgets nothing there. What a fallback granted is refunded to the fallback, also when
//!   the store is back. What passed open has nothing to be refunded, since no charge is known.
//! - A request that costs nothing passes, as always.
//!
//! # To watch
//! [`FailOpen::observe`], [`FailClosed::observe`] and [`FallBack::observe`] tell a closure who decided each request and how
//! the store failed; [`Breaking::observe`] tells it how the circuit stands, and [`Breaking::circuit`] shows that at any time.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use tollgate::failure::{Event, Source};
//! use tollgate::{FailureExt, MemoryStore};
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
//! That the store fails, when it begins to: a warning, or an error where waiting will not help
//! ([`StoreError::is_transient`](crate::StoreError::is_transient)). That it answers again, when it does. Not a line for
//! each request: a store that fails now and then is told of once in 10 seconds at most. Clones of a store are one store.
//!
//! A circuit breaker that opens is a warning, one that closes is told as well: each time, which is every few seconds as long as a
//! part of the store is gone and probes find the others. At the level `debug` there is a line for each
//! failure, with its kind, and for each step of a circuit; at `trace` one for each decision, with its source. There is no key in
//! any of them.

mod breaker;
mod circuit;
mod closed;
mod event;
mod fall_back;
mod guarded;
#[cfg(feature = "tracing")]
mod log;
mod open;
mod outage;
mod timeout;

use std::time::Duration;

use std::convert::Infallible;

use tollgate_core::{Share, Store};

pub use breaker::{BreakerError, Breaking, CircuitView, Watched};
pub use circuit::{CircuitBreaker, CircuitBreakerError, CircuitState};
pub use closed::FailClosed;
pub use event::{Event, Source};
pub use fall_back::{BothDone, FallBack, FallingBack};
pub use guarded::{Decided, Done};
pub use open::FailOpen;
pub use timeout::{Timed, Timeout, TimeoutError, ZeroTimeout};

/// What a [`Store`]'s failures mean: see the [module docs](self).
///
/// ```
/// use std::time::Duration;
/// use tollgate::extract::PeerIp;
/// use tollgate::{FailureExt, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Share};
///
/// // A store in memory needs none of this: it stands for one that does.
/// let store = MemoryStore::new().timeout(Duration::from_millis(50));
///
/// let a_third = store.clone().fall_back_to(MemoryStore::new(), Share::new(1, 3));
/// let pages = RateLimitLayer::per_ip(Quota::per_minute(100)).store(a_third);
/// let log_ins = RateLimitLayer::new([Policy::new("log-ins", Quota::per_hour(20)).by(PeerIp::new())])
///     .store(store.fail_closed());
/// ```
pub trait FailureExt: Store {
    /// Ends the wait for any answer of this store after `limit`, counted from when it was asked, with
    /// [`TimeoutError::Elapsed`]. Answers at hand pass by without a timer; and so do those of a store that
    /// [ends waits by itself](Store::end_waits_after), as that in Redis does: it then says so with an error of its own, of the
    /// kind [`Timeout`](crate::ErrorKind::Timeout).
    ///
    /// # Panics
    /// If `limit` is zero. And, if an answer has to be awaited, where the store is asked, or the answer awaited, outside of a
    /// tokio runtime that has a timer.
    fn timeout(self, limit: Duration) -> Timeout<Self> {
        self.try_timeout(limit).unwrap_or_else(|error| panic!("{error}"))
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

    /// Leaves this store alone while it fails: then each request fails at once, with [`BreakerError::Open`], but for one now
    /// and then that finds out whether it is back. Only [transient](crate::StoreError::is_transient) errors count.
    ///
    /// It belongs after a [`timeout`](FailureExt::timeout), since a silent store never fails without one; and before the
    /// policy, which decides in the store's place. A request whose caller leaves before the timeout has not failed: callers should
    /// be more patient than that. And let the timeout be no longer than the first wait, or probes are given up before they have
    /// failed.
    fn circuit_breaker(self, settings: CircuitBreaker) -> Breaking<Self> {
        Breaking::new(self, settings)
    }

    /// Has `fallback`, such as a [`MemoryStore`](crate::MemoryStore), decide while this store fails: over `share` of every
    /// quota, since the nodes of a fleet cannot know of one another then. With 1/N on each of N nodes, together they admit no
    /// more than the quota; a policy of which that share is less than one unit is refused when a layer or a limiter is
    /// given the store. Fields and reports tell of the share.
    ///
    /// Fallbacks do not nest: around a fallback that can fall back itself, fields tell the outer one's share, and refunds go to the
    /// outer one's store.
    ///
    /// What the fallback admits is not charged to this store afterwards, nor does the fallback know what this store had
    /// admitted before: an outage grants one share more, at most.
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
    fn fail_open(self) -> FailOpen<Self> {
        FailOpen::new(self)
    }

    /// Refuses requests while this store fails, for [`Reason::Unavailable`](crate::Reason::Unavailable): a layer answers
    /// 503 with a problem document and `Retry-After`. Those that cost nothing pass.
    fn fail_closed(self) -> FailClosed<Self> {
        FailClosed::new(self)
    }
}

impl<S: Store> FailureExt for S {}
