//! The place of a delayed request in the queue of a leaky bucket.

use tokio::runtime::Handle;
use tollgate_core::{Reply, Store};

use crate::limiter::Limiter;
use crate::permit::Permit;

/// The charge of a delayed request. Refunded if this is dropped before the request passes, because
/// the caller has left.
pub(crate) struct Place<S: Store> {
    limiter: Limiter<S>,
    /// `None` once the request has passed.
    permit: Option<Permit>,
}

impl<S: Store> Place<S> {
    pub(crate) fn new(limiter: Limiter<S>, permit: Permit) -> Place<S> {
        Place { limiter, permit: Some(permit) }
    }

    /// Keeps the charge, because the request passes.
    pub(crate) fn keep(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl<S: Store> Drop for Place<S> {
    fn drop(&mut self) {
        let Some(mut permit) = self.permit.take() else { return };
        let refund = self.limiter.start_refund(&mut permit, u32::MAX);
        // Outside of a runtime there is no task that could wait for the store.
        if let (Reply::Later(refund), Ok(runtime)) = (refund, Handle::try_current()) {
            runtime.spawn(refund);
        }
    }
}
