//! A worker sends one request after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::sync::watch;
use tollgate_core::Clock;

use super::keys::Keys;
use super::tally::{Admitted, Tally};
use super::target::LoadTarget;

/// What the workers of a load share.
pub(crate) struct LoadRun {
    /// Requests that are still to be sent.
    left: AtomicU64,
    given_up: watch::Sender<bool>,
    pub(crate) progress: ProgressBar,
    timeout: Duration,
    clock: Clock,
}

impl LoadRun {
    pub(crate) fn new(iterations: u64, progress: ProgressBar, timeout: Duration, clock: Clock) -> LoadRun {
        LoadRun {
            left: AtomicU64::new(iterations),
            given_up: watch::Sender::new(false),
            progress,
            timeout,
            clock,
        }
    }

    /// No request is sent from now on.
    pub(crate) fn stop(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    /// No worker waits for an answer from now on.
    pub(crate) fn give_up(&self) {
        self.given_up.send_replace(true);
    }

    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Sends requests until none is left.
pub(crate) async fn work(run: Arc<LoadRun>, target: Arc<LoadTarget>, keys: Keys) -> Tally {
    let mut tally = Tally::new();
    let mut given_up = run.given_up.subscribe();
    while run.take() {
        let key = keys.choose();
        let sent = run.clock.now().as_micros();
        let outcome = tokio::select! {
            biased;
            outcome = target.send(key, run.timeout) => outcome,
            _ = given_up.wait_for(|given_up| *given_up) => {
                tally.unfinished += 1;
                break;
            }
        };
        let answered = run.clock.now().as_micros().max(sent);
        tally.record(Admitted { key, sent, answered }, outcome);
        run.progress.inc(1);
    }
    tally
}
