//! A count that restarts with each window of a fixed length.

use super::bounded;
use crate::policy::{Algorithm, Policy};
use crate::store::verdict::Stamp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FixedWindow {
    /// Microseconds since the epoch; unused while `count` is 0.
    start: u64,
    count: u64,
}

impl FixedWindow {
    pub(super) fn restore(start: u64, count: u64) -> FixedWindow {
        FixedWindow { start, count: bounded(count) }
    }

    /// Moves to the window of `now`. Returns the units left in it.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u64 {
        let window = policy.quota().window_us();
        // `>=`: at the end of a window the next one has begun, and must not inherit its count.
        let is_over = now >= self.start.saturating_add(window);
        if is_over || self.count == 0 {
            let start = match policy.algorithm() {
                Algorithm::FixedWindow { aligned: true } => now - now % window,
                _ => now,
            };
            *self = FixedWindow { start, count: 0 };
        }
        // After the clock stepped back, a window begins now: no caller waits longer than a window.
        self.start = self.start.min(now);
        policy.quota().limit().saturating_sub(self.count)
    }

    pub(super) fn charge(&mut self, units: u64) -> Stamp {
        self.count += units;
        Stamp { us: self.start, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let free = policy.quota().limit().saturating_sub(self.count);
        if units <= free { 0 } else { self.left(policy, now) }
    }

    pub(super) fn reset_after(&self, policy: &Policy, now: u64) -> u64 {
        if self.count == 0 { 0 } else { self.left(policy, now) }
    }

    fn left(&self, policy: &Policy, now: u64) -> u64 {
        (self.start + policy.quota().window_us()).saturating_sub(now)
    }

    pub(super) fn refund(&mut self, units: u64, stamp: Stamp) {
        if stamp.us == self.start || stamp == Stamp::NEWEST {
            self.count = self.count.saturating_sub(units);
        }
    }
}
