//! Policies that share the state of a key.

use crate::exact::Exact;
use crate::policy::Policy;

impl Policy {
    /// The same policy for keys whose usage `other` counts too. They share state if their
    /// [scope](Policy::scope) is the same; otherwise this returns an unchanged copy.
    ///
    /// Debt of a bucket beyond a policy's own [horizon](Policy::horizon) counts as an error of a
    /// clock that ran ahead, and is forgiven. The returned policy keeps debt that `other` can make.
    ///
    /// ```
    /// use tollgate_core::algorithm::State;
    /// use tollgate_core::{Policy, Quota, Timestamp};
    ///
    /// let large = Policy::new("api", Quota::per_minute(10).burst(100));
    /// let small = Policy::new("api", Quota::per_minute(60).burst(10));
    /// let now = Timestamp::from_micros(1_000_000);
    /// let left_of_large = |small: &Policy| {
    ///     let mut state = State::new(&large);
    ///     let look = state.look(&large, now);
    ///     state.charge(&large, now, look, 100);
    ///     state.look(small, now);
    ///     state.look(&large, now).remaining
    /// };
    /// assert_eq!(left_of_large(&small), 98);
    /// assert_eq!(left_of_large(&small.sharing_state_with(&large)), 0);
    /// ```
    #[must_use]
    pub fn sharing_state_with(&self, other: &Policy) -> Policy {
        if self.scope() != other.scope() {
            return self.clone();
        }
        self.clone().with_shared_horizon(self.furthest.ceil().max(other.furthest.ceil()))
    }

    /// How far TAT may lie ahead of now: the excess is an error of a clock that ran ahead, and is
    /// forgiven. This is the longest [horizon](Policy::horizon) of all policies that [share this
    /// state](Policy::sharing_state_with), in microseconds and [parts](Policy::parts) of one. For
    /// stores with their own arithmetic.
    pub fn furthest(&self) -> (u64, u32) {
        (self.furthest.us, self.furthest.frac)
    }

    pub(crate) fn with_shared_horizon(mut self, shared_horizon_us: u64) -> Policy {
        self.shared_horizon_us = shared_horizon_us;
        self.furthest = self.horizon.max(Exact::from_us(shared_horizon_us));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;
    use crate::share::Share;

    #[test]
    fn policies_that_share_state_have_the_same_furthest_debt() {
        let large = Policy::new("p", Quota::per_minute(10).burst(100));
        let small = Policy::new("p", Quota::per_minute(60).burst(10));
        let elsewhere = Policy::new("p", Quota::per_hour(1));
        assert_eq!((large.furthest(), small.furthest()), ((600_000_000, 0), (10_000_000, 0)));
        assert_eq!(small.sharing_state_with(&large).furthest(), (600_000_000, 0));
        assert_eq!(large.sharing_state_with(&small).furthest(), (600_000_000, 0));
        assert_eq!(small.sharing_state_with(&elsewhere), small, "a different scope");
        assert_eq!(
            small.sharing_state_with(&large).horizon(),
            small.horizon(),
            "it grants no more than before"
        );
    }

    /// A share rounds limit and burst down separately, so the other policy's horizon may grow.
    #[test]
    fn shares_of_policies_that_share_state_forgive_no_debt() {
        for (limit, burst, part) in [(5, 100, 3), (3, 8, 2), (199, 1_000, 100), (10, 10, 3)] {
            let share = Share::new(1, part);
            let large = Policy::new("p", Quota::per_minute(limit).burst(burst));
            let small = Policy::new("p", Quota::per_minute(1_000).burst(100));
            let horizon = large.share(share).unwrap().horizon();
            let furthest = small.sharing_state_with(&large).share(share).unwrap().furthest();
            assert!(furthest >= horizon, "{furthest:?} and {horizon:?} of {burst} at {limit}");
        }
    }
}
