//! The slot of a delayed request in the queue of a leaky bucket.

use tokio::runtime::Handle;
use tollgate_core::{Reply, Store};

use super::decider::Decider;
use super::permit::Permit;

/// The charge of a delayed request. Refunded if this is dropped before the request passes, because
/// the caller has left.
pub(crate) struct QueueSlot<S: Store> {
    store: S,
    /// `None` once the request has passed.
    permit: Option<Permit>,
    /// That in which the request waits, since it may be dropped outside of any.
    runtime: Option<Handle>,
}

impl<S: Store> QueueSlot<S> {
    pub(crate) fn new(decider: &Decider<S>, permit: Permit) -> QueueSlot<S> {
        QueueSlot { store: decider.store.clone(), permit: Some(permit), runtime: Handle::try_current().ok() }
    }

    /// Keeps the charge, because the request passes.
    pub(crate) fn keep(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl<S: Store> Drop for QueueSlot<S> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        // A store may need the runtime's timers.
        let _entered = self.runtime.as_ref().map(Handle::enter);
        let refund = permit.start_refund(&self.store);
        if let (Reply::Later(refund), Some(runtime)) = (refund, &self.runtime) {
            runtime.spawn(refund);
        }
    }
}
