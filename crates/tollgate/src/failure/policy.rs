//! The failure policies open and closed: requests pass, or are refused, while the store fails.

use std::convert::Infallible;
use std::time::Duration;

use tollgate_core::{
    After, Check, Grant, Key, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Source, Store,
    StoreError, Then, Times, Verdict,
};

use super::event::Event;
use super::outage::{Complete, Outage, undecided};

/// A [`Store`] that lets requests pass, or refuses them, while the inner store fails: see
/// [`fail_open`](crate::StoreExt::fail_open) and [`fail_closed`](crate::StoreExt::fail_closed).
#[derive(Clone, Debug)]
pub struct FailurePolicy<S> {
    store: S,
    passes: bool,
    outage: Outage,
}

impl<S: Store> FailurePolicy<S> {
    pub(crate) fn open(store: S) -> FailurePolicy<S> {
        let outage = Outage::new("requests pass without limit", Source::FailurePolicy);
        FailurePolicy { store, passes: true, outage }
    }

    pub(crate) fn closed(store: S) -> FailurePolicy<S> {
        let outage = Outage::new("requests are refused", Source::FailurePolicy);
        FailurePolicy { store, passes: false, outage }
    }

    /// Calls `observe` for every [`Event::Decided`] and [`Event::Failed`], within the request: it
    /// must not block. Several observers may be added. Call this before cloning: existing clones
    /// keep their observers.
    #[must_use]
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> FailurePolicy<S> {
        FailurePolicy { outage: self.outage.observe(observe), ..self }
    }
}

/// Decides a set if the store failed.
#[derive(Debug)]
pub struct Substitute {
    /// How often the set is granted then.
    times: u32,
}

impl<E: StoreError> After<Result<Verdict, E>> for Substitute {
    type Shared = Outage;
    type Output = Result<Verdict, Infallible>;

    #[inline]
    fn after(self, outage: &Outage, answer: Result<Verdict, E>) -> Result<Verdict, Infallible> {
        outage.record_decision(&answer);
        Ok(answer.unwrap_or_else(|_| undecided(self.times, Source::FailurePolicy)))
    }
}

impl<S: Store> Store for FailurePolicy<S> {
    type Error = Infallible;
    type Acquire = Then<S::Acquire, Substitute>;
    type Done = Then<S::Done, Complete>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        // A request without a cost always passes: no store would refuse it.
        let passes = self.passes || set.iter().all(|check| check.cost == 0);
        let times_on_failure = if passes { times.max() } else { 0 };
        self.store.acquire(set, times).then(&self.outage, Substitute { times: times_on_failure })
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        self.store.refund(grants).then(&self.outage, Complete)
    }

    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Infallible> {
        Ok(self.outage.settled(self.store.settle(grants, total).await, grants, total))
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Infallible> {
        Ok(self.outage.renewals(self.store.renew(grants).await, grants))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        self.store.reset(key, policies).then(&self.outage, Complete)
    }

    fn node_of(&self, key: &Key) -> u64 {
        self.store.node_of(key)
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn patient(&self) -> FailurePolicy<S> {
        FailurePolicy { store: self.store.patient(), ..self.clone() }
    }

    /// Nothing watches it: what is dropped in shadow is no outage.
    fn in_shadow(&self) -> FailurePolicy<S> {
        FailurePolicy { store: self.store.in_shadow(), outage: Outage::unwatched(), ..*self }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
