//! A request that was charged, with what a refund of it needs.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{End, Grant, Store};

use super::asking::Claimed;
use crate::charge::GrantStamp;
use crate::in_flight::Slot;
use crate::never_fails::ColdStore;
use crate::plan::{Ask, Asks, PolicyRef};
use crate::report::Report;

/// A request that was charged and may pass.
#[must_use = "a leaky bucket asks for a delay before the request passes: see `delay`"]
pub struct Permit {
    pub(crate) report: Report,
    /// `None` for what was taken out.
    asks: SmallVec<[Option<Ask>; 4]>,
    delay: Duration,
    slot: Slot,
}

impl Permit {
    /// The permit of a set that was granted, with the slots that it holds.
    pub(crate) fn new(report: Report, asks: Asks, slot: Slot) -> Permit {
        let delay = report.verdict().delay();
        Permit { report, asks: asks.into_iter().map(Some).collect(), delay, slot }
    }

    /// The permit after its delay.
    pub(crate) fn delayed(self) -> Permit {
        Permit { delay: Duration::ZERO, ..self }
    }

    /// Gives back what it was charged, but for what was [taken](Permit::take).
    pub(crate) fn refund(&self, store: &ColdStore) -> impl End<(), Infallible> + use<> {
        let grants: SmallVec<[Grant<'_>; 4]> = self
            .asks
            .iter()
            .zip(self.report.iter())
            // Slots come back when the permit is dropped.
            .filter(|(_, (policy, _))| !policy.is_in_flight())
            .filter_map(|(ask, (policy, status))| {
                let ask = ask.as_ref().filter(|ask| ask.cost > 0)?;
                let (stamp, share) = (status.stamp(), self.report.share());
                Some(Grant { policy, key: &ask.key, units: ask.cost, stamp, share })
            })
            .collect();
        // None if no rule applied, or if a failure policy decided.
        let refund = (!grants.is_empty()).then(|| store.refund(&grants));
        async move {
            match refund {
                Some(refund) => refund.await,
                None => Ok(()),
            }
        }
    }

    /// What a store granted for the ask at this place. `None` if a failure policy decided.
    pub(crate) fn granted(&self, at: usize) -> Option<GrantStamp> {
        let stamp = self.report.statuses().get(at)?.stamp();
        Some(GrantStamp { stamp, share: self.report.share() })
    }

    /// Takes what one policy charged out of this permit, once: a refund leaves it out then.
    pub(crate) fn take(&mut self, is_it: impl Fn(&PolicyRef) -> bool) -> Option<(Ask, Option<GrantStamp>)> {
        let is_it = |ask: &Option<Ask>| ask.as_ref().is_some_and(|ask| is_it(&ask.policy));
        let at = self.asks.iter().position(is_it)?;
        Some((self.asks[at].take()?, self.granted(at)))
    }

    /// Takes all that is left, with what a store granted for each.
    pub(crate) fn take_all(mut self) -> (Asks, SmallVec<[Option<GrantStamp>; 4]>) {
        std::iter::from_fn(|| self.take(|_| true)).unzip()
    }

    /// The verdict, and the slots that it granted.
    pub(crate) fn claimed(self) -> Claimed {
        (self.report.verdict().clone(), self.slot)
    }

    /// Returns how long to wait before the work: zero unless a
    /// [`LeakyBucket`](crate::Algorithm::LeakyBucket) has reserved a place that far ahead. Zero for
    /// a permit of [`Limiter::until_ready`](crate::Limiter::until_ready), which has waited.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns what the permit holds of policies of [requests in
    /// flight](crate::Policy::in_flight), until its last clone is dropped. Without such a policy it
    /// holds nothing.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let jobs = Limiter::new([Policy::in_flight("jobs", 1)]);
    /// let user = Key::from("ada");
    ///
    /// let permit = jobs.check(&user, 1).await?;
    /// assert!(jobs.check(&user, 1).await.is_err());
    /// drop(permit);
    /// assert!(jobs.check(&user, 1).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Returns the state of the rules after the charge.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys, which may be secrets.
        f.debug_struct("Permit").field("report", &self.report).finish_non_exhaustive()
    }
}
