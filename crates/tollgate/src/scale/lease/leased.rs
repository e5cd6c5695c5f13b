//! The store that spends leases.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Check, Grant, Key, Policy, PolicyError, Reply, Source, Status, Store, Times, UsageError,
    Verdict, Wait,
};

use super::super::forgetting::{Forgetting, forgetting};
use super::books::Books;
use super::settings::Lease;
use super::stats::{HeldLease, LeaseStats};

/// A [`Store`] that answers most checks of busy keys from leases: see
/// [`ScaleExt::leased`](crate::ScaleExt::leased).
#[derive(Clone, Debug)]
pub struct Leased<S> {
    store: S,
    /// For fetches and refunds, which no request waits for: they outlive the limits of requests.
    pub(super) patient: S,
    pub(super) books: Arc<Books>,
}

/// A lease keeps a copy of its key, which is made under a lock that other keys need. The store
/// decides all requests of longer keys. In bytes.
const LONGEST_KEY: usize = 4_096;

/// Checks of keys in demand, for which a lease is worth its fetch: place in the set, policy, key.
type Wanted = SmallVec<[(usize, Policy, Key); 1]>;

/// A check that is looked at, with the cost of all checks of its set with this policy and key.
type Looked = (Policy, Key, u64);

/// What follows the answer of the store.
enum Then<S> {
    Fetch(Leased<S>, Wanted),
    AddHeld(Leased<S>, Vec<Looked>),
}

impl<S: Store> Leased<S> {
    pub(crate) fn new(store: S, lease: Lease) -> Leased<S> {
        Leased { patient: store.patient(), store, books: Arc::new(Books::new(lease)) }
    }

    /// Returns the store inside.
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Returns what the leases of this process have saved, and what they hold now.
    ///
    /// It visits all keys: call it every few seconds, not for each request.
    pub fn stats(&self) -> LeaseStats {
        self.books.stats()
    }

    /// Returns what this process holds of a key. `None` if it holds nothing.
    pub fn held(&self, policy: &Policy, key: &Key) -> Option<HeldLease> {
        self.books.held(policy, key)
    }

