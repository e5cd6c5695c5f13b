//! Longer waits for refused requests, so that clients do not return at the same moment.

use tollgate_core::{Share, Status, Verdict, Wait};

use crate::time::random_part::RandomPart;

/// The same verdict, with all waits longer by the same random part of up to `most`.
pub(crate) fn lengthened(verdict: &Verdict, most: Share) -> Verdict {
    let part = RandomPart::up_to(most);
    let each = verdict.each().iter().map(|status| match status.wait() {
        Wait::For(wait) => {
            let wait = part.lengthen(wait);
            let reset_after = status.reset_after().max(wait);
            Status::new(status.remaining(), Wait::For(wait), reset_after, status.stamp())
        }
        Wait::None | Wait::Never => *status,
    });
    Verdict::new(verdict.times(), verdict.delay(), each).as_decided_by(verdict)
}
