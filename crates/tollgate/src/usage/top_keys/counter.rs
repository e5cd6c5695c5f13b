//! The store that is counted.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    After, Check, Grant, Key, OwnedCheck, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Store,
    Then, Times, UsageLog, Verdict,
};

use super::book::Book;
use super::recorder::Recorder;

/// A [`Store`] whose decisions are counted: see
/// [`StoreExt::count_usage`](crate::StoreExt::count_usage).
#[derive(Clone, Debug)]
pub struct UsageCounter<S> {
    store: S,
    book: Arc<Book>,
    is_in_shadow: bool,
}

impl<S: Store> UsageCounter<S> {
    pub(crate) fn new<L: UsageLog>(store: S, recorder: &Recorder<L>) -> UsageCounter<S> {
        UsageCounter { store, book: Arc::clone(recorder.book()), is_in_shadow: false }
    }
}

/// Counts a decision, if it was chosen.
#[derive(Debug)]
pub struct CountDecision(Option<Box<Chosen>>);

#[derive(Debug)]
struct Chosen {
    set: Vec<OwnedCheck>,
    /// How many decisions it stands for.
    weight: u32,
    is_in_shadow: bool,
}

impl<E> After<Result<Verdict, E>> for CountDecision {
    type Shared = Arc<Book>;
    type Output = Result<Verdict, E>;

    #[inline]
    fn after(self, book: &Arc<Book>, answer: Result<Verdict, E>) -> Result<Verdict, E> {
        if let (Some(chosen), Ok(verdict)) = (self.0.as_deref(), &answer) {
            let Chosen { set, weight, is_in_shadow } = chosen;
            book.record(set.iter().map(OwnedCheck::check), verdict, *weight, *is_in_shadow);
        }
        answer
    }
}

impl<S: Store> Store for UsageCounter<S> {
    type Error = S::Error;
    type Acquire = Then<S::Acquire, CountDecision>;
    type Done = S::Done;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        let weight = self.book.sample().filter(|_| times.max() > 0);
        let owned = |weight| {
            let set = set.iter().map(OwnedCheck::from).collect();
            Box::new(Chosen { set, weight, is_in_shadow: self.is_in_shadow })
        };
        self.store.acquire(set, times).then(&self.book, CountDecision(weight.map(owned)))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), S::Error>, S::Done> {
        self.store.refund(grants)
    }

    /// Not counted: it decides nothing.
    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, S::Error> {
        self.store.settle(grants, total).await
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, S::Error> {
        self.store.renew(grants).await
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), S::Error>, S::Done> {
        self.store.reset(key, policies)
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.store.end_waits_after(limit)
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

    fn patient(&self) -> UsageCounter<S> {
        UsageCounter { store: self.store.patient(), ..self.clone() }
    }

    fn in_shadow(&self) -> UsageCounter<S> {
        UsageCounter { store: self.store.in_shadow(), is_in_shadow: true, ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
