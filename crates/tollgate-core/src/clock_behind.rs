//! How far a bucket's state may lie ahead of the clock, and what if the clock steps back.

use crate::policy::Policy;

impl Policy {
    /// The same policy while the clock of a store is behind a time that it has shown before, as
    /// after a failover to a server with a slow clock. Use it until the clock reaches that time.
    ///
    /// With it, a TAT beyond the policy's [horizon](Policy::horizon) is cut, so that no caller
    /// waits for longer than for a full quota. While the clock runs forward, such a TAT is
    /// [debt](Policy::with_debt), or that of another version of the policy: a larger burst, a lower
    /// limit, a longer wait. It stays, since cutting it would lift a limit.
    ///
    /// The other algorithms need no such policy: their states show that a time is in the future.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::algorithm::State;
    /// use tollgate_core::{Policy, Quota, Timestamp, Wait};
    ///
    /// let policy = Policy::new("api", Quota::per_second(1).burst(2));
    /// let noon = Timestamp::from_micros(43_200_000_000);
    /// let a_minute_before = Timestamp::from_micros(43_140_000_000);
    /// let mut state = State::new(&policy);
    /// let look = state.look(&policy, noon);
    /// state.charge(&policy, noon, look, 2);
    ///
    /// let behind = policy.with_clock_behind();
    /// state.look(&behind, a_minute_before);
    /// assert_eq!(state.wait(&behind, a_minute_before, 1), Wait::For(Duration::from_secs(1)));
    /// ```
    #[must_use]
    pub fn with_clock_behind(&self) -> Policy {
        let mut policy = self.clone();
        policy.furthest = policy.horizon;
        policy
    }

    /// How far TAT may lie ahead of now. One that is further ahead comes from a clock that ran
    /// ahead, and is cut to the [horizon](Policy::horizon).
    ///
    /// This is the horizon for [`Policy::with_clock_behind`], and otherwise the longest of the
    /// horizon, the most [debt](Policy::with_debt) and 1,024 windows. In microseconds and
    /// [parts](Policy::parts) of one. For stores with their own arithmetic.
    pub fn furthest(&self) -> (u64, u32) {
        (self.furthest.us, self.furthest.frac)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;

    #[test]
    fn debt_of_another_version_stays_up_to_1024_windows() {
        let small = Policy::new("p", Quota::per_minute(60).burst(10));
        assert_eq!(small.furthest(), (1_024 * 60_000_000, 0));
        assert_eq!(small.with_clock_behind().furthest(), (10_000_000, 0));
        let reaches_further = Policy::new("p", Quota::per_minute(1).burst(2_000));
        assert_eq!(reaches_further.furthest(), (4_000 * 60_000_000, 0), "as much debt as the burst");
        let longest = Policy::new("p", Quota::new(1, Duration::from_secs(366 * 86_400)));
        assert!(longest.furthest().0 <= 1 << 52, "a TAT stays an exact double");
    }
}
