//! A request that was charged, with what a refund of it needs.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Grant, Reply, Stamp, Status, Store};

use crate::policy_set::Asks;
use crate::report::Report;

/// A request that was charged and may pass.
#[must_use = "a leaky bucket asks for a delay before the request passes: see `delay`"]
pub struct Permit {
    pub(crate) report: Report,
    pub(crate) asks: Asks,
    /// Identify the units that have not been refunded yet.
    pub(crate) stamps: SmallVec<[Stamp; 4]>,
    delay: Duration,
}

impl Permit {
    /// The permit of a set that was granted.
    pub(crate) fn new(report: Report, asks: Asks) -> Permit {
        let stamps = report.statuses().iter().map(Status::stamp).collect();
        let delay = report.verdict().delay();
        Permit { report, asks, stamps, delay }
    }

    /// The permit after its delay.
    pub(crate) fn delayed(self) -> Permit {
        Permit { delay: Duration::ZERO, ..self }
    }

    /// Gives back up to `units` of what these policies charged, by their numbers in the set.
    pub(crate) fn start_refund<S: Store>(
        &mut self,
        store: &S,
        is_refunded: impl Fn(usize) -> bool,
        units: u64,
    ) -> Reply<Result<(), S::Error>, S::Done> {
        let Permit { report, asks, stamps, .. } = self;
        let share = report.share();
        let grants: SmallVec<[Grant<'_>; 4]> = asks
            .iter_mut()
            .zip(stamps)
            .zip(report.iter())
            .filter(|((ask, _), _)| is_refunded(ask.policy))
            .map(|((ask, stamp), (policy, _))| {
                let units = ask.cost.min(units);
                ask.cost -= units;
                let grant = Grant { policy, key: &ask.key, units, stamp: *stamp, share };
                // A fallback has counted by its share of the policy.
                let part = share.and_then(|share| policy.share(share).ok());
                *stamp = stamp.after_refund(part.as_ref().unwrap_or(policy), units);
                grant
            })
            .collect();
        if grants.iter().all(|grant| grant.units == 0) {
            // No rule applied, a failure policy decided, or all units were refunded before.
            return Reply::Now(Ok(()));
        }
        store.refund(&grants)
    }

    /// Returns how long to wait before the work: zero unless a
    /// [`LeakyBucket`](crate::Algorithm::LeakyBucket) has reserved a slot that far ahead. Zero for
    /// a permit of [`Limiter::until_ready`](crate::Limiter::until_ready), which has waited.
    pub fn delay(&self) -> Duration {
        self.delay
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
