//! How units go back to the store: when leases end, and when a process stops.

use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate_core::{Grant, Store, StoreError};

use super::account::Unspent;
use super::background::Turn;
use super::leases::Leases;
use crate::time::ending::begun;

/// How many refunds are sent at once. They share the store's queue with requests.
const AT_ONCE: usize = 1_000;

impl<S: Store> Leases<S> {
    /// Gives all unspent units back to the store, and waits until it has them. From then on the
    /// store decides each request.
    ///
    /// It also waits for fetches and refunds that are on their way. While the store is unreachable,
    /// it tries again each second for a minute.
    pub(super) async fn give_back(self) {
        self.books.close();
        loop {
            self.return_units().await;
            self.books.under_way.ended().await;
            match self.books.agenda.next(self.books.now()) {
                Some(wait) => sleep(wait).await,
                None => return,
            }
        }
    }

    /// Starts a task that returns units, if no task does, or if the one that does is late: its
    /// runtime may be alive and not driven.
    #[inline]
    pub(super) fn return_overdue(&self) {
        if self.books.agenda.is_overdue(|| self.books.now())
            && let Ok(runtime) = Handle::try_current()
        {
            self.return_in(&runtime);
        }
    }

    pub(super) fn return_in(&self, runtime: &Handle) {
        if let Some(turn) = Turn::begin(&self.books) {
            let this = self.clone();
            runtime.spawn(async move {
                while let Some(wait) = turn.next() {
                    sleep(wait).await;
                    this.return_units().await;
                }
            });
        }
    }

    /// Refunds what leases that have ended did not spend. Units are kept for another refund only if
    /// nothing of the first was executed.
    async fn return_units(&self) {
        let _begun = self.books.under_way.begin();
        let send = |Unspent { policy, key, units, stamp, .. }: &Unspent| {
            let grant = Grant { policy, key, units: (*units).into(), stamp: *stamp, share: None };
            self.patient.refund(&[grant])
        };
        let mut unspent = self.books.end().into_iter();
        loop {
            let mut sent = Vec::new();
            for unspent in unspent.by_ref().take(AT_ONCE) {
                sent.push((begun(send(&unspent)).await, unspent));
            }
            if sent.is_empty() {
                return;
            }
            for (refund, unspent) in sent {
                let answer = refund.wait().await;
                self.books.answered(&unspent);
                if answer.is_err_and(|error| error.executed_nothing()) {
                    self.books.keep(unspent);
                }
            }
        }
    }
}
