//! Recounts the N + 1 sub-windows that overlap the last window.

use super::entries::Numbered;
use super::{Mark, Model, Terms, ceil_div};

#[derive(Debug, Default)]
pub(super) struct SlidingBuckets(Numbered);

fn number(terms: &Terms, t: i128) -> i128 {
    t.div_euclid(ceil_div(terms.window, terms.buckets))
}

impl SlidingBuckets {
    fn used(&self, terms: &Terms, t: i128) -> i128 {
        let number = number(terms, t);
        self.0.entries.sum(|label| label >= number - terms.buckets)
    }
}

impl Model for SlidingBuckets {
    fn settle(&mut self, terms: &Terms, now: i128) {
        let number = number(terms, now);
        self.0.move_to(number, number - terms.buckets);
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        terms.limit - self.used(terms, t)
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.used(terms, t) == 0
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let number = number(terms, now);
        self.0.entries.push(number, units);
        Mark { at: number, scale: 1 }
    }

    fn usage(&self, terms: &Terms, now: i128, interval: i128) -> Option<i128> {
        let span = ceil_div(terms.window, terms.buckets);
        let last = |label: i128| (label + 1) * span - 1;
        Some(self.0.entries.sum(|label| now - last(label) < interval))
    }

    fn refund(&mut self, _terms: &Terms, _now: i128, units: i128, mark: Mark) {
        self.0.entries.take_back(mark.at, units);
    }

    fn credit(&mut self, _terms: &Terms, _now: i128, units: i128) {
        self.0.entries.take_newest(units);
    }
}
