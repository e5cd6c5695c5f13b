//! Requests that wait, by the rules that apply meanwhile.

use std::borrow::Cow;
use std::time::Duration;

use tollgate_core::Store;

use super::permit::Permit;
use super::replacement::{LatestVersion, Successors, Waited, Waiting};
use super::request::RequestLimiter;
use crate::denial::Denial;
use crate::extract::Head;
use crate::never_fails::NeverFails;

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
        match self.decider.plan.waits(&asks, None) {
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
        let decider = self.decider.by(latest.decider.plan);
        Some(RequestLimiter { decider, successors: Successors::none() })
    }
}
