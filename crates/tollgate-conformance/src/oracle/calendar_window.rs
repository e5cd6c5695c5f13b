//! Recounts the grants of a window of a calendar, each labelled with the end of its window, as the
//! first of them saw it.

use super::entries::Entries;
use super::{Mark, Model, Terms};

#[derive(Debug, Default)]
pub(super) struct CalendarWindow(Entries);

/// When the last window ends: after the end of time.
const END: i128 = 1 << 53;

/// The first boundary after `t`.
fn end_of(terms: &Terms, t: i128) -> i128 {
    let at = terms.boundaries.partition_point(|boundary| i128::from(*boundary) <= t);
    terms.boundaries.get(at).map_or(END, |boundary| i128::from(*boundary))
}

impl Model for CalendarWindow {
    fn settle(&mut self, terms: &Terms, now: i128) {
        self.0.forget_before(now + 1);
        let own = end_of(terms, now);
        // No window is longer than its nominal length by more than an eighth: the clock stepped
        // back.
        let latest = own.max(now + terms.window * 9 / 8);
        self.0.relabel(|end| if end > latest { own } else { end });
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        terms.limit - self.0.sum(|end| t < end)
    }

    fn is_unused(&self, _terms: &Terms, t: i128) -> bool {
        self.0.sum(|end| t < end) == 0
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let end = self.0.newest().unwrap_or_else(|| end_of(terms, now));
        self.0.push(end, units);
        Mark { at: end, scale: 1 }
    }

    fn refund(&mut self, _terms: &Terms, _now: i128, units: i128, mark: Mark) {
        self.0.take_back(mark.at, units);
    }

    fn credit(&mut self, _terms: &Terms, _now: i128, units: i128) {
        self.0.take_newest(units);
    }
}
