//! Recounts the grants of less than a window ago.

use tollgate_core::Algorithm;

use super::entries::Entries;
use super::{Mark, Model, Terms};

#[derive(Debug, Default)]
pub(super) struct SlidingLog(Entries);

impl SlidingLog {
    fn used(&self, terms: &Terms, t: i128) -> i128 {
        self.0.sum(|at| t - at < terms.window)
    }
}

impl Model for SlidingLog {
    fn settle(&mut self, terms: &Terms, now: i128) {
        // Future entries happened now.
        self.0.relabel(|at| at.min(now));
        self.0.forget_before(now - terms.window + 1);
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        terms.limit - self.used(terms, t)
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.used(terms, t) == 0
    }

    fn charge(&mut self, _terms: &Terms, now: i128, units: i128) -> Mark {
        self.0.push(now, units);
        Mark { at: now, scale: 1 }
    }

    fn usage(&self, _terms: &Terms, now: i128, interval: i128) -> Option<i128> {
        Some(self.0.sum(|at| now - at < interval))
    }

    fn refund(&mut self, _terms: &Terms, _now: i128, units: i128, mark: Mark) {
        if self.0.labels_after(mark.at) < Algorithm::REFUNDABLE_TIMES {
            self.0.take_back(mark.at, units);
        }
    }

    fn credit(&mut self, _terms: &Terms, _now: i128, units: i128) {
        self.0.take_newest(units);
    }
}
