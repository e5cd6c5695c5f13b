//! Longer waits for refused requests, so that clients do not return at the same moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::{Share, Status, Verdict, Wait};

/// The same verdict, with all waits longer by the same random part of up to `most`.
pub(crate) fn lengthened(verdict: &Verdict, most: Share) -> Verdict {
    // Each `RandomState` has another secret.
    let random = u128::from(RandomState::new().hash_one(0));
    let lengthened = |wait: Duration| {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let extra = (u128::from(most.of_units(micros)) * random) >> 64;
        wait.saturating_add(Duration::from_micros(extra as u64))
    };
    let each = verdict.each().iter().map(|status| match status.wait() {
        Wait::For(wait) => {
            let wait = lengthened(wait);
            let reset_after = status.reset_after().max(wait);
            Status::new(status.remaining(), Wait::For(wait), reset_after, status.stamp())
        }
        Wait::None | Wait::Never => *status,
    });
    Verdict::new(verdict.times(), verdict.delay(), each).as_decided_by(verdict)
}
