//! What stores are: for authors of stores and of wrappers, and the wrappers of this crate.
//!
//! A [`Store`] holds the state of every policy and key, and decides atomically. Its docs are the
//! contract, and the crate `tollgate-conformance` is its test suite. The guide has a chapter on
//! [writing a store](crate::guide::writing_a_store). Applications need [`StoreExt`] only.

mod answers_now;
mod never_fails;

use std::convert::Infallible;
use std::time::Duration;

pub use tollgate_core::{
    After, BlockStart, Boundaries, BoxStore, Check, End, ErrorKind, Grant, OwnedCheck, Renewal,
    RenewalReport, Reply, SentClaims, Settled, Source, Stamp, Status, Store, StoreError, Then, Times,
    UnansweredClaims, Unsent, Verdict, credit, renewals, settle,
};

use tollgate_core::Share;
#[cfg(feature = "top-keys")]
use tollgate_core::UsageLog;

pub use answers_now::AnswersNow;
pub(crate) use never_fails::ColdStore;
pub use never_fails::NeverFails;

use crate::errors::{SetupError, or_panic};
#[cfg(doc)]
use crate::failure::GuardError;
use crate::failure::{Answering, ByShare, CircuitBreaker, Fixed, Guarded};
use crate::scale::{DenyCache, Lease, Leases};
#[cfg(feature = "top-keys")]
use crate::usage::top_keys::{Recorder, UsageCounter};

/// The wrappers of a [`Store`]. Each is a store around this one.
///
/// Order matters: the timeout and the circuit breaker, leases, the cache of denials, the failure
/// policy, and last the counter of usage. The modules [`failure`](crate::failure) and
/// [`scale`](crate::scale) say why.
///
/// ```
/// use std::time::Duration;
/// use tollgate::extract::PeerIp;
/// use tollgate::{MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Share, StoreExt};
///
/// // A memory store never fails. It stands for a store over a network here.
/// let store = MemoryStore::new().timeout(Duration::from_millis(250));
///
/// let a_third = store.clone().fall_back_to(MemoryStore::new(), Share::new(1, 3));
/// let pages = RateLimitLayer::per_ip(Quota::per_minute(100)).store(a_third);
/// let log_ins = RateLimitLayer::new([Policy::new("log-ins", Quota::per_hour(20)).by(PeerIp::new())])
///     .store(store.fail_closed());
/// ```
pub trait StoreExt: Store {
    /// Fails with [`GuardError::Elapsed`] if an answer of this store takes longer than `limit`,
    /// counted from the call. The shortest of several timeouts holds.
    ///
    /// An answer that is available at once needs no timer. Nor does a store that
    /// [ends waits by itself](Store::with_deadline), such as `RedisStore`: it fails with an error
    /// of its own, of the kind [`Timeout`](ErrorKind::Timeout).
    ///
    /// # Panics
    /// If `limit` is zero. Also where an answer that is not available at once is awaited outside of
    /// a tokio runtime with a timer, if the store does not end waits by itself.
    #[track_caller]
    fn timeout(self, limit: Duration) -> Guarded<Self> {
        or_panic(self.try_timeout(limit))
    }

    /// [`StoreExt::timeout`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::ZeroTimeout`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, SetupError, StoreExt};
    ///
    /// let from_a_config_file = Duration::ZERO;
    /// assert_eq!(MemoryStore::new().try_timeout(from_a_config_file).unwrap_err(), SetupError::ZeroTimeout);
    /// ```
    fn try_timeout(self, limit: Duration) -> Result<Guarded<Self>, SetupError> {
        Guarded::new(self).try_timeout(limit)
    }

    /// Stops asking this store while it keeps failing. Requests then fail at once with
    /// [`GuardError::Open`], except for a probe from time to time, which shows whether the store
    /// is back. Only [transient](StoreError::is_transient) errors count.
    ///
    /// Set a [`timeout`](StoreExt::timeout) too, before or after it: otherwise a silent store never
    /// fails. Put both before the failure policy. A second circuit breaker replaces the first.
    ///
    /// Callers should wait longer than the timeout: a request whose caller leaves earlier does not
    /// count as failed. Keep the timeout no longer than the first wait: otherwise a probe is
    /// replaced before it fails.
    fn circuit_breaker(self, settings: CircuitBreaker) -> Guarded<Self> {
        Guarded::new(self).circuit_breaker(settings)
    }

