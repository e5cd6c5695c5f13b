//! Recounts the grants of a window of a calendar, each labelled with the start of its window.

use super::entries::Entries;
use super::{Mark, Model, Terms};

#[derive(Debug, Default)]
pub(super) struct CalendarWindow(Entries);

/// When the last window ends: after the end of time.
const END: i128 = 1 << 53;

/// The latest boundary up to `t`, or the epoch.
fn start_of(terms: &Terms, t: i128) -> i128 {
    match terms.boundaries.binary_search_by_key(&t, |boundary| i128::from(*boundary)) {
        _ if t >= END => END,
        Ok(_) => t,
        Err(0) => 0,
        Err(next) => i128::from(terms.boundaries[next - 1]),
    }
}

impl Model for CalendarWindow {
    fn settle(&mut self, terms: &Terms, now: i128) {
        self.0.forget_before(start_of(terms, now));
        // A window that begins in the future begins now.
        self.0.relabel(|start| start.min(now));
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        let from = start_of(terms, t);
        terms.limit - self.0.sum(|start| start >= from)
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        let from = start_of(terms, t);
        self.0.sum(|start| start >= from) == 0
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let start = self.0.newest().unwrap_or_else(|| start_of(terms, now));
        self.0.push(start, units);
        Mark { at: start, scale: 1 }
    }

    fn refund(&mut self, _terms: &Terms, _now: i128, units: i128, mark: Mark) {
        self.0.take_back(mark.at, units);
    }
}
