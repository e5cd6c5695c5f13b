//! The place of a delayed request in the queue of a leaky bucket.

use tollgate_core::Store;

use super::decider::Decider;
use super::permit::Permit;
use crate::ending::Home;

/// The charge of a delayed request. Refunded if this is dropped before the request passes, because
/// the caller has left.
pub(crate) struct QueuePlace<S: Store> {
    store: S,
    /// `None` once the request has passed.
    permit: Option<Permit>,
    home: Home,
}

impl<S: Store> QueuePlace<S> {
    pub(crate) fn new(decider: &Decider<S>, permit: Permit) -> QueuePlace<S> {
        QueuePlace { store: decider.store.clone(), permit: Some(permit), home: Home::here() }
    }

    /// Keeps the charge, because the request passes.
    pub(crate) fn keep(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl<S: Store> Drop for QueuePlace<S> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        self.home.end(|| permit.refund(&self.store));
    }
}
