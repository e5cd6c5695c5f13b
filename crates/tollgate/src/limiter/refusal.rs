//! What callers that wait know of each other.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{Verdict, Wait};

use crate::decision::{Denial, Report};
use crate::plan::{Ask, Plan};
use crate::time::YEAR;

/// What a policy that refuses a caller says to others that want the same key of it.
#[derive(Clone)]
pub(crate) struct Refusal {
    /// That of this policy alone, because other keys of the caller are not theirs.
    pub(crate) denial: Denial,
    cost: u64,
    /// Until when no caller of this cost passes, as far as is known.
    until: Instant,
}

impl Refusal {
    /// That of a caller whose store fails, for callers of any cost.
    pub(crate) fn of_failure(denial: &Denial, until: Instant) -> Refusal {
        Refusal { denial: denial.clone(), cost: 0, until }
    }

    /// The refusals of a denial: the place of each ask that refused, and how long it does.
    pub(crate) fn each(
        denial: &Denial,
        asks: &[Ask],
        now: Instant,
    ) -> SmallVec<[(usize, Duration, Refusal); 2]> {
        let (report, verdict) = (denial.report(), denial.report().verdict());
        let by = |at: usize| {
            let (ask, status) = (&asks[at], verdict.each()[at]);
            let Wait::For(lasts) = status.wait() else { return None };
            let of_one = Verdict::new(0, Duration::ZERO, [status]).as_decided_by(verdict);
            let denial = Denial::of(Report::new(report.plan(), [ask.policy.clone()], of_one));
            // A slot may come back at any time.
            let is_slot = report.plan().policy(&ask.policy).is_in_flight();
            let until = if is_slot { now } else { now + lasts.min(YEAR) };
            Some((at, lasts, Refusal { denial, cost: ask.cost, until }))
        };
        denial.violated_at().filter_map(by).collect()
    }

    /// Whether these rules refused, and not earlier ones: a queue outlives them.
    pub(crate) fn is_of(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(self.denial.report().plan(), plan)
    }

    /// Whether a caller for the same key, which waits until `end`, would be refused too. Nothing is
    /// known of other policies than those that refused.
    pub(crate) fn holds_for(&self, plan: &Arc<Plan>, cost: u64, end: Instant) -> bool {
        self.is_of(plan) && self.until > end && self.cost <= cost
    }
}
