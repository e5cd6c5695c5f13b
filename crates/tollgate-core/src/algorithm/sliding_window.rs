//! The sliding window counter: the count of the current window plus a part of the previous one's.
//! That part is the share of the previous window that the sliding window still covers. Windows are
//! aligned to the epoch.
//!
//! The estimate previous × (1 − elapsed / window) + current is rounded up.

use crate::exact::saturated;
use crate::policy::Policy;
use crate::verdict::Stamp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TwoWindows {
    /// The start of the current window, in microseconds since the epoch.
    start: u64,
    previous: u32,
    current: u32,
}

impl TwoWindows {
    pub(super) fn restore(start: u64, current: u64, previous: u64) -> TwoWindows {
        TwoWindows { start, previous: saturated(previous), current: saturated(current) }
    }

    /// Moves to the window of `now`. Returns the units that the estimate leaves.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u32 {
        let window = policy.quota().window_us();
        let start = now - now % window;
        if start >= self.start.saturating_add(2 * window) {
            (self.previous, self.current) = (0, 0);
        } else if start > self.start {
            (self.previous, self.current) = (self.current, 0);
        } else if start < self.start {
            // The clock stepped back: this window may be the former previous one, so keep both.
            (self.previous, self.current) = (0, self.previous.saturating_add(self.current));
        }
        self.start = start;
        let covered = window - (now - start);
        self.free(policy, covered)
    }

    pub(super) fn charge(&mut self, units: u32) -> Stamp {
        self.current += units;
        Stamp { us: self.start, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u32) -> u64 {
        let window = policy.quota().window_us();
        let elapsed = now.saturating_sub(self.start).min(window);
        if units <= self.free(policy, window - elapsed) {
            return 0;
        }
        let allowance = policy.quota().limit() - units;
        let at = if self.current <= allowance {
            fades_to(self.previous, allowance - self.current, window)
        } else {
            // Not before the next window, in which the current count is the previous one.
            window + fades_to(self.current, allowance, window)
        };
        at.saturating_sub(elapsed)
    }

    pub(super) fn reset_after(&self, policy: &Policy, now: u64) -> u64 {
        let window = policy.quota().window_us();
        let end = match (self.previous, self.current) {
            (0, 0) => return 0,
            (_, 0) => self.start + window,
            _ => self.start + 2 * window,
        };
        end.saturating_sub(now)
    }

    pub(super) fn refund(&mut self, policy: &Policy, units: u32, stamp: Stamp) {
        if stamp.us == self.start {
            self.current = self.current.saturating_sub(units);
        } else if self.start.checked_sub(policy.quota().window_us()) == Some(stamp.us) {
            self.previous = self.previous.saturating_sub(units);
        }
    }

    /// The units left while `covered` microseconds of the previous window count.
    fn free(&self, policy: &Policy, covered: u64) -> u32 {
        let weighted = u128::from(self.previous) * u128::from(covered);
        let estimate = weighted.div_ceil(u128::from(policy.quota().window_us())) + u128::from(self.current);
        let limit = u128::from(policy.quota().limit());
        u32::try_from(limit.saturating_sub(estimate)).unwrap_or(u32::MAX)
    }
}

/// The elapsed time at which ceil(count × (window − elapsed) / window) falls to `allowance`.
fn fades_to(count: u32, allowance: u32, window: u64) -> u64 {
    if count <= allowance {
        return 0;
    }
    let covered = u128::from(allowance) * u128::from(window) / u128::from(count);
    window - u64::try_from(covered).unwrap_or(window)
}
