//! The store that spends leases.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tollgate_core::{
    Algorithm, Check, ErrorKind, Grant, Key, Policy, PolicyError, Reply, Source, Status, Store, StoreError,
    Times, UsageError, Verdict, Wait,
};

use super::super::forgetting::{Forgetting, forgetting};
use super::account::{Fetch, Granted, Unspent};
use super::background::{Returning, Sent};
use super::books::Books;
use super::settings::Lease;
use super::stats::{HeldLease, LeaseStats};

/// A [`Store`] that answers most checks of busy keys from leases: see
/// [`ScaleExt::leased`](crate::ScaleExt::leased).
#[derive(Clone, Debug)]
pub struct Leased<S> {
    store: S,
    books: Arc<Books>,
}

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
        Leased { store, books: Arc::new(Books::new(lease)) }
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

    /// Fetches a lease if the key is in demand, without making the caller wait for it.
    ///
    /// `left` is what the store had left just now, if it was asked.
    fn fetch(&self, policy: &Policy, key: &Key, left: Option<u32>) {
        // A lease has to be given back in time, which needs a runtime.
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(fetch) = self.books.fetch(policy, key, left) else { return };
        let check = Check::new(&fetch.policy, &fetch.key, 1);
        match self.store.acquire(&[check], Times::up_to(fetch.units)) {
            Reply::Now(answer) => self.fetched(&fetch, answer, &runtime),
            Reply::Later(answer) => {
                let sent = Sent::new(&self.books, fetch);
                let (this, spawner) = (self.clone(), runtime.clone());
                runtime.spawn(async move {
                    let answer = answer.await;
                    if let Some(fetch) = sent.answered() {
                        this.fetched(&fetch, answer, &spawner);
                    }
                });
            }
        }
    }

    fn fetched(&self, fetch: &Fetch, answer: Result<Verdict, S::Error>, runtime: &Handle) {
        let verdict = answer.ok();
        // A failure policy decided if there is no status, or if there is a share.
        let status = verdict.as_ref().and_then(|verdict| verdict.each().first());
        let status = status.filter(|_| verdict.as_ref().is_some_and(|verdict| verdict.share().is_none()));
        let Some((verdict, status)) = verdict.as_ref().zip(status) else {
            self.books.not_granted(fetch, 0);
            return;
        };
        if !verdict.is_granted() {
            self.books.not_granted(fetch, status.remaining());
            return;
        }
        let units = verdict.times();
        let ends = fetch.sent.saturating_add(self.books.life_of(&fetch.policy, status));
        let full_at = fetch.sent.saturating_add(status.reset_after());
        let granted = Granted { units, stamp: status.stamp(), ends, left: status.remaining(), full_at };
        self.books.granted(fetch, &granted);
        if let Some(returning) = Returning::start(&self.books) {
            runtime.spawn(self.clone().give_back(returning));
        }
    }

    /// Refunds what is unspent when leases end, for as long as there are any. One task does it for
    /// all keys.
    async fn give_back(self, mut returning: Returning) {
        loop {
            while let Some(wait) = self.books.next_end() {
                tokio::time::sleep(wait).await;
                self.refund_all(self.books.end()).await;
            }
            drop(returning);
            // A lease may have been added since the last look.
            match self.books.next_end().and_then(|_| Returning::start(&self.books)) {
                Some(again) => returning = again,
                None => return,
            }
        }
    }

    /// Refunds units, all at once. Those for which the store was not asked are kept for later,
    /// because a circuit is open or the store is overloaded. Any other refund that fails may have
    /// been executed, and is not repeated.
    async fn refund_all(&self, unspent: Vec<Unspent>) {
        let send = |unspent: Unspent| {
            let Unspent { policy, key, units, stamp, .. } = &unspent;
            let grant = Grant { policy, key, units: *units, stamp: *stamp, share: None };
            (self.store.refund(&[grant]), unspent)
        };
        for (refund, unspent) in unspent.into_iter().map(send).collect::<Vec<_>>() {
            if let Err(error) = refund.wait().await
                && matches!(error.kind(), ErrorKind::CircuitOpen | ErrorKind::Overloaded)
            {
                self.books.keep(unspent);
            }
        }
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

/// Whether leases are for this set: a leaky bucket has to delay each request, and the store has to
/// see each use that it tracks.
fn is_leasable(set: &[Check<'_>], times: Times) -> bool {
    let fits = |Check { policy, cost, .. }: &Check<'_>| {
        let is_leaky = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
        *cost > 0 && !is_leaky && !policy.tracks_usage()
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
