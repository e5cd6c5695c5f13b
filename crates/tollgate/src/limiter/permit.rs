//! A request that was charged, and what becomes of its charges.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::task::JoinHandle;
use tollgate_core::{End, Grant, Settled, Store};

use crate::decision::{GrantStamp, InForce, Report};
use crate::in_flight::{HeldUntilDropped, Slot};
use crate::plan::{Ask, Asks};
use crate::time::ending::Home;

/// A request that was charged and may pass. Dropped, it keeps its charges and releases its
/// [slots](Permit::slot).
#[must_use = "dropped, a permit keeps its charges and releases its slots: hold it while the work runs, and await its `delay`"]
pub struct Permit {
    pub(super) report: Report,
    /// Those that were taken out have the empty key.
    pub(super) asks: Asks,
    delay: Duration,
    pub(super) slot: Slot,
    pub(super) in_force: Arc<InForce>,
}

impl Permit {
    /// The permit of a set that was granted, which holds no slots yet.
    pub(crate) fn new(report: Report, asks: Asks, in_force: Arc<InForce>) -> Permit {
        let delay = report.verdict().delay();
        Permit { report, asks, delay, slot: Slot::default(), in_force }
    }

    /// The permit after its delay.
    pub(crate) fn delayed(self) -> Permit {
        Permit { delay: Duration::ZERO, ..self }
    }

    /// Returns the units of each policy to the store that granted them, as far as the algorithms
    /// allow: see [`Store::refund`]. What a [charge](Permit::charge) has taken stays out. The
    /// refund goes on if the caller leaves.
    pub async fn refund(self) {
        self.in_force.end(&Home::here(), || self.give_back()).finish().await;
    }

    pub(super) fn give_back(&self) -> impl End<(), Infallible> + use<> {
        let plan = &self.in_force.plan;
        let charged = self.asks.iter().enumerate().filter(|(_, ask)| ask.cost > 0 && self.charges(ask));
        let grants: SmallVec<[Grant<'_>; 4]> = charged
            .filter_map(|(at, Ask { policy, key, cost })| {
                Some(GrantStamp::of(self.report.verdict(), at)?.grant(plan.policy(policy), key, *cost))
            })
            .collect();
        // None if no rule applied, or if a failure policy decided.
        let refund = (!grants.is_empty()).then(|| self.in_force.store.refund(&grants));
        async move {
            match refund {
                Some(refund) => refund.await,
                None => Ok(()),
            }
        }
    }

    /// Whether units are charged for an ask, and were not taken out.
    pub(super) fn charges(&self, ask: &Ask) -> bool {
        !ask.key.is_empty() && self.in_force.plan.charges(ask)
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

    /// Releases the slots after these corrections.
    pub(super) fn release_after(self, corrections: Vec<JoinHandle<Settled>>) {
        HeldUntilDropped::new(self.slot).correct_first(corrections);
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
