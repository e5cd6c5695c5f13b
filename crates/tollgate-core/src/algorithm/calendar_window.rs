//! A count that restarts when its window of a calendar ends.
//!
//! A window keeps the end that its first charge saw. So other boundaries apply when it has ended.

use super::bounded;
use crate::policy::{Algorithm, Policy};
use crate::store::verdict::Stamp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CalendarCount {
    /// Microseconds since the epoch; unused while `count` is 0.
    end: u64,
    count: u64,
}

impl CalendarCount {
    pub(super) fn restore(end: u64, count: u64) -> CalendarCount {
        CalendarCount { end, count: bounded(count) }
    }

    /// Moves to the window of `now`. Returns the units left in it.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u64 {
        let end = end_of(policy, now);
        if self.count == 0 || now >= self.end {
            *self = CalendarCount { end, count: 0 };
        } else if self.end > furthest(policy, now, end) {
            self.end = end;
        }
        policy.quota().limit().saturating_sub(self.count)
    }

    pub(super) fn charge(&mut self, units: u64) -> Stamp {
        self.count += units;
        Stamp { us: self.end, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let free = policy.quota().limit().saturating_sub(self.count);
        if units <= free { 0 } else { self.end.saturating_sub(now) }
    }

    pub(super) fn reset_after(&self, now: u64) -> u64 {
        if self.count == 0 { 0 } else { self.end.saturating_sub(now) }
    }

    pub(super) fn refund(&mut self, units: u64, stamp: Stamp) {
        if stamp.us == self.end || stamp == Stamp::NEWEST {
            self.count = self.count.saturating_sub(units);
        }
    }
}

/// When the window of `now` ends by the boundaries of a policy.
fn end_of(policy: &Policy, now: u64) -> u64 {
    match policy.algorithm() {
        Algorithm::CalendarWindow { boundaries } => boundaries.around_us(now)[2],
        // A state belongs to no other policy.
        _ => now,
    }
}

/// The latest end that a window of any boundaries can have. One beyond it comes from a clock that
/// has stepped back since. A day is an hour longer than the window of its quota when clocks change.
fn furthest(policy: &Policy, now: u64, end: u64) -> u64 {
    let window = policy.quota().window_us();
    end.max(now + window + window / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Boundaries;
    use crate::quota::Quota;

    /// With a nominal window of 80 ms.
    fn monthly(micros: &'static [u64]) -> Policy {
        let quota = Quota::new(5, std::time::Duration::from_millis(80));
        let boundaries = Boundaries::new(micros);
        Policy::new("monthly", quota).with_algorithm(Algorithm::CalendarWindow { boundaries })
    }

    /// As while processes have two time zones, or two databases of them.
    #[test]
    fn processes_with_two_boundaries_share_a_window_until_its_end() {
        let east = monthly(&[100_000, 170_000, 240_000]);
        let west = monthly(&[110_000, 180_000, 250_000]);
        assert_eq!(east.scope(), west.scope());
        let mut state = CalendarCount::default();
        for (now, policy, left, reset) in [
            (105_000, &east, 5, 65_000),
            (106_000, &west, 0, 64_000),
            (110_000, &west, 0, 60_000),
            (169_999, &west, 0, 1),
            // The next window ends by the boundaries of the first process that charges.
            (170_000, &west, 5, 10_000),
            (170_001, &east, 0, 9_999),
            (180_000, &east, 5, 60_000),
            (180_001, &west, 0, 59_999),
            (240_000, &east, 5, 140_000),
        ] {
            // The last window of a table has no end.
            let reset = if now < 240_000 { reset } else { (1 << 53) - now };
            assert_eq!(state.look(policy, now), left, "at {now}");
            state.charge(left);
            assert_eq!(state.reset_after(now), reset, "at {now}");
        }
    }

    #[test]
    fn a_clock_that_steps_over_a_boundary_and_back_refills_nothing() {
        let policy = monthly(&[100_000, 180_000, 260_000]);
        let mut state = CalendarCount::default();
        state.look(&policy, 180_000);
        state.charge(5);
        assert_eq!((state.look(&policy, 170_000), state.wait(&policy, 170_000, 1)), (0, 90_000));
        assert_eq!(state.look(&policy, 259_999), 0, "the end stays");
        assert_eq!(state.look(&policy, 260_000), 5);
    }

    #[test]
    fn an_end_beyond_a_window_becomes_that_of_the_window_of_now() {
        let policy = monthly(&[100_000, 180_000, 260_000]);
        let mut state = CalendarCount::default();
        state.look(&policy, 180_000);
        let stamp = state.charge(5);
        assert_eq!((state.look(&policy, 169_999), state.wait(&policy, 169_999, 1)), (0, 10_001));
        state.refund(5, stamp);
        assert_eq!(state.look(&policy, 179_999), 0, "the stamp is of a window that was cut");
        assert_eq!(state.look(&policy, 180_000), 5);
    }
}
