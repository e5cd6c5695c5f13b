//! What callers that wait know of each other.

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::denial::Denial;
use crate::policy_set::Ask;

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

    /// Whether a caller for the same keys, which waits until `end`, would be refused too.
    pub(crate) fn holds_for(&self, asks: &[Ask], end: Instant) -> bool {
        self.until > end && self.costs.iter().zip(asks).all(|(cost, ask)| *cost <= ask.cost)
    }
}