    /// Spends leases for a whole set, or for none of it.
    #[inline]
    fn spend(&self, set: &[Check<'_>], wanted: &mut Wanted) -> Option<Verdict> {
        if let [check] = set
            && let Some(spent) = self.books.spend(check)
        {
            if spent.refetch {
                self.fetch(check.policy, check.key, None);
            }
            return Some(Verdict::of_one(1, Duration::ZERO, spent.status).from_source(Source::Lease));
        }
        self.spend_all_or_count(set, wanted)
    }

    /// Spends leases for a whole set. If they do not suffice, its checks count as demand, and those
    /// for which a lease is worth its fetch are added to `wanted`.
    #[inline(never)]
    fn spend_all_or_count(&self, set: &[Check<'_>], wanted: &mut Wanted) -> Option<Verdict> {
        let mut statuses = SmallVec::<[Status; 4]>::new();
        let mut spends = SmallVec::<[_; 4]>::new();
        for check in set {
            let Some(spent) = self.books.spend(check) else { break };
            statuses.push(spent.status);
            spends.push(spent);
        }
        if spends.len() < set.len() {
            for (check, spent) in set.iter().zip(&spends) {
                self.books.unspend(check, spent);
            }
            for (at, check) in set.iter().enumerate() {
                if self.books.ask(check) {
                    wanted.push((at, check.policy.clone(), check.key.clone()));
                }
            }
            return None;
        }
        for (check, spent) in set.iter().zip(&spends) {
            if spent.refetch {
                self.fetch(check.policy, check.key, None);
            }
        }
        Some(Verdict::new(1, Duration::ZERO, statuses).from_source(Source::Lease))
    }

    /// The checks of a look. Empty if none of their keys is leased.
    fn looked(&self, set: &[Check<'_>]) -> Vec<Looked> {
        if !set.iter().any(|check| self.books.is_leased(check)) {
            return Vec::new();
        }
        let looked = |check: &Check<'_>| {
            let same = |other: &&Check<'_>| {
                other.policy.scope_hash() == check.policy.scope_hash() && other.key == check.key
            };
            let cost = set.iter().filter(same).map(|other| u64::from(other.cost)).sum();
            (check.policy.clone(), check.key.clone(), cost)
        };
        set.iter().map(looked).collect()
    }

    /// Adds what is held of each key to a look of the store, which counts it as used.
    fn with_held(&self, set: &[Looked], verdict: Verdict) -> Verdict {
        if verdict.share().is_some() || verdict.each().len() != set.len() {
            return verdict;
        }
        let held: Vec<u32> = set.iter().map(|(policy, key, _)| self.books.spendable(policy, key)).collect();
        let is_held = set.iter().zip(&held).all(|((_, _, cost), held)| *cost <= u64::from(*held));
        let each = set.iter().zip(&held).zip(verdict.each()).map(|(((policy, ..), held), status)| {
            let remaining = status.remaining().saturating_add(*held).min(policy.capacity());
            let wait = if is_held { Wait::None } else { status.wait() };
            Status::new(remaining, wait, status.reset_after(), status.stamp())
        });
        Verdict::new(verdict.times(), verdict.delay(), each).from_source(verdict.source())
    }

    /// Starts the fetches that a verdict of the store allows. A key that is denied has no units to
    /// fetch ahead.
    fn fetch_wanted(&self, wanted: &Wanted, verdict: &Verdict) {
        if verdict.share().is_some() || !verdict.is_granted() {
            return;
        }
        for (at, policy, key) in wanted {
            if let Some(status) = verdict.each().get(*at) {
                self.fetch(policy, key, Some(status.remaining()));
            }
        }
    }
}

fn followed_by<S: Store>(then: Option<Then<S>>, verdict: Verdict) -> Verdict {
    match then {
        None => verdict,
        Some(Then::AddHeld(leased, looked)) => leased.with_held(&looked, verdict),
        Some(Then::Fetch(leased, wanted)) => {
            leased.fetch_wanted(&wanted, &verdict);
            verdict
        }
    }
}

/// Whether leases are for this set: a leaky bucket has to delay each request, the store has to see
/// each use that it tracks, and a long key is not kept.
fn is_leasable(set: &[Check<'_>], times: Times) -> bool {
    let fits = |Check { policy, key, cost }: &Check<'_>| {
        let is_leaky = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
        *cost > 0 && !is_leaky && !policy.tracks_usage() && key.as_encoded().len() <= LONGEST_KEY
    };
    times == Times::ONCE && !set.is_empty() && set.iter().all(fits)
}

impl<S: Store> Store for Leased<S> {
    type Error = S::Error;
    type Acquire = Fetching<S>;
    type Done = Forgetting<S::Done>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Fetching<S>> {
        let mut wanted = Wanted::new();
        if is_leasable(set, times)
            && let Some(verdict) = self.spend(set, &mut wanted)
        {
            return Reply::Now(Ok(verdict));
        }
        self.return_overdue();
        let looked = if times == Times::LOOK { self.looked(set) } else { Vec::new() };
        let then = if !looked.is_empty() {
            Some(Then::AddHeld(self.clone(), looked))
        } else if !wanted.is_empty() {
            Some(Then::Fetch(self.clone(), wanted))
        } else {
            None
        };
        match self.store.acquire(set, times) {
            Reply::Now(answer) => Reply::Now(answer.map(|verdict| followed_by(then, verdict))),
            Reply::Later(answer) => Reply::Later(Fetching { answer, then: then.map(Box::new) }),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), S::Error>, Self::Done> {
        forgetting(|| {}, || self.store.refund(grants))
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.store.end_waits_after(limit)
    }

    fn patient(&self) -> Leased<S> {
        Leased { store: self.patient.clone(), ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }

    async fn usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        self.store.usage(policy, key, interval).await
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), S::Error>, Self::Done> {
        let books = Arc::clone(&self.books);
        let of: Vec<(Policy, Key)> = policies.iter().map(|&policy| (policy.clone(), key.clone())).collect();
        let forget = move || of.iter().for_each(|(policy, key)| books.forget(policy, key));
        forgetting(forget, || self.store.reset(key, policies))
    }
}

/// The answer of the store, after which leases may be fetched.
#[pin_project]
pub struct Fetching<S: Store> {
    #[pin]
    answer: S::Acquire,
    /// Only for keys in demand, and for looks at keys that are held.
    then: Option<Box<Then<S>>>,
}

impl<S: Store> Future for Fetching<S> {
    type Output = Result<Verdict, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        let then = this.then.take().map(|then| *then);
        Poll::Ready(answer.map(|verdict| followed_by(then, verdict)))
    }
}

impl<S: Store> fmt::Debug for Fetching<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetching").finish_non_exhaustive()
    }
}
