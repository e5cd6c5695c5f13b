//! A ring of sub-windows, each of ceil(window / N), aligned to the epoch.
//!
//! A unit counts until the whole window has passed since the *end* of its sub-window. So the sum
//! over the N + 1 sub-windows that touch the last window is never less than what that window saw.

use super::bounded;
use crate::policy::{Algorithm, Policy};
use crate::store::verdict::Stamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// The number of the newest sub-window since the epoch.
    newest: u64,
    /// Its index in `counts`. Older ones come before it, cyclically.
    position: usize,
    /// N + 1 of them.
    counts: Box<[u64]>,
    sum: u64,
}

impl Ring {
    pub(super) fn new(buckets: u32) -> Ring {
        Ring { newest: 0, position: 0, counts: vec![0; buckets as usize + 1].into(), sum: 0 }
    }

    /// With units in some sub-windows, by their numbers since the epoch.
    pub(super) fn restore(buckets: u32, used: impl Iterator<Item = (u64, u64)> + Clone) -> Ring {
        let mut ring = Ring::new(buckets);
        ring.newest = used.clone().map(|(sub_window, _)| sub_window).max().unwrap_or(0);
        for (sub_window, count) in used {
            let age = usize::try_from(ring.newest - sub_window).unwrap_or(usize::MAX);
            if age < ring.counts.len() {
                let at = ring.index(age);
                let before = ring.counts[at];
                ring.counts[at] = bounded(before.saturating_add(count));
                ring.sum += ring.counts[at] - before;
            }
        }
        ring
    }

    pub(super) fn has(&self, buckets: u32) -> bool {
        self.counts.len() == buckets as usize + 1
    }

    /// Moves to the sub-window of `now`; returns the units left.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u64 {
        let current = now / sub_window_us(policy);
        let steps = current.saturating_sub(self.newest);
        for _ in 0..steps.min(self.counts.len() as u64) {
            self.position = (self.position + 1) % self.counts.len();
            self.sum -= self.counts[self.position];
            self.counts[self.position] = 0;
        }
        // If the clock stepped back, usage ahead of it counts as of now.
        let ring = self.counts.len();
        for _ in 0..self.newest.saturating_sub(current).min(ring as u64 - 1) {
            let ahead = std::mem::take(&mut self.counts[self.position]);
            self.position = (self.position + ring - 1) % ring;
            let together = bounded(self.counts[self.position] + ahead);
            self.sum -= ahead - (together - self.counts[self.position]);
            self.counts[self.position] = together;
        }
        self.newest = current;
        self.free(policy)
    }

    pub(super) fn charge(&mut self, units: u64) -> Stamp {
        self.counts[self.position] += units;
        self.sum += units;
        Stamp { us: self.newest, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let mut missing = units.saturating_sub(self.free(policy));
        if missing == 0 {
            return 0;
        }
        // If the limit was lowered, the sum can exceed it: the excess has to expire too.
        missing += self.sum.saturating_sub(policy.quota().limit());
        for age in (0..self.counts.len()).rev() {
            missing = missing.saturating_sub(self.count(age));
            if missing == 0 {
                return self.expires_after(policy, now, age);
            }
        }
        // Unreachable while `sum` is the sum: units ≤ limit. Full expiry is the answer that would
        // be safe.
        self.expires_after(policy, now, 0)
    }

    pub(super) fn reset_after(&self, policy: &Policy, now: u64) -> u64 {
        match (0..self.counts.len()).find(|age| self.count(*age) > 0) {
            Some(age) => self.expires_after(policy, now, age),
            None => 0,
        }
    }

    pub(super) fn refund(&mut self, units: u64, stamp: Stamp) {
        if stamp == Stamp::NEWEST {
            (0..self.counts.len()).fold(units, |left, age| left - self.take_back(age, left));
            return;
        }
        match self.newest.checked_sub(stamp.us).map(usize::try_from) {
            Some(Ok(age)) if age < self.counts.len() => _ = self.take_back(age, units),
            _ => {}
        }
    }

    /// Takes units out of the sub-window of this age. Returns how many it had.
    fn take_back(&mut self, age: usize, units: u64) -> u64 {
        let at = self.index(age);
        let back = self.counts[at].min(units);
        self.counts[at] -= back;
        self.sum -= back;
        back
    }

    /// The sum over the sub-windows that overlap the last `interval` microseconds.
    pub(super) fn usage(&self, policy: &Policy, now: u64, interval: u64) -> u64 {
        let oldest = (now + 1).saturating_sub(interval) / sub_window_us(policy);
        if oldest > self.newest {
            return 0;
        }
        let ages = (self.newest - oldest).min(self.counts.len() as u64 - 1);
        (0..self.counts.len()).take_while(|age| *age as u64 <= ages).map(|age| self.count(age)).sum()
    }

    fn free(&self, policy: &Policy) -> u64 {
        policy.quota().limit().saturating_sub(self.sum)
    }

    /// The time until the sub-window of this age no longer touches the last window.
    fn expires_after(&self, policy: &Policy, now: u64, age: usize) -> u64 {
        let ring = self.counts.len() as u64;
        ((self.newest + ring - age as u64) * sub_window_us(policy)).saturating_sub(now)
    }

    fn count(&self, age: usize) -> u64 {
        self.counts[self.index(age)]
    }

    fn index(&self, age: usize) -> usize {
        (self.position + self.counts.len() - age) % self.counts.len()
    }
}

fn sub_window_us(policy: &Policy) -> u64 {
    let Algorithm::SlidingBuckets { buckets } = policy.algorithm() else { return policy.quota().window_us() };
    policy.quota().window_us().div_ceil(u64::from(buckets))
}
