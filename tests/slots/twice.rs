//! A store that sends each release twice, and writes down what was granted.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tollgate::store::{
    After, BlockStart, Check, End, Grant, RenewalReport, Reply, SentClaims, Store, StoreError, Then, Times,
    Verdict,
};
use tollgate::{Key, Policy, PolicyError, Share};

use super::Journal;

#[derive(Clone, Debug)]
pub(crate) struct Twice<S> {
    store: S,
    journal: Journal,
}

impl<S> Twice<S> {
    pub(crate) fn new(store: S, journal: Journal) -> Twice<S> {
        Twice { store, journal }
    }
}

/// Writes down whether the store granted.
#[derive(Debug)]
pub(crate) struct NoteGrant;

impl<E: StoreError> After<Result<Verdict, E>> for NoteGrant {
    type Shared = Journal;
    type Output = Result<Verdict, E>;

    fn after(self, journal: &Journal, answer: Result<Verdict, E>) -> Result<Verdict, E> {
        match &answer {
            Ok(verdict) if verdict.is_granted() => journal.note("granted"),
            Ok(_) => journal.note("denied"),
            Err(_) => journal.note("failed"),
        }
        answer
    }
}

impl<S: Store> Store for Twice<S> {
    type Error = S::Error;
    type Acquire = Then<S::Acquire, NoteGrant>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        self.journal.note("asks");
        self.store.acquire(set, times).then(&self.journal, NoteGrant)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), S::Error> + use<S> {
        let first = self.store.refund(grants);
        let second = self.store.refund(grants);
        async move {
            // Begun, and not awaited. It may be ready at once.
            let mut first = pin!(first);
            poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_ready())).await;
            second.await
        }
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

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> Twice<S> {
        Twice { store: self.store.with_deadline(deadline), journal: self.journal.clone() }
    }

    fn in_shadow(&self) -> Twice<S> {
        Twice { store: self.store.in_shadow(), journal: self.journal.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