    /// Lets `fallback`, such as a [`MemoryStore`](crate::MemoryStore), decide while this store
    /// fails, by `share` of every quota. The nodes of a fleet do not know of each other then. With
    /// 1/N on each of N nodes, together they admit no more than the quota.
    ///
    /// A policy whose share is less than one unit refuses requests meanwhile, unless
    /// [`at_least_one`](Answering::at_least_one) is called too. Fields and reports show the share.
    ///
    /// What the fallback admits is not charged to this store afterwards. The fallback does not know
    /// what this store admitted before: an outage grants at most one share more.
    ///
    /// Do not nest fallbacks: fields then show the share of the outer one, and refunds go to its
    /// store.
    fn fall_back_to<F>(self, fallback: F, share: Share) -> Answering<Self, ByShare<F>>
    where
        F: Store<Error = Infallible>,
    {
        Answering::by_share(self, fallback, share)
    }

    /// Lets requests pass while this store fails, without limit. They are not delayed, and their
    /// responses carry no fields.
    ///
    /// **Callers can switch limits off with it.** A decision that comes too late is a failure, and
    /// load makes decisions late. A caller that produces such load passes, and so do all others.
    /// Prefer [`fall_back_to`](StoreExt::fall_back_to), under which a limit stays.
    fn fail_open(self) -> Answering<Self, Fixed> {
        Answering::open(self)
    }

    /// Refuses requests while this store fails, with
    /// [`Reason::Unavailable`](crate::Reason::Unavailable): a layer answers 503 with a problem
    /// document and `Retry-After`. Requests that cost nothing pass.
    fn fail_closed(self) -> Answering<Self, Fixed> {
        Answering::closed(self)
    }

    /// Decides requests of busy keys by units that this process fetched ahead of demand.
    ///
    /// See [the bounds of a lease](crate::scale#the-bounds-of-a-lease). Sets with a policy of
    /// [requests in flight](crate::Policy::in_flight) are not leased.
    fn leased(self, lease: Lease) -> Leases<Self> {
        Leases::new(self, lease)
    }

    /// Answers denials from memory until their wait is over, for up to `capacity` policies of keys.
    ///
    /// It denies only what the store would deny too: the same policy, quota and key, for at least
    /// the denied cost. The store confirms a denial each second by one request. Until it answers,
    /// another request asks every 100 ms. After a second without an answer, all requests ask.
    ///
    /// A refund, a reset or a raise by *another* process is therefore seen a second and a round
    /// trip later; by this process, at once. What [leases](StoreExt::leased) give back counts as
    /// another's.
    ///
    /// `retry_after` is exact for the smallest cost that was denied. For a larger cost it is a
    /// lower bound. `remaining` is up to a second old. A denial for want of a [slot](crate::Slot)
    /// is not remembered. Of several rules, one that is known to deny is enough: a rule of which
    /// nothing is remembered then shows nothing left and no wait. Looks are answered by the store.
    fn deny_cache(self, capacity: usize) -> DenyCache<Self> {
        DenyCache::new(self, capacity)
    }

    /// Counts the decisions of this store by key and by policy: see
    /// [`top_keys`](crate::usage::top_keys).
    ///
    /// Put it last, so that it also counts what a cache, a lease or a failure policy decides.
    #[cfg(feature = "top-keys")]
    #[cfg_attr(docsrs, doc(cfg(feature = "top-keys")))]
    fn count_usage<L: UsageLog>(self, recorder: &Recorder<L>) -> UsageCounter<Self> {
        UsageCounter::new(self, recorder)
    }

    /// Erases the type, for a program that chooses its store at run time. Answers that are
    /// available stay so; each future costs one allocation.
    fn boxed(self) -> BoxStore<Self::Error> {
        BoxStore::new(self)
    }
}

impl<S: Store> StoreExt for S {}
