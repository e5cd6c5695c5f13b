//! How units go back to the store: when leases end, and when a process stops.

use std::future::Future;

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
    /// Await it when a process stops, after its last request. Units of a process that stops without
    /// it stay charged. It also waits for fetches and refunds that are on their way. While the
    /// store is unreachable, it tries again each second for a minute. So limit its time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Lease, MemoryStore, StoreExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let redis = MemoryStore::new();
    /// let leased = redis.leased(Lease::default());
    /// let store = leased.clone().deny_cache(100_000).fail_open();
    /// // Serve with `store`. At the end:
    /// let _ = tokio::time::timeout(Duration::from_secs(5), leased.give_back()).await;
    /// # }
    /// ```
    pub fn give_back(&self) -> impl Future<Output = ()> + Send + 'static {
        let this = self.clone();
        async move {
            this.books.close();
            loop {
                this.return_units().await;
                this.books.underway.ended().await;
                match this.books.agenda.next(this.books.now()) {
                    Some(wait) => sleep(wait).await,
                    None => return,
                }
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
        let _begun = self.books.underway.begin();
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
                if refund.wait().await.is_err_and(|error| error.executed_nothing()) {
                    self.books.keep(unspent);
                }
            }
        }
    }
}
