//! What callers that wait know of each other.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::denial::Denial;
use crate::policy_set::{Ask, PolicySet};

/// The denial of a caller that waits, for others in its queue.
#[derive(Clone)]
pub(crate) struct Refusal {
    pub(crate) denial: Denial,
    costs: SmallVec<[u64; 4]>,
    /// Until when no caller of these costs passes, as far as is known.
    until: Instant,
}

impl Refusal {
    pub(crate) fn new(denial: Denial, asks: &[Ask], until: Instant) -> Refusal {
        Refusal { denial, costs: asks.iter().map(|ask| ask.cost).collect(), until }
    }

    /// Whether a caller for the same keys, which waits until `end`, would be refused too. Not by
    /// other policies.
    pub(crate) fn holds_for(&self, policies: &Arc<PolicySet>, asks: &[Ask], end: Instant) -> bool {
        let is_of_these = Arc::ptr_eq(self.denial.report().policy_set(), policies);
        is_of_these && self.until > end && self.costs.iter().zip(asks).all(|(cost, ask)| *cost <= ask.cost)
    }
}
