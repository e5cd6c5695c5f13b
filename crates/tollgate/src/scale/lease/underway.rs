//! What is on its way to the store, so that a stop can wait for it.

use tokio::sync::watch;

/// Counts the fetches and refunds whose answers are awaited, so that a stop can wait for them.
pub(super) struct Underway(watch::Sender<usize>);

/// Is counted until it is dropped.
pub(super) struct Begun(watch::Sender<usize>);

impl Underway {
    pub(super) fn new() -> Underway {
        Underway(watch::Sender::new(0))
    }

    /// Counts one more.
    pub(super) fn begin(&self) -> Begun {
        self.0.send_modify(|count| *count += 1);
        Begun(self.0.clone())
    }

    /// Waits until there is none.
    pub(super) async fn ended(&self) {
        // It fails only without a sender.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
