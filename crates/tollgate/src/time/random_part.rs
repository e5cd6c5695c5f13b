//! Random parts of waits, so that clients do not return at the same moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::Share;

/// What turns waits into longer ones: each by the same random part of it.
#[derive(Clone, Copy)]
pub(crate) struct RandomPart {
    most: Share,
    random: u128,
}

impl RandomPart {
    /// A part of up to `most`.
    pub(crate) fn up_to(most: Share) -> RandomPart {
        // Each `RandomState` has another secret.
        RandomPart { most, random: RandomState::new().hash_one(0).into() }
    }

    pub(crate) fn lengthen(self, wait: Duration) -> Duration {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let extra = (u128::from(self.most.of_units(micros)) * self.random) >> 64;
        wait.saturating_add(Duration::from_micros(extra as u64))
    }
}
