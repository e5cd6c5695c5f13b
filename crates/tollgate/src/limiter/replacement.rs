//! How callers that wait hear that their rules were replaced.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;
use tokio::time::Instant;

use super::refusal::Refusal;
use super::wait_queue::Waiter;

/// The end of a wait, or of the rules by which a caller has waited so far.
pub(crate) enum Waited<T> {
    Over(T),
    /// The caller asks again by the new rules, from its place.
    Replaced(Waiting),
}

/// What a caller that waits keeps when its rules are replaced.
#[derive(Default)]
pub(crate) struct Waiting {
    /// When it began to wait.
    pub(super) begin: Option<Instant>,
    /// Its place in every queue.
    pub(super) arrival: Option<u64>,
    pub(super) place: Option<Waiter<Refusal>>,
}

/// The version of the rules that apply now. `None` if they are never replaced.
#[derive(Clone, Default)]
pub(crate) struct LatestVersion(Option<watch::Receiver<u64>>);

impl LatestVersion {
    pub(crate) fn of(version: &watch::Sender<u64>) -> LatestVersion {
        LatestVersion(Some(version.subscribe()))
    }

    /// Whether rules of this version were replaced.
    pub(super) fn is_after(&self, version: u64) -> bool {
        self.0.as_ref().is_some_and(|latest| *latest.borrow() > version)
    }

    /// Does some work until rules of this version are replaced. `None` if they were.
    pub(super) async fn unless_after<T>(&mut self, version: u64, work: impl Future<Output = T>) -> Option<T> {
        let Some(latest) = &mut self.0 else { return Some(work.await) };
        let (mut work, mut later) = (pin!(work), pin!(latest.wait_for(|latest| *latest > version)));
        let mut can_be_replaced = true;
        poll_fn(|cx| {
            if can_be_replaced && let Poll::Ready(replaced) = later.as_mut().poll(cx) {
                if replaced.is_ok() {
                    return Poll::Ready(None);
                }
                // The layer is gone.
                can_be_replaced = false;
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

/// Where a limiter finds the rules that have replaced its own.
pub(crate) trait LiveRules<L>: Send + Sync {
    fn latest(&self) -> L;
    fn latest_version(&self) -> LatestVersion;
}

/// The rules that replace those of a limiter, if it is that of a layer.
pub(crate) struct Successors<L> {
    pub(super) live: Option<Arc<dyn LiveRules<L>>>,
    /// Whether the limiter has settings that the layer does not have.
    pub(super) has_own_settings: bool,
}

impl<L> Successors<L> {
    pub(crate) fn none() -> Successors<L> {
        Successors { live: None, has_own_settings: false }
    }

    pub(crate) fn of(live: Arc<dyn LiveRules<L>>) -> Successors<L> {
        Successors { live: Some(live), has_own_settings: false }
    }

    /// Those of a limiter whose settings were changed.
    pub(super) fn with_own_settings(self) -> Successors<L> {
        Successors { has_own_settings: true, ..self }
    }

    pub(super) fn latest_version(&self) -> LatestVersion {
        self.live.as_ref().map_or_else(LatestVersion::default, |live| live.latest_version())
    }
}

impl<L> Clone for Successors<L> {
    fn clone(&self) -> Successors<L> {
        Successors { live: self.live.clone(), ..*self }
    }
}

impl<L> fmt::Debug for Successors<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Successors(..)")
    }
}
