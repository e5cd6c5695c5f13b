//! The cache of denials: a denied key is answered in the process until its wait is over.

mod denials;
mod known_denial;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    After, BlockStart, Check, Clock, End, Grant, Key, Policy, PolicyError, RenewalReport, Reply, SentClaims,
    Settled, Share, Store, Then, Times, Unsent, Verdict,
};

use denials::{AskedChecks, Denials, Remember};

/// A [`Store`] that answers denials from memory: see
/// [`StoreExt::deny_cache`](crate::StoreExt::deny_cache).
#[derive(Clone)]
pub struct DenyCache<S> {
    store: S,
    denials: Arc<Denials>,
    capacity: usize,
}

/// Forgets the denials of these checks.
struct ForgetDenials {
    denials: Arc<Denials>,
    changed: AskedChecks,
}

impl ForgetDenials {
    async fn after<F: Future>(self, change: F) -> F::Output {
        let answer = change.await;
        self.denials.forget(&self.changed);
        answer
    }
}

impl<S: Store> DenyCache<S> {
    pub(crate) fn new(store: S, capacity: usize) -> DenyCache<S> {
        DenyCache { store, denials: Arc::new(Denials::new(capacity, Clock::system())), capacity }
    }

    /// Replaces the clock, and forgets all denials. A [`ManualClock`](crate::ManualClock) is for
    /// tests.
    #[must_use]
    pub fn clock(self, clock: impl Into<Clock>) -> DenyCache<S> {
        DenyCache { denials: Arc::new(Denials::new(self.capacity, clock.into())), ..self }
    }

    /// Returns how many policies of keys are remembered now. Some may be over.
    pub fn denials(&self) -> usize {
        self.denials.len()
    }

    /// Forgets denials. Returns what forgets them again after a change: what is learned between the
    /// two may be from before the change.
    fn forget<'a>(&self, of: impl Iterator<Item = (&'a Policy, &'a Key)>) -> ForgetDenials {
        let set: SmallVec<[Check<'_>; 4]> = of.map(|(policy, key)| Check::new(policy, key, 0)).collect();
        let changed = self.denials.asked(&set);
        self.denials.forget(&changed);
        ForgetDenials { denials: Arc::clone(&self.denials), changed }
    }
}

impl<E> After<Result<Verdict, E>> for Remember {
    type Shared = Arc<Denials>;
    type Output = Result<Verdict, E>;

    fn after(self, denials: &Arc<Denials>, answer: Result<Verdict, E>) -> Result<Verdict, E> {
        denials.remember(self, answer.as_ref().ok());
        answer
    }
}

impl<S: Store> Store for DenyCache<S> {
    type Error = S::Error;
    type Acquire = Then<S::Acquire, Remember>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        // A denial says nothing of units that are paid for. Looked for first, it makes a grant of a
        // lease cost 2.1 × (instructions, leased: store, deny cache). A set of several would take
        // the units of some keys, and give them back because of a denial of another.
        if set.len() == 1
            && let Some(verdict) = self.store.acquire_held(set, times)
        {
            return Reply::Now(Ok(verdict));
        }
        // Looks change nothing, and show what the store knows.
        let asked_set = if times == Times::LOOK { AskedChecks::new() } else { self.denials.asked(set) };
        if times == Times::ONCE
            && let Some(verdict) = self.denials.answer(set, &asked_set)
        {
            return Reply::Now(Ok(verdict));
        }
        let asked = self.denials.clock().now();
        self.store.acquire(set, times).then(&self.denials, Remember { set: asked_set, times, asked })
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), S::Error> + use<S> {
        let of = grants.iter().map(|grant| (grant.policy, grant.key));
        self.forget(of).after(self.store.refund(grants))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, S::Error> + use<S> {
        let of = grants.iter().map(|grant| (grant.policy, grant.key));
        self.forget(of).after(self.store.settle(grants, total))
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), S::Error> + use<S> {
        self.store.renew(grants, report)
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, S::Error> + use<S> {
        self.forget([(policy, key)].into_iter()).after(self.store.block(policy, key, share))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), S::Error> + use<S> {
        let of = policies.iter().map(|policy| (*policy, key));
        self.forget(of).after(self.store.reset(key, policies))
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> DenyCache<S> {
        DenyCache { store: self.store.with_deadline(deadline), ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    /// With a table of its own, so that its denials push out no others.
    fn in_shadow(&self) -> DenyCache<S> {
        let clock = self.denials.clock().clone();
        DenyCache::new(self.store.in_shadow(), self.capacity).clock(clock)
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S> {
        self.store.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

impl<S: fmt::Debug> fmt::Debug for DenyCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DenyCache { store, capacity, .. } = self;
        f.debug_struct("DenyCache").field("store", store).field("capacity", capacity).finish_non_exhaustive()
    }
}
