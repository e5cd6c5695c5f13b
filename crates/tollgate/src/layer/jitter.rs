//! Longer waits for refused requests, so that clients do not return at the same moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::{Status, Verdict, Wait};

/// The same verdict, with all waits longer by the same random part of up to `fraction`.
pub(crate) fn lengthened(verdict: &Verdict, fraction: f64) -> Verdict {
    // Each `RandomState` has another secret. 53 bits are what an `f64` holds.
    let random = (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64;
    let lengthened = |wait: Duration| wait.saturating_add(wait.mul_f64(fraction * random));
    let each = verdict.each().iter().map(|status| match status.wait() {
        Wait::For(wait) => {
            let wait = lengthened(wait);
            let reset_after = status.reset_after().max(wait);
            Status::new(status.remaining(), Wait::For(wait), reset_after, status.stamp())
        }
        Wait::None | Wait::Never => *status,
    });
    let longer = Verdict::new(verdict.times(), verdict.delay(), each).from_source(verdict.source());
    match verdict.share() {
        Some(share) => longer.of_share(share),
        None => longer,
    }
}
