//! The sliding window counter: the count of the current window plus a part of the previous one's.
//! That part is the share of the previous window that the sliding window still covers. Windows are
//! aligned to the epoch.
//!
//! The estimate previous × (1 − elapsed / window) + current is rounded up.

use super::bounded;
use crate::policy::Policy;
use crate::store::verdict::Stamp;

/// 20 bytes, so that a state of any algorithm stays at 24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub(super) struct TwoWindows {
    /// The start of the current window, in microseconds since the epoch.
    start: u64,
    previous: Count,
    current: Count,
}

/// A count of at most [`MAX_COUNT`](super::MAX_COUNT), in six bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(2))]
struct Count {
    low: u32,
    high: u16,
}

impl Count {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of at most 2^41")]
    fn new(units: u64) -> Count {
        let units = bounded(units);
        Count { low: units as u32, high: (units >> 32) as u16 }
    }

    fn units(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

impl TwoWindows {
    pub(super) fn restore(start: u64, current: u64, previous: u64) -> TwoWindows {
        TwoWindows { start, previous: Count::new(previous), current: Count::new(current) }
    }

    /// Moves to the window of `now`. Returns the units that the estimate leaves.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u64 {
        let window = policy.quota().window_us();
        let start = now - now % window;
        if start >= self.start.saturating_add(2 * window) {
            (self.previous, self.current) = (Count::default(), Count::default());
        } else if start > self.start {
            (self.previous, self.current) = (self.current, Count::default());
        } else if start < self.start {
            // The clock stepped back: this window may be the former previous one, so keep both.
            let together = Count::new(self.previous.units() + self.current.units());
            (self.previous, self.current) = (Count::default(), together);
        }
        self.start = start;
        let covered = window - (now - start);
        self.free(policy, covered)
    }

    pub(super) fn charge(&mut self, units: u64) -> Stamp {
        self.current = Count::new(self.current.units() + units);
        Stamp { us: self.start, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let window = policy.quota().window_us();
        let elapsed = now.saturating_sub(self.start).min(window);
        if units <= self.free(policy, window - elapsed) {
            return 0;
        }
        let allowance = policy.quota().limit() - units;
        let (previous, current) = (self.previous.units(), self.current.units());
        let at = if current <= allowance {
            fades_to(previous, allowance - current, window)
        } else {
            // Not before the next window, in which the current count is the previous one.
            window + fades_to(current, allowance, window)
        };
        at.saturating_sub(elapsed)
    }

    pub(super) fn reset_after(&self, policy: &Policy, now: u64) -> u64 {
        let window = policy.quota().window_us();
        let end = match (self.previous.units(), self.current.units()) {
            (0, 0) => return 0,
            (_, 0) => self.start + window,
            _ => self.start + 2 * window,
        };
        end.saturating_sub(now)
    }

    pub(super) fn refund(&mut self, policy: &Policy, units: u64, stamp: Stamp) {
        let previous = self.start.checked_sub(policy.quota().window_us());
        let (of_current, of_previous) = match stamp {
            Stamp::NEWEST => (units, units.saturating_sub(self.current.units())),
            stamp if stamp.us == self.start => (units, 0),
            stamp if previous == Some(stamp.us) => (0, units),
            _ => (0, 0),
        };
        let less = |count: Count, units| Count::new(count.units().saturating_sub(units));
        self.current = less(self.current, of_current);
        self.previous = less(self.previous, of_previous);
    }

    /// The units left while `covered` microseconds of the previous window count.
    fn free(&self, policy: &Policy, covered: u64) -> u64 {
        let (previous, window) = (self.previous.units(), policy.quota().window_us());
        let weighted = match previous.checked_mul(covered) {
            Some(product) => product.div_ceil(window),
            // At most `previous`, since `covered` is at most the window.
            None => {
                let product = u128::from(previous) * u128::from(covered);
                u64::try_from(product.div_ceil(u128::from(window))).unwrap_or(previous)
            }
        };
        policy.quota().limit().saturating_sub(weighted + self.current.units())
    }
}

/// The elapsed time at which ceil(count × (window − elapsed) / window) falls to `allowance`.
fn fades_to(count: u64, allowance: u64, window: u64) -> u64 {
    if count <= allowance {
        return 0;
    }
    let covered = u128::from(allowance) * u128::from(window) / u128::from(count);
    window - u64::try_from(covered).unwrap_or(window)
}
