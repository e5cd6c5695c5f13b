//! How leases are fetched: in tasks, so that no request waits.

use tokio::runtime::Handle;
use tollgate_core::{Check, Key, Policy, Reply, Store, Times, Verdict};

use super::account::{Fetch, Granted};
use super::background::Sent;
use super::leases::Leases;

impl<S: Store> Leases<S> {
    /// Fetches a lease if the key is in demand, without making the caller wait for it.
    ///
    /// `left` is what the store had left just now, if it was asked.
    pub(super) fn fetch(&self, policy: &Policy, key: &Key, left: Option<u64>) {
        // A lease has to be given back in time, which needs a runtime.
        let Ok(runtime) = Handle::try_current() else { return };
        let begun = self.books.under_way.begin();
        if self.books.is_closed() {
            return;
        }
        let Some(fetch) = self.books.fetch(policy, key, left) else { return };
        let check = Check::new(&fetch.policy, &fetch.key, 1);
        match self.patient.acquire(&[check], Times::up_to(fetch.units)) {
            Reply::Now(answer) => self.fetched(&fetch, answer, &runtime),
            Reply::Later(answer) => {
                let sent = Sent::new(&self.books, fetch);
                let (this, spawner) = (self.clone(), runtime.clone());
                runtime.spawn(async move {
                    let _begun = begun;
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
        self.return_in(runtime);
    }
}
