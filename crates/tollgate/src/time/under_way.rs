//! What is on its way to a store, so that a stop can wait for it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts what is on its way. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<UnderWayCount>);

#[derive(Debug, Default)]
struct UnderWayCount {
    count: AtomicUsize,
    none: Notify,
}

/// Is counted until it is dropped.
pub(crate) struct Begun(Arc<UnderWayCount>);

impl UnderWay {
    /// Counts one more.
    pub(crate) fn begin(&self) -> Begun {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        Begun(Arc::clone(&self.0))
    }

    /// Waits until there is none.
    pub(crate) async fn ended(&self) {
        loop {
            // Before the look, so that no end is missed.
            let mut none = pin!(self.0.none.notified());
            none.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            none.await;
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
