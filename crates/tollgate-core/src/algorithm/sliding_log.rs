//! The time of every unit allowed: exact over every window.
//!
//! A unit taken at x counts while now − x < window. Units of one microsecond share an entry.

use std::collections::VecDeque;

use crate::{Policy, Stamp};

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
    units: u32,
}

impl Log {
    /// Drops what has left the window; returns the units left.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u32 {
        let window = policy.quota().window_us();
        // Where the clock stepped back, what lies in the future happened now.
        for entry in self.entries.iter_mut().rev().take_while(|entry| entry.at > now) {
            entry.at = now;
        }
        while let Some(oldest) = self.entries.front().filter(|oldest| oldest.at + window <= now) {
            self.sum -= u64::from(oldest.units);
            self.entries.pop_front();
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        self.free(policy)
    }

    pub(super) fn charge(&mut self, now: u64, units: u32) -> Stamp {
        match self.entries.back_mut() {
            _ if units == 0 => {}
            Some(newest) if newest.at == now && newest.units.checked_add(units).is_some() => {
                newest.units += units;
            }
            _ => self.entries.push_back(Entry { at: now, units }),
        }
        self.sum += u64::from(units);
        Stamp { us: now, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u32) -> u64 {
        let mut missing = (self.sum + u64::from(units)).saturating_sub(u64::from(policy.quota().limit()));
        if missing == 0 {
            return 0;
        }
        let decisive = self.entries.iter().find(|entry| {
            missing = missing.saturating_sub(u64::from(entry.units));
            missing == 0
        });
        decisive.map_or(0, |entry| entry.at + policy.quota().window_us() - now)
    }

    pub(super) fn reset_after(&self, policy: &Policy, now: u64) -> u64 {
        self.entries.back().map_or(0, |newest| newest.at + policy.quota().window_us() - now)
    }

    pub(super) fn refund(&mut self, mut units: u32, stamp: Stamp) {
        let first = self.entries.partition_point(|entry| entry.at < stamp.us);
        for entry in self.entries.iter_mut().skip(first).take_while(|entry| entry.at == stamp.us) {
            let back = entry.units.min(units);
            entry.units -= back;
            units -= back;
            self.sum -= u64::from(back);
        }
        self.entries.retain(|entry| entry.units > 0);
    }

    fn free(&self, policy: &Policy) -> u32 {
        let free = u64::from(policy.quota().limit()).saturating_sub(self.sum);
        u32::try_from(free).unwrap_or(u32::MAX)
    }
}
