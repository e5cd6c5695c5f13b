//! How long callers wait, and what for.

use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::Denial;
use crate::time::YEAR;

/// How long each ask of a set may wait for its slot.
pub(super) type Waits = SmallVec<[Duration; 4]>;

/// What a caller waits for, and how long.
pub(super) enum Patience {
    /// For rules of any kind and for the store.
    ForAll(Duration),
    /// For slots, as long as the rule of each that refuses says. Other refusals are for the client,
    /// which may have a deadline for the queue of a leaky bucket.
    ForSlots(Waits, Option<Duration>),
}

impl Patience {
    pub(super) fn longest(&self) -> Duration {
        match self {
            Patience::ForAll(at_most) => *at_most,
            Patience::ForSlots(of_each, _) => of_each.iter().copied().max().unwrap_or_default(),
        }
    }

    /// How long a caller with this denial may wait.
    pub(super) fn of(&self, denial: &Denial) -> Duration {
        match self {
            Patience::ForAll(at_most) => *at_most,
            Patience::ForSlots(of_each, _) => {
                let refusing = denial.violated_at().map(|at| of_each.get(at).copied().unwrap_or_default());
                refusing.min().unwrap_or_default()
            }
        }
    }

    /// How long the store may let the caller wait, after so much time.
    pub(super) fn deadline(&self, elapsed: Duration) -> Option<Duration> {
        match self {
            Patience::ForAll(at_most) => Some((*at_most).min(YEAR).saturating_sub(elapsed)),
            Patience::ForSlots(_, deadline) => deadline.map(|deadline| deadline.saturating_sub(elapsed)),
        }
    }

    pub(super) fn is_for_all(&self) -> bool {
        matches!(self, Patience::ForAll(_))
    }
}
