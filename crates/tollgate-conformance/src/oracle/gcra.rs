//! The textbook token bucket: a level that rises by limit / window, up to the burst.
//!
//! The level is an integer at any rate: a microsecond adds `limit` and a unit removes `window`.

use super::{Mark, Model, Terms, rescaled};

#[derive(Debug, Default)]
pub(super) struct TokenBucket(Option<Level>);

/// The level at a time. It may exceed the capacity; reading it limits it.
#[derive(Debug)]
struct Level {
    at: i128,
    level: i128,
    /// The capacity and the rate at the time of writing.
    capacity: i128,
    limit: i128,
}

impl TokenBucket {
    fn level(&self, terms: &Terms, t: i128) -> i128 {
        let capacity = terms.burst * terms.window;
        self.0.as_ref().map_or(capacity, |level| capacity.min(level.level + (t - level.at) * terms.limit))
    }

    fn write(&mut self, terms: &Terms, at: i128, level: i128) {
        let capacity = terms.burst * terms.window;
        self.0 = Some(Level { at, level, capacity, limit: terms.limit });
    }
}

impl Model for TokenBucket {
    fn settle(&mut self, terms: &Terms, now: i128) {
        let Some(old) = &self.0 else { return };
        let capacity = terms.burst * terms.window;
        if (old.capacity, old.limit) != (capacity, terms.limit) {
            // After a change of limit or burst, the missing level keeps its value in time.
            let lacking = rescaled(old.capacity - old.level, old.limit, terms.limit);
            let at = old.at;
            self.write(terms, at, capacity - lacking);
        }
        if self.level(terms, now) < capacity - terms.furthest {
            self.write(terms, now, 0);
        }
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        self.level(terms, t).max(0) / terms.window
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.level(terms, t) == terms.burst * terms.window
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let level = self.level(terms, now) - units * terms.window;
        if units > 0 {
            self.write(terms, now, level);
        }
        // The time at which the bucket will be full again.
        Mark { at: now * terms.limit + terms.burst * terms.window - level, scale: terms.limit }
    }

    fn refund(&mut self, terms: &Terms, now: i128, units: i128, mark: Mark) {
        let Some(old) = &self.0 else { return };
        // The span between now and the mark has not been refilled yet.
        let finish = rescaled(mark.at, mark.scale, terms.limit);
        let owed = (finish - now * terms.limit).max(0);
        // So much debt was cut to the capacity when the clock stepped back.
        let full = terms.burst * terms.window;
        let forgiven = if owed > terms.furthest { owed - full } else { 0 };
        let back = (owed.min(units * terms.window).min(full) - forgiven).max(0);
        let level = old.level + (now - old.at) * terms.limit + back;
        self.write(terms, now, level);
    }
}
