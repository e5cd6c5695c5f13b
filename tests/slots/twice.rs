//! A store that sends each release twice, and writes down what was granted.

use std::time::Duration;

use tollgate::store::{
    After, Check, Grant, Renewal, Reply, SentClaims, Store, StoreError, Then, Times, Verdict,
};
use tollgate::{Key, Policy, PolicyError};

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
    type Done = S::Done;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        self.journal.note("asks");
        self.store.acquire(set, times).then(&self.journal, NoteGrant)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), S::Error>, S::Done> {
        drop(self.store.refund(grants));
        self.store.refund(grants)
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

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn patient(&self) -> Twice<S> {
        Twice { store: self.store.patient(), journal: self.journal.clone() }
    }

    fn in_shadow(&self) -> Twice<S> {
        Twice { store: self.store.in_shadow(), journal: self.journal.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
