//! Wakers that are called after a lock.

use std::task::Waker;

use smallvec::SmallVec;

/// The wakers of callers that were given a turn. It wakes them when it is dropped, so a turn that
/// was given is never forgotten. Drop it after the lock: a waker may run code that needs the lock.
#[derive(Default)]
#[must_use = "it wakes when it is dropped, which must be after the lock"]
pub(super) struct WakeList(SmallVec<[Waker; 4]>);

impl WakeList {
    pub(super) fn push(&mut self, waker: Waker) {
        self.0.push(waker);
    }
}

impl Drop for WakeList {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}
