//! Recounts the current window and the previous one, weighted by its part that is still covered.

use super::entries::Numbered;
use super::{Mark, Model, Terms, ceil_div};

#[derive(Debug, Default)]
pub(super) struct SlidingWindow(Numbered);

impl SlidingWindow {
    fn used(&self, terms: &Terms, t: i128) -> i128 {
        let (number, elapsed) = (t.div_euclid(terms.window), t.rem_euclid(terms.window));
        let previous = self.0.entries.sum(|label| label == number - 1);
        let current = self.0.entries.sum(|label| label == number);
        ceil_div(previous * (terms.window - elapsed), terms.window) + current
    }
}

impl Model for SlidingWindow {
    fn settle(&mut self, terms: &Terms, now: i128) {
        let number = now.div_euclid(terms.window);
        self.0.move_to(number, number - 1);
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        terms.limit - self.used(terms, t)
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.used(terms, t) == 0
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let number = now.div_euclid(terms.window);
        self.0.entries.push(number, units);
        Mark { at: number, scale: 1 }
    }

    fn refund(&mut self, _terms: &Terms, _now: i128, units: i128, mark: Mark) {
        self.0.entries.take_back(mark.at, units);
    }

    fn credit(&mut self, _terms: &Terms, _now: i128, units: i128) {
        self.0.entries.take_newest(units);
    }
}
