//! The time of every unit allowed: exact over every window.
//!
//! A unit taken at x counts while now − x < window. Units of one microsecond share an entry.

use std::collections::VecDeque;

use super::bounded;
use crate::policy::{Algorithm, Policy};
use crate::store::verdict::Stamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Oldest first.
    entries: VecDeque<Entry>,
    sum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Microseconds since the epoch.
    at: u64,
    units: u64,
}

impl Log {
    /// With units at some times.
    pub(super) fn restore(taken: impl Iterator<Item = (u64, u64)>) -> Log {
        let entries = taken.map(|(at, units)| Entry { at, units: bounded(units) });
        let mut entries: Vec<Entry> = entries.filter(|entry| entry.units > 0).collect();
        entries.sort_by_key(|entry| entry.at);
        let entries = VecDeque::from(entries);
        let sum = entries.iter().map(|entry| entry.units).sum();
        Log { entries, sum }
    }

    /// Drops what has left the window; returns the units left.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u64 {
        let window = policy.quota().window_us();
        // If the clock stepped back, entries in the future count as of now.
        let mut ahead = 0;
        while let Some(entry) = self.entries.back().filter(|entry| entry.at > now) {
            ahead += entry.units;
            self.entries.pop_back();
        }
        self.sum -= ahead;
        self.charge(now, ahead);
        while let Some(oldest) = self.entries.front().filter(|oldest| oldest.at + window <= now) {
            self.sum -= oldest.units;
            self.entries.pop_front();
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        self.free(policy)
    }

    pub(super) fn charge(&mut self, now: u64, units: u64) -> Stamp {
        match self.entries.back_mut() {
            _ if units == 0 => {}
            Some(newest) if newest.at == now => newest.units += units,
            _ => self.entries.push_back(Entry { at: now, units }),
        }
        self.sum += units;
        Stamp { us: now, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let limit = policy.quota().limit();
        let missing = (self.sum + units).saturating_sub(limit);
        if missing == 0 {
            return 0;
        }
        self.decisive(missing).map_or(0, |at| self.left(policy, now, at))
    }

    /// The time of the unit whose expiry frees `missing` units. Searched from the nearer end: a
    /// caller that chooses the cost must not choose how long a look takes.
    fn decisive(&self, missing: u64) -> Option<u64> {
        let passed = |sum: &mut u64, entry: &Entry, bound: u64| {
            *sum += entry.units;
            *sum >= bound
        };
        let mut sum = 0;
        let found = if missing <= self.sum / 2 {
            self.entries.iter().find(|entry| passed(&mut sum, entry, missing))
        } else {
            let bound = self.sum.saturating_sub(missing) + 1;
            self.entries.iter().rev().find(|entry| passed(&mut sum, entry, bound))
        };
        found.map(|entry| entry.at)
    }

    pub(super) fn reset_after(&self, policy: &Policy, now: u64) -> u64 {
        self.entries.back().map_or(0, |newest| self.left(policy, now, newest.at))
    }

    /// How long a unit taken then still counts.
    fn left(&self, policy: &Policy, now: u64, at: u64) -> u64 {
        (at + policy.quota().window_us()).saturating_sub(now)
    }

    pub(super) fn refund(&mut self, units: u64, stamp: Stamp) {
        if stamp == Stamp::NEWEST {
            return self.take_newest(units);
        }
        let at = self.entries.partition_point(|entry| entry.at < stamp.us);
        let newest = self.entries.len().saturating_sub(Algorithm::REFUNDABLE_TIMES);
        let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.at == stamp.us && at >= newest)
        else {
            return;
        };
        let back = entry.units.min(units);
        entry.units -= back;
        self.sum -= back;
        if entry.units == 0 {
            self.entries.remove(at);
        }
    }

    fn take_newest(&mut self, mut units: u64) {
        while let Some(newest) = self.entries.back_mut().filter(|_| units > 0) {
            let back = newest.units.min(units);
            newest.units -= back;
            self.sum -= back;
            units -= back;
            if newest.units == 0 {
                self.entries.pop_back();
            }
        }
    }

    /// The units that were taken in the last `interval` microseconds.
    pub(super) fn usage(&self, now: u64, interval: u64) -> u64 {
        let newest_first = self.entries.iter().rev();
        let recent = newest_first.take_while(|entry| now - entry.at < interval);
        recent.map(|entry| entry.units).sum()
    }

    fn free(&self, policy: &Policy) -> u64 {
        policy.quota().limit().saturating_sub(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_reaches_back_a_bounded_number_of_times() {
        let policy = Policy::new("p", crate::Quota::per_day(5_000)).with_algorithm(Algorithm::SLIDING_LOG);
        let mut log = Log::default();
        let stamps: Vec<Stamp> = (0..=1_024).map(|at| log.charge(at, 3)).collect();
        log.refund(3, stamps[0]);
        assert_eq!(log.sum, 3 * 1_025);
        log.refund(1, stamps[1]);
        assert_eq!(log.sum, 3 * 1_025 - 1);
        // A run without units does not count.
        log.refund(3, stamps[1]);
        log.refund(3, stamps[0]);
        assert_eq!(log.look(&policy, 1_024), 5_000 - 3 * 1_023);
    }
}
