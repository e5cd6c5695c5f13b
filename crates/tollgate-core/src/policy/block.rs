//! Keys that are blocked for a time.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::policy::{Algorithm, BlockAfter, Policy, PolicyError, PolicyNumbers};
use crate::quota::Quota;

impl Policy {
    /// The same policy, which blocks a key for a time after so many denials: it then refuses all
    /// requests of the key that cost something, also those that its quota would allow.
    ///
    /// Each process counts the denials of a key. So many within one window of the policy start a
    /// block, which all processes of a store share, and the count starts again. The time is rounded
    /// up to a microsecond. It is no part of the [scope](Policy::scope): with another time, blocks
    /// that run end when they would have.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let guesses = Policy::new("guesses", Quota::per_minute(5)).block_after(20, Duration::from_secs(900));
    /// assert_eq!(guesses.numbers().block().unwrap().scope(), "guesses~block");
    /// ```
    ///
    /// # Panics
    /// If [`Policy::try_block_after`] would return an error.
    #[must_use]
    #[track_caller]
    pub fn block_after(self, denials: u32, time: Duration) -> Policy {
        match self.clone().try_block_after(denials, time) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {:?}: {error}", self.name()),
        }
    }

    /// [`Policy::block_after`] for values that are known only at run time.
    ///
    /// # Errors
    /// [`PolicyError::InvalidBlock`] if there are no denials, or if the time is outside of 1 ms to
    /// 366 days.
    pub fn try_block_after(self, denials: u32, time: Duration) -> Result<Policy, PolicyError> {
        let invalid = PolicyError::InvalidBlock;
        let denials = NonZeroU32::new(denials).ok_or(invalid)?;
        let quota = Quota::try_new(1, time).map_err(|_| invalid)?;
        Ok(self.with(|numbers| numbers.options.block = Some(BlockAfter { denials, quota })))
    }
}

impl PolicyNumbers {
    /// After how many denials of a key it is blocked: see [`Policy::block_after`].
    #[inline]
    pub fn denials_until_block(&self) -> Option<u32> {
        self.options.block.map(|block| block.denials.get())
    }

    /// The policy of [`Algorithm::Block`] that refuses blocked keys, if there is one: see
    /// [`Policy::block_after`]. Stores are asked about both. It has the name of this policy.
    pub fn block(&self) -> Option<Policy> {
        let BlockAfter { quota, .. } = self.options.block?;
        Policy::try_from_parts(self.name(), quota, Algorithm::Block).ok()
    }

    /// Whether the algorithm is [`Algorithm::Block`].
    #[inline]
    pub fn is_block(&self) -> bool {
        self.algorithm == Algorithm::Block
    }

    /// Whether it charges nothing for what it grants: a block, unless it is [with
    /// debt](PolicyNumbers::with_debt), by which it starts.
    #[inline]
    pub fn charges_nothing(&self) -> bool {
        self.algorithm == Algorithm::Block && self.capacity == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::State;
    use crate::store::verdict::Wait;
    use crate::time::Timestamp;

    #[test]
    fn blocks_are_checked_at_construction() {
        let policy = Policy::new("p", Quota::per_minute(5));
        assert_eq!((policy.numbers().block(), policy.numbers().denials_until_block()), (None, None));
        for (denials, time) in [(0, Duration::from_secs(1)), (1, Duration::ZERO), (1, Duration::MAX)] {
            assert_eq!(policy.clone().try_block_after(denials, time), Err(PolicyError::InvalidBlock));
        }
        let block = policy.block_after(3, Duration::from_secs(60)).with_algorithm(Algorithm::SlidingWindow);
        assert_eq!(block.numbers().denials_until_block(), Some(3));
        let two = Policy::try_from_parts("p", Quota::per_minute(2), Algorithm::Block);
        assert_eq!(two, Err(PolicyError::InvalidBlock));
    }

    #[test]
    fn a_block_grants_without_a_charge_until_it_starts() {
        let block = Policy::new("p", Quota::per_minute(5)).block_after(3, Duration::from_secs(60));
        let block = block.numbers().block().unwrap();
        let (at, us) = (Timestamp::from_micros, 1_000_000);
        let mut state = State::new(&block);
        for _ in 0..3 {
            let look = state.look(&block, at(us));
            assert_eq!((look.remaining, look.room), (1, u64::MAX));
            assert_eq!(state.charge(&block, at(us), look, 5).status.remaining(), 1);
        }
        let starts = block.numbers().with_debt().unwrap();
        let look = state.look(&starts, at(us));
        state.charge(&starts, at(us), look, 1);
        assert_eq!(state.look(&block, at(us)).room, 0);
        assert_eq!(state.wait(&block, at(us), 1), Wait::For(Duration::from_secs(60)));
        assert_eq!(state.wait(&block, at(us), 0), Wait::None);
        assert_eq!(state.look(&block, at(us + 60_000_000)).room, u64::MAX);
    }
}
