//! How callers that wait hear that their rules were replaced.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tollgate_core::Store;

use super::never_fails::NeverFails;
use super::permit::Permit;
use super::refusal::Refusal;
use super::request::RequestLimiter;
use super::wait_queue::Waiter;
use crate::denial::Denial;
use crate::extract::Head;

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
pub(crate) trait LiveRules<S>: Send + Sync {
    fn latest(&self) -> RequestLimiter<S>;
    fn latest_version(&self) -> LatestVersion;
}

/// The rules that replace those of a limiter, if it is that of a layer.
pub(crate) struct Successors<S> {
    live: Option<Arc<dyn LiveRules<S>>>,
    /// Whether the limiter has settings that the layer does not have.
    has_own_settings: bool,
}

impl<S> Successors<S> {
    pub(crate) fn none() -> Successors<S> {
        Successors { live: None, has_own_settings: false }
    }

    pub(crate) fn of(live: Arc<dyn LiveRules<S>>) -> Successors<S> {
        Successors { live: Some(live), has_own_settings: false }
    }

    /// Those of a limiter whose settings were changed.
    pub(super) fn with_own_settings(self) -> Successors<S> {
        Successors { has_own_settings: true, ..self }
    }

    fn latest_version(&self) -> LatestVersion {
        self.live.as_ref().map_or_else(LatestVersion::default, |live| live.latest_version())
    }
}

impl<S: Store<Error: NeverFails>> RequestLimiter<S> {
    /// Asks these rules, and if they are replaced while the caller waits, those that apply then.
    /// With `at_most` it waits until they allow it, otherwise for slots only.
    pub(super) async fn ask_in_turn(
        &self,
        head: &Head<'_>,
        at_most: Option<Duration>,
    ) -> Result<Permit, Denial> {
        let (mut limiter, mut waiting) = (Cow::Borrowed(self), Waiting::default());
        loop {
            let latest = self.successors.latest_version();
            let waited = match at_most {
                Some(at_most) => {
                    limiter.decider.admit_in_turn(limiter.asks(head), at_most, waiting, latest).await
                }
                None => limiter.check_in_turn(head, waiting, latest).await,
            };
            match waited {
                Waited::Over(decided) => return Ok(limiter.passed(head, decided?)),
                Waited::Replaced(place) => {
                    waiting = place;
                    limiter = self.latest().map_or(limiter, Cow::Owned);
                }
            }
        }
    }

    async fn check_in_turn(
        &self,
        head: &Head<'_>,
        waiting: Waiting,
        latest: LatestVersion,
    ) -> Waited<Result<Permit, Denial>> {
        let asks = match self.decider.shown(self.asks(head)) {
            Ok(asks) => asks,
            Err(denial) => return Waited::Over(Err(denial)),
        };
        match self.rules.waits(&self.decider.policies, &asks, None) {
            Some(waits) => self.decider.charge_for_slots(asks, waits, waiting, latest).await,
            None => Waited::Over(self.decider.charge(asks, None).await),
        }
    }

    /// The limiter of the rules that apply now, with the settings of this one.
    fn latest(&self) -> Option<RequestLimiter<S>> {
        let latest = self.successors.live.as_ref()?.latest();
        if !self.successors.has_own_settings {
            return Some(latest);
        }
        let decider = latest.decider.with_settings_of(&self.decider);
        let shadow = latest.shadow.with(|decider| decider.with_settings_of(&self.shadow.decider));
        Some(RequestLimiter { rules: latest.rules, decider, shadow, successors: Successors::none() })
    }
}

impl<S> Clone for Successors<S> {
    fn clone(&self) -> Successors<S> {
        Successors { live: self.live.clone(), ..*self }
    }
}

impl<S> fmt::Debug for Successors<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Successors(..)")
    }
}
