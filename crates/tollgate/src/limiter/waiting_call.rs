//! A request that waits, and the service that was polled ready for it.

use std::mem;

/// `None` once the service is called.
pub(crate) struct WaitingCall<Svc, R>(Option<(Svc, R)>);

impl<Svc: Clone, R> WaitingCall<Svc, R> {
    /// Takes the service that was polled ready, and leaves a clone in its place. The clone must be
    /// polled ready before it is called.
    pub(crate) fn new(service: &mut Svc, request: R) -> WaitingCall<Svc, R> {
        let clone = service.clone();
        WaitingCall(Some((mem::replace(service, clone), request)))
    }
}

impl<Svc, R> WaitingCall<Svc, R> {
    pub(crate) fn take(&mut self) -> (Svc, R) {
        self.0.take().expect("a request is called twice only if the inner service panicked")
    }
}
