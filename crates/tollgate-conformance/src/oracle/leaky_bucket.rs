//! The queue, by Reich's equation. The backlog at t is the maximum over all arrivals s: the work
//! that arrived since s, less what can be done between s and t.
//!
//! Work is scaled: a microsecond does `limit` of it, and a unit adds `window`. A request leaves
//! once the backlog is at most the burst.

use super::{Mark, Model, Terms, ceil_div, rescaled};

#[derive(Debug, Default)]
pub(super) struct Queue {
    arrivals: Vec<Arrival>,
    /// The rate that the work is scaled by.
    limit: i128,
}

#[derive(Debug)]
struct Arrival {
    at: i128,
    work: i128,
}

impl Queue {
    fn waiting(&self, terms: &Terms, t: i128) -> i128 {
        let mut since = 0;
        let mut most = 0;
        for arrival in self.arrivals.iter().rev() {
            since += arrival.work;
            most = most.max(since - (t - arrival.at) * terms.limit);
        }
        most
    }

    /// The time at which all work is done, × limit.
    fn finish(&self, terms: &Terms) -> i128 {
        let mut since = 0;
        let finishes = self.arrivals.iter().rev().map(|arrival| {
            since += arrival.work;
            arrival.at * terms.limit + since
        });
        finishes.max().unwrap_or(0)
    }
}

impl Model for Queue {
    fn settle(&mut self, terms: &Terms, now: i128) {
        if self.limit != terms.limit {
            // After a change of the limit, the work keeps its value in time.
            for arrival in &mut self.arrivals {
                arrival.work = rescaled(arrival.work, self.limit, terms.limit);
            }
            self.limit = terms.limit;
        }
        let windows = (128 * terms.window).min(1 << 52) * terms.limit;
        if self.waiting(terms, now) > terms.horizon().max(windows) {
            self.arrivals = vec![Arrival { at: now, work: terms.horizon() }];
        }
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        (terms.burst * terms.window - self.waiting(terms, t)).max(0) / terms.window
    }

    fn room(&self, terms: &Terms, t: i128) -> i128 {
        (terms.horizon() - self.waiting(terms, t)).max(0) / terms.window
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.waiting(terms, t) == 0
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        if units > 0 {
            if self.waiting(terms, now) == 0 {
                // A busy period begins: earlier work is done.
                self.arrivals.clear();
            }
            self.arrivals.push(Arrival { at: now, work: units * terms.window });
        }
        Mark { at: self.finish(terms), scale: terms.limit }
    }

    fn delay(&self, terms: &Terms, now: i128) -> i128 {
        let too_early = self.waiting(terms, now) - terms.burst * terms.window;
        ceil_div(too_early.max(0), terms.limit)
    }

    fn refund(&mut self, terms: &Terms, now: i128, units: i128, mark: Mark) {
        let waiting = self.waiting(terms, now);
        let (whole, rest) = (mark.at.div_euclid(mark.scale), mark.at.rem_euclid(mark.scale));
        let finish = self.finish(terms) - whole * terms.limit;
        // Only the latest: later requests already have their delay.
        if waiting > 0 && (0..terms.limit).contains(&finish) && finish * mark.scale == rest * terms.limit {
            let work = (waiting - (units * terms.window).min(terms.horizon())).max(0);
            self.arrivals = vec![Arrival { at: now, work }];
        }
    }
}
