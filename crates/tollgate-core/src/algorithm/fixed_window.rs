//! A count that restarts with each window, be it of a fixed length or of a calendar.

use super::bounded;
use crate::policy::{Algorithm, Policy};
use crate::verdict::Stamp;

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
        let (is_over, start) = match policy.algorithm() {
            Algorithm::FixedWindow { aligned: true } => (is_over, now - now % window),
            // A state may begin within this window, if another process has other boundaries.
            Algorithm::CalendarWindow { boundaries } => {
                let [_, start, ..] = boundaries.around_us(now);
                (self.start < start, start)
            }
            _ => (is_over, now),
        };
        if is_over || self.count == 0 {
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
        let end = match policy.algorithm() {
            Algorithm::CalendarWindow { boundaries } => boundaries.around_us(now)[2],
            _ => self.start + policy.quota().window_us(),
        };
        end.saturating_sub(now)
    }

    pub(super) fn refund(&mut self, units: u64, stamp: Stamp) {
        if stamp.us == self.start {
            self.count = self.count.saturating_sub(units);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundaries::Boundaries;
    use crate::quota::Quota;

    fn monthly(boundaries: Boundaries) -> Policy {
        Policy::new("monthly", Quota::per_day(5)).with_algorithm(Algorithm::CalendarWindow { boundaries })
    }

    /// As while processes have two time zones, or two databases of them.
    #[test]
    fn processes_with_two_boundaries_restart_the_count_at_each_once() {
        let (east, west) = (monthly(Boundaries::new(&[100, 200])), monthly(Boundaries::new(&[110, 210])));
        assert_eq!(east.scope(), west.scope());
        let mut state = FixedWindow::default();
        for (now, policy, left) in [
            (105, &east, 5),
            (106, &west, 0),
            (107, &east, 0),
            (110, &east, 0),
            (111, &west, 5),
            (112, &east, 0),
            (199, &west, 0),
            (200, &west, 0),
            (201, &east, 5),
            (202, &west, 0),
            (209, &east, 0),
            (210, &west, 5),
            (211, &east, 0),
        ] {
            assert_eq!(state.look(policy, now), left, "at {now}");
            state.charge(left);
        }
    }

    #[test]
    fn a_clock_that_steps_over_a_boundary_and_back_refills_nothing_twice() {
        let policy = monthly(Boundaries::new(&[100, 200, 300]));
        let mut state = FixedWindow::default();
        state.look(&policy, 205);
        state.charge(5);
        assert_eq!((state.look(&policy, 195), state.wait(&policy, 195, 1)), (0, 5));
        assert_eq!(state.look(&policy, 200), 5, "the window that was left begins again");
        state.charge(5);
        assert_eq!((state.look(&policy, 299), state.look(&policy, 300)), (0, 5));
    }
}
