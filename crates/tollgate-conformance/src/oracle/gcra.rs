//! The token bucket of the textbook: a level that rises by limit / window with time, up to the burst.
//!
//! The level is scaled by the window, so that a microsecond adds `limit` to it and a unit takes `window` from it:
//! whole numbers, whatever the rate.

use super::{Mark, Model, Terms, ceil_div};

#[derive(Debug, Default)]
pub(super) struct TokenBucket(Option<Level>);

/// The level at a time. It may stand above the brim, where it is cut off when it is read.
#[derive(Debug)]
struct Level {
    at: i128,
    level: i128,
    /// The brim and the rate that the level was written under.
    brim: i128,
    limit: i128,
}

impl TokenBucket {
    fn level(&self, terms: &Terms, t: i128) -> i128 {
        let brim = terms.burst * terms.window;
        self.0.as_ref().map_or(brim, |level| brim.min(level.level + (t - level.at) * terms.limit))
    }

    fn write(&mut self, terms: &Terms, at: i128, level: i128) {
        let brim = terms.burst * terms.window;
        self.0 = Some(Level { at, level, brim, limit: terms.limit });
    }
}

impl Model for TokenBucket {
    fn settle(&mut self, terms: &Terms, now: i128) {
        let Some(old) = &self.0 else { return };
        let brim = terms.burst * terms.window;
        if (old.brim, old.limit) != (brim, terms.limit) {
            // Where limit or burst changed, what is lacking stays as it is in time.
            let lacking = ceil_div((old.brim - old.level) * terms.limit, old.limit);
            let at = old.at;
            self.write(terms, at, brim - lacking);
        }
        if self.level(terms, now) < 0 {
            self.write(terms, now, 0);
        }
    }

    fn remaining(&self, terms: &Terms, t: i128) -> i128 {
        self.level(terms, t) / terms.window
    }

    fn is_unused(&self, terms: &Terms, t: i128) -> bool {
        self.level(terms, t) == terms.burst * terms.window
    }

    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark {
        let level = self.level(terms, now) - units * terms.window;
        if units > 0 {
            self.write(terms, now, level);
        }
        // When the bucket will be full again.
        Mark { at: now * terms.limit + terms.burst * terms.window - level, scale: terms.limit }
    }

    fn refund(&mut self, terms: &Terms, now: i128, units: i128, mark: Mark) {
        let Some(old) = &self.0 else { return };
        // What lies between now and the mark has not been refilled yet; the rest came back with time.
        let finish = ceil_div(mark.at * terms.limit, mark.scale);
        let owed = (finish - now * terms.limit).max(0);
        // More than a bucket holds is owed by no grant of now: the clock has stepped back, or the burst was lowered, and that much
        // was forgiven.
        let full = terms.burst * terms.window;
        let forgiven = (owed - full).max(0);
        let back = (owed.min(units * terms.window).min(full) - forgiven).max(0);
        let level = old.level + (now - old.at) * terms.limit + back;
        self.write(terms, now, level);
    }
}
