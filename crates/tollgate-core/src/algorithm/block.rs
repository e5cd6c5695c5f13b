//! A block: nothing passes until its end.
//!
//! A block keeps its end and its length, so that another length of the policy changes no block that
//! runs.

use crate::policy::Policy;
use crate::store::verdict::Stamp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Microseconds since the epoch. 0 if the key is not blocked.
    until: u64,
    /// The length of the block in microseconds.
    length: u64,
}

impl Block {
    /// The block of a store that has looked at its length.
    pub(super) fn restore(until: u64) -> Block {
        Block { until, length: u64::MAX }
    }

    /// Lifts a block that is over. Returns the units left: one, unless the key is blocked.
    pub(super) fn look(&mut self, policy: &Policy, now: u64) -> u64 {
        if now >= self.until {
            *self = Block::default();
        }
        // After the clock stepped back, no caller waits longer than the length of its block.
        self.until = self.until.min(now.saturating_add(self.length));
        self.left(policy)
    }

    /// Starts a block, unless one runs. That one ends when it would have.
    pub(super) fn charge(&mut self, policy: &Policy, now: u64, units: u64) -> Stamp {
        if units > 0 && !self.runs() {
            let length = policy.quota().window_us();
            *self = Block { until: now + length, length };
        }
        Stamp { us: self.until, frac: 0 }
    }

    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let units = if policy.numbers().charges_nothing() { 1 } else { units };
        if units <= self.left(policy) { 0 } else { self.reset_after(now) }
    }

    pub(super) fn reset_after(&self, now: u64) -> u64 {
        self.until.saturating_sub(now)
    }

    fn left(&self, policy: &Policy) -> u64 {
        policy.quota().limit().saturating_sub(self.runs().into())
    }

    fn runs(&self) -> bool {
        self.until > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;

    /// The policy that starts a block of so many seconds.
    fn starts(seconds: u64) -> Policy {
        let policy = Policy::new("p", Quota::per_minute(5)).block_after(3, Duration::from_secs(seconds));
        policy.numbers().block().and_then(|block| block.numbers().with_debt()).unwrap()
    }

    #[test]
    fn another_length_changes_no_block_that_runs() {
        let (long, short) = (starts(60), starts(1));
        assert_eq!(long.scope(), short.scope());
        for (first, other) in [(&long, &short), (&short, &long)] {
            let mut block = Block::default();
            block.look(first, 1_000_000);
            block.charge(first, 1_000_000, 1);
            let (now, end) = (1_500_000, 1_000_000 + first.quota().window_us());
            assert_eq!(block.look(other, now), 1, "debt alone is left");
            block.charge(other, now, 1);
            assert_eq!(block.reset_after(now), end - now);
            assert_eq!((block.look(other, end - 1), block.look(other, end)), (1, 2));
        }
    }

    #[test]
    fn a_clock_that_steps_back_blocks_no_key_for_longer_than_its_block() {
        let mut block = Block::default();
        block.look(&starts(60), 900_000_000);
        block.charge(&starts(60), 900_000_000, 1);
        assert_eq!(block.look(&starts(1), 500_000_000), 1);
        assert_eq!(block.reset_after(500_000_000), 60_000_000);
    }
}
