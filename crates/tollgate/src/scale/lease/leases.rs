//! The store that spends leases.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::timeout_at;
use tollgate_core::{
    After, Algorithm, BlockStart, Check, End, Grant, Key, Policy, PolicyError, RenewalReport, Reply,
    SentClaims, Settled, Share, Source, Status, Store, Then, Times, Unsent, Verdict, Wait,
};

use super::account::Spent;
use super::books::Books;
use super::settings::Lease;
use super::stats::{HeldLease, LeaseStats};
use crate::time::ending::{EndPhase, Home};
use crate::time::timer_after;

/// A [`Store`] that answers most checks of busy keys from leases: see
/// [`StoreExt::leased`](crate::StoreExt::leased).
#[derive(Clone, Debug)]
pub struct Leases<S> {
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

/// What follows the answer of the store: nothing, unless keys are in demand or held.
#[derive(Debug)]
pub struct FollowUp<S>(Option<Box<Step<S>>>);

#[derive(Debug)]
enum Step<S> {
    Fetch(Leases<S>, Wanted),
    AddHeld(Leases<S>, Vec<Looked>),
}

/// Drops what this process holds of a key.
struct ForgetLeases {
    books: Arc<Books>,
    policies: Vec<Policy>,
    key: Key,
}

impl ForgetLeases {
    async fn after<F: Future>(self, change: F) -> F::Output {
        let answer = change.await;
        self.policies.iter().for_each(|policy| self.books.forget(policy, &self.key));
        answer
    }
}

impl<S: Store> Leases<S> {
    pub(crate) fn new(store: S, lease: Lease) -> Leases<S> {
        Leases { patient: store.with_deadline(None), store, books: Arc::new(Books::new(lease)) }
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

    /// Spends leases for a whole set, or for none of it. If they do not suffice, its checks count
    /// as demand, and those for which a lease is worth its fetch are returned.
    #[inline]
    fn spend_or_ask(&self, set: &[Check<'_>]) -> Result<Verdict, Wanted> {
        let [check] = set else { return self.spend_all(set).ok_or_else(|| self.ask_all(set)) };
        match self.books.spend_or_ask(check) {
            Ok(spent) => Ok(self.spent_one(check, &spent)),
            Err(true) => Err(Wanted::from([(0, check.policy.clone(), check.key.clone())])),
            Err(false) => Err(Wanted::new()),
        }
    }

    #[inline]
    fn spent_one(&self, check: &Check<'_>, spent: &Spent) -> Verdict {
        if spent.refetch {
            self.fetch(check.policy, check.key, None);
        }
        Verdict::of_one(1, Duration::ZERO, spent.status).from_source(Source::Lease)
    }

    fn spend_all(&self, set: &[Check<'_>]) -> Option<Verdict> {
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
            return None;
        }
        for (check, spent) in set.iter().zip(&spends) {
            if spent.refetch {
                self.fetch(check.policy, check.key, None);
            }
        }
        Some(Verdict::new(1, Duration::ZERO, statuses).from_source(Source::Lease))
    }

    fn ask_all(&self, set: &[Check<'_>]) -> Wanted {
        let wanted = set.iter().enumerate().filter(|(_, check)| self.books.ask(check));
        wanted.map(|(at, check)| (at, check.policy.clone(), check.key.clone())).collect()
    }

    /// The checks of a look. Empty if none of their keys is leased.
    fn looked(&self, set: &[Check<'_>]) -> Vec<Looked> {
        if !set.iter().any(|check| self.books.is_leased(check)) {
            return Vec::new();
        }
        let looked = |check: &Check<'_>| {
            let same = |other: &&Check<'_>| {
                other.policy.numbers().scope_hash() == check.policy.numbers().scope_hash()
                    && other.key == check.key
            };
            let cost = set.iter().filter(same).fold(0, |sum: u64, other| sum.saturating_add(other.cost));
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
        // Whether a key is blocked is known to the store.
        let is_held = set
            .iter()
            .zip(&held)
            .all(|((policy, _, cost), held)| policy.numbers().charges_nothing() || *cost <= u64::from(*held));
        let each = set.iter().zip(&held).zip(verdict.each()).map(|(((policy, ..), held), status)| {
            if policy.numbers().charges_nothing() {
                return *status;
            }
            let remaining = status.remaining().saturating_add((*held).into()).min(policy.capacity());
            let wait = if is_held { Wait::None } else { status.wait() };
            Status::new(remaining, wait, status.reset_after(), status.stamp())
        });
        Verdict::new(verdict.times(), verdict.delay(), each).as_decided_by(&verdict)
    }

    /// Drops what this process holds of a key. Returns what drops it again after a change: what is
    /// fetched between the two may be from before the change.
    fn forget(&self, key: &Key, policies: &[&Policy]) -> ForgetLeases {
        policies.iter().for_each(|policy| self.books.forget(policy, key));
        let policies = policies.iter().map(|&policy| policy.clone()).collect();
        ForgetLeases { books: Arc::clone(&self.books), policies, key: key.clone() }
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

impl<S: Store> After<Result<Verdict, S::Error>> for FollowUp<S> {
    type Shared = ();
    type Output = Result<Verdict, S::Error>;

    #[inline]
    fn after(self, (): &(), answer: Result<Verdict, S::Error>) -> Result<Verdict, S::Error> {
        match (answer, self.0.map(|step| *step)) {
            (Ok(verdict), Some(Step::AddHeld(leases, looked))) => Ok(leases.with_held(&looked, verdict)),
            (Ok(verdict), Some(Step::Fetch(leases, wanted))) => {
                leases.fetch_wanted(&wanted, &verdict);
                Ok(verdict)
            }
            (answer, _) => answer,
        }
    }
}

/// Whether leases are for this set. A leaky bucket has to delay each request. The store has to see
/// each slot, each use that it tracks, each charge that is corrected, and each request that leaves
/// units to others. A long key is not kept.
fn is_leasable(set: &[Check<'_>], times: Times) -> bool {
    let fits = |Check { policy, key, cost }: &Check<'_>| {
        let is_leaky = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
        let leaves_units = policy.numbers().headroom() > 0;
        let store_decides = is_leaky
            || leaves_units
            || policy.is_in_flight()
            || policy.numbers().tracks_usage()
            || policy.numbers().is_reserved();
        *cost > 0 && !store_decides && key.as_encoded().len() <= LONGEST_KEY
    };
    times == Times::ONCE && !set.is_empty() && set.iter().all(fits)
}

impl<S: Store> Store for Leases<S> {
    type Error = S::Error;
    type Acquire = Then<S::Acquire, FollowUp<S>>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        let spent = if is_leasable(set, times) { self.spend_or_ask(set) } else { Err(Wanted::new()) };
        let wanted = match spent {
            Ok(verdict) => return Reply::Now(Ok(verdict)),
            Err(wanted) => wanted,
        };
        self.return_overdue();
        let looked = if times == Times::LOOK { self.looked(set) } else { Vec::new() };
        let step = if !looked.is_empty() {
            Some(Box::new(Step::AddHeld(self.clone(), looked)))
        } else if !wanted.is_empty() {
            Some(Box::new(Step::Fetch(self.clone(), wanted)))
        } else {
            None
        };
        self.store.acquire(set, times).then(&(), FollowUp(step))
    }

    #[inline]
    fn acquire_held(&self, set: &[Check<'_>], times: Times) -> Option<Verdict> {
        match set {
            _ if !is_leasable(set, times) => None,
            [check] => self.books.spend(check).map(|spent| self.spent_one(check, &spent)),
            _ => self.spend_all(set),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), S::Error> + use<S> {
        self.store.refund(grants)
    }

    /// The store corrects the charge. What is leased of the key stays leased.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, S::Error> + use<S> {
        self.store.settle(grants, total)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), S::Error> + use<S> {
        self.store.renew(grants, report)
    }

    /// What was granted to the key before, or meanwhile, is dropped.
    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, S::Error> + use<S> {
        self.forget(key, &[policy]).after(self.store.block(policy, key, share))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), S::Error> + use<S> {
        self.forget(key, policies).after(self.store.reset(key, policies))
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> Leases<S> {
        Leases { store: self.store.with_deadline(deadline), ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    /// With books of its own, so that its keys push out no others.
    fn in_shadow(&self) -> Leases<S> {
        Leases::new(self.store.in_shadow(), self.books.settings().clone())
    }

    /// Gives unspent units back: those of a process that stops without it stay charged. From then
    /// on the store decides each request. While the store is unreachable, it is asked again each
    /// second, in a task that goes on after `limit`.
    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S> {
        let (until, store, books) = (timer_after(limit), self.store.close(limit), Arc::clone(&self.books));
        let leases = self.clone();
        let ending = Home::here().end(|| leases.give_back());
        async move {
            match ending {
                EndPhase::Done(()) => {}
                EndPhase::Task(task) => _ = timeout_at(until, task).await,
                EndPhase::Alone(end) => end.await,
            }
            let mut unsent = store.await;
            unsent.leased_units += books.not_returned();
            unsent
        }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
