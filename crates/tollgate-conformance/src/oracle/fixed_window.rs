//! Recounts the grants of the window, each labelled with the start of its window.

use super::entries::Entries;
use super::{Mark, Model, Terms};

#[derive(Debug, Default)]
pub(super) struct FixedWindow(Entries);

impl Model for FixedWindow {
    fn settle(&mut self, terms: &Terms, now: i128) {
        self.0.forget_before(now - terms.window + 1);
        // A window that begins in the future begins now.
        self.0.relabel(|start| start.min(now));
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        terms.limit - self.0.sum(|start| t < start + terms.window)
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.0.sum(|start| t < start + terms.window) == 0
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let start = match self.0.newest() {
            Some(start) => start,
            None if terms.aligned => now.div_euclid(terms.window) * terms.window,
            None => now,
        };
        self.0.push(start, units);
        Mark { at: start, scale: 1 }
    }

    fn refund(&mut self, _terms: &Terms, _now: i128, units: i128, mark: Mark) {
        self.0.take_back(mark.at, units);
    }

    fn credit(&mut self, _terms: &Terms, _now: i128, units: i128) {
        self.0.take_newest(units);
    }
}
