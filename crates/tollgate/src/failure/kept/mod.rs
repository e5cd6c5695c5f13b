//! Corrections that a store has not executed, kept until it answers:
//! [`Answering::keep_corrections`](super::Answering::keep_corrections).

// From top to bottom; imports run down this list only: this module, backlog, outstanding.
mod backlog;
mod outstanding;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tollgate_core::{Clock, Key, Policy, Store, StoreError};

use crate::time::ending::{Home, begun};
pub use backlog::CorrectionCounts;
use backlog::{Backlog, Dated};
use outstanding::Corrections;
pub(super) use outstanding::{corrections, refunds};

/// The pauses between two attempts to send what is kept.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Corrections on their way at the same time. A store sends such in one call.
const AT_ONCE: usize = 64;

/// What a store has not executed, and the store.
pub(super) struct KeptCorrections<S> {
    store: S,
    /// The most corrections.
    most: usize,
    backlog: Mutex<Backlog>,
    clock: Clock,
    home: Home,
    /// Ends a pause.
    hurry: Notify,
}

/// The corrections of an operation that is on its way, if the store keeps them.
pub(super) struct ToKeep<S>(Option<(Arc<KeptCorrections<S>>, Corrections)>);

impl<S: Store> ToKeep<S> {
    pub(super) fn new(
        kept: Option<&Arc<KeptCorrections<S>>>,
        corrections: impl FnOnce() -> Corrections,
    ) -> ToKeep<S> {
        ToKeep(kept.map(|kept| (Arc::clone(kept), corrections())))
    }

    /// Keeps them, as the store did not execute them. Whether they are kept.
    pub(super) fn keep(self) -> bool {
        self.0.is_some_and(|(kept, corrections)| !corrections.is_empty() && kept.keep(corrections))
    }
}

impl<S: Store> KeptCorrections<S> {
    pub(super) fn new(store: S, most: usize) -> Arc<KeptCorrections<S>> {
        let (backlog, clock) = (Mutex::default(), Clock::system());
        Arc::new(KeptCorrections { store, most, backlog, clock, home: Home::here(), hurry: Notify::new() })
    }

    /// Keeps corrections, or none of them if there is no room for all. Whether they are kept.
    fn keep(self: &Arc<Self>, corrections: Corrections) -> bool {
        let now = self.clock.now();
        let mut backlog = self.backlog();
        if !backlog.add(corrections, now, self.most) {
            return false;
        }
        self.begin_to_send(&mut backlog);
        true
    }

    /// Starts a task that sends what is kept, if none does.
    fn begin_to_send(self: &Arc<Self>, backlog: &mut Backlog) {
        if !backlog.is_being_sent() {
            let runtime = Handle::try_current().ok().or_else(|| self.home.runtime().cloned());
            let sending = send_until_empty(Arc::downgrade(self));
            backlog.sent_by(runtime.map(|runtime| runtime.spawn(sending)));
        }
    }

    /// Sends what is kept without long pauses, until nothing is.
    pub(super) async fn sent(self: &Arc<Self>) {
        while self.counts().waiting > 0 {
            self.begin_to_send(&mut self.backlog());
            self.hurry.notify_one();
            sleep(FIRST_PAUSE).await;
        }
    }

    /// Forgets the corrections of policies and a key, whose usage is to be reset. Returns those
    /// that are [to wait again](KeptCorrections::wait_again) if it is not.
    pub(super) fn forget(&self, key: &Key, policies: &[&Policy]) -> Vec<(Dated, u64)> {
        self.backlog().forget(key, policies)
    }

    pub(super) fn wait_again(self: &Arc<Self>, each: Vec<(Dated, u64)>) {
        if each.is_empty() {
            return;
        }
        let mut backlog = self.backlog();
        backlog.wait(each);
        self.begin_to_send(&mut backlog);
    }

    pub(super) fn counts(&self) -> CorrectionCounts {
        self.backlog().counts()
    }

    /// Sends all that is kept, once. Whether the store executed any of it.
    async fn send(&self) -> bool {
        let [others, credits] = self.backlog().begin(self.clock.now());
        let mut is_executed = self.send_each(&others).await;
        let credits = self.backlog().behind(&others, credits);
        is_executed |= self.send_each(&credits).await;
        self.backlog().end();
        is_executed
    }

    async fn send_each(&self, due: &[(Dated, u64)]) -> bool {
        let mut is_executed = false;
        for some in due.chunks(AT_ONCE) {
            let mut sent = Vec::with_capacity(some.len());
            for (kept, units) in some.iter().filter(|(kept, _)| self.backlog().sends(kept)) {
                sent.push((kept, begun(kept.0.send(&self.store, *units)).await));
            }
            let mut is_any_executed = false;
            for (kept, reply) in sent {
                match reply.wait().await {
                    Ok(()) => {
                        is_any_executed = true;
                        self.backlog().executed(kept);
                    }
                    Err(error) if error.executed_nothing() => self.backlog().not_executed(kept),
                    Err(_) => self.backlog().not_answered(kept),
                }
            }
            // Those of another node may go through, but not if nothing does.
            if !is_any_executed {
                break;
            }
            is_executed = true;
        }
        is_executed
    }
}

impl<S> KeptCorrections<S> {
    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what is kept until nothing is, or until all handles of the store are gone.
async fn send_until_empty<S: Store>(kept: Weak<KeptCorrections<S>>) {
    let mut pause = FIRST_PAUSE;
    while let Some(kept) = kept.upgrade() {
        let _ = timeout(pause, kept.hurry.notified()).await;
        pause = if kept.send().await { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        if kept.backlog().stops_if_empty() {
            return;
        }
    }
}

impl<S> fmt::Debug for KeptCorrections<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptCorrections")
            .field("most", &self.most)
            .field("counts", &self.backlog().counts())
            .finish()
    }
}
