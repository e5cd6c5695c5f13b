//! How a process stops: nothing new begins, and what was granted comes to its end.

use std::time::Duration;

use tollgate_core::{Store, Unsent};

use super::live::Live;
use super::{Limiter, RequestLimiter};
use crate::plan::Switch;
use crate::store::NeverFails;

impl<S: Store<Error: NeverFails>> Live<S> {
    /// Refuses all requests, and sends what is owed to the store.
    pub(crate) async fn close(&self, limit: Duration) -> Unsent {
        self.switch(Switch::Stopping);
        let decider = self.load_full();
        decider.engine.close(limit).await
    }
}

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Ends this limiter and its clones, when the process stops. From now on requests are refused
    /// with [`Reason::Stopping`](crate::Reason::Stopping), also those that wait for units or for a
    /// slot, and those that are exempt. A request that has its place in a leaky bucket passes after
    /// its delay. Observers see no decision about those that are refused.
    ///
    /// - Slots are released: other processes need not wait for the end of their times to live.
    ///   Requests that still run find their [`Slot`](crate::Slot) lost. Slots in memory end with
    ///   the process.
    /// - Corrections of charges and releases that are on their way are awaited.
    /// - The [store is closed](Store::close): [kept
    ///   corrections](crate::failure::Answering::keep_corrections) are sent, and
    ///   [leases](crate::StoreExt::leased) are given back.
    ///
    /// All that takes `limit` at the most. Returns what is left then, also what the store failed to
    /// execute. A second call waits again for what is on its way, and nothing opens the limiter
    /// again.
    ///
    /// Await it after the last request. Several limiters may share a store: close all of them after
    /// that.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a timer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, Policy, Quota, Reason};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let mails = Limiter::new([Policy::new("mails", Quota::per_day(100))]);
    /// let unsent = mails.close(Duration::from_secs(2)).await;
    /// assert!(unsent.is_nothing(), "{unsent}");
    /// let denial = mails.check(&Key::from("ada"), 1).await.unwrap_err();
    /// assert_eq!(denial.reason(), Reason::Stopping);
    /// # }
    /// ```
    pub async fn close(&self, limit: Duration) -> Unsent {
        self.live.close(limit).await
    }
}

impl<S: Store<Error: NeverFails>> RequestLimiter<S> {
    /// Ends this limiter, its clones and the layer that it belongs to, when the process stops: see
    /// [`Limiter::close`].
    pub async fn close(&self, limit: Duration) -> Unsent {
        self.live.close(limit).await
    }
}
