//! The store that is counted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    After, BlockStart, Check, End, Grant, Key, OwnedCheck, Policy, PolicyError, RenewalReport, Reply,
    SentClaims, Settled, Share, Store, Then, Times, Unsent, UsageLog, Verdict,
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

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        let weight = self.book.sample().filter(|_| times.max() > 0);
        let owned = |weight| {
            let set = set.iter().map(OwnedCheck::from).collect();
            Box::new(Chosen { set, weight, is_in_shadow: self.is_in_shadow })
        };
        self.store.acquire(set, times).then(&self.book, CountDecision(weight.map(owned)))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), S::Error> + use<S> {
        self.store.refund(grants)
    }

    /// Not counted: it decides nothing.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, S::Error> + use<S> {
        self.store.settle(grants, total)
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
        self.store.block(policy, key, share)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), S::Error> + use<S> {
        self.store.reset(key, policies)
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> UsageCounter<S> {
        UsageCounter { store: self.store.with_deadline(deadline), ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn in_shadow(&self) -> UsageCounter<S> {
        UsageCounter { store: self.store.in_shadow(), is_in_shadow: true, ..self.clone() }
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S> {
        self.store.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
