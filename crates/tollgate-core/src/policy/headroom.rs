//! Units that a class of requests must leave to others.

use crate::policy::{Algorithm, Policy, PolicyError, PolicyNumbers};

impl Policy {
    /// The same policy for a class of requests that leaves so many units to others: it is refused
    /// once no more than these are left. It has the [scope](Policy::scope) of this policy, so both
    /// use one state.
    ///
    /// The capacity is smaller by these units. A class is of the
    /// [version](PolicyNumbers::version_burst) of this policy. The class of a bucket gets that many
    /// units at once, and then the whole rate; that of a window gets the rest of the limit in each
    /// window. No store grants its units ahead of demand, so that the decision is exact.
    ///
    /// What a class uses beyond what it was granted is charged by the policy that leaves nothing to
    /// others: see [`PolicyNumbers::with_debt`].
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_minute(1_000));
    /// let batch = api.leaving(200).unwrap();
    /// assert_eq!((batch.capacity(), batch.numbers().headroom(), batch.scope()), (800, 200, api.scope()));
    /// ```
    ///
    /// # Errors
    /// [`PolicyError::NothingLeft`] if the capacity is no more than `units`.
    pub fn leaving(&self, units: u64) -> Result<Policy, PolicyError> {
        let left = self.capacity().saturating_sub(units);
        if left == 0 {
            return Err(PolicyError::NothingLeft);
        }
        let mut quota = self.quota();
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => quota.burst = left,
            _ => quota.limit = left,
        }
        let class = self.with_quota_of_scope(quota)?;
        Ok(class.with(|numbers| {
            numbers.headroom = self.0.headroom.saturating_add(units);
            if self.0.has_versions() {
                numbers.set_version(self.0.version_burst);
            }
        }))
    }
}

impl PolicyNumbers {
    /// How many units the policy leaves to others: see [`Policy::leaving`].
    #[inline]
    pub fn headroom(&self) -> u64 {
        self.headroom
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;

    #[test]
    fn a_class_has_a_smaller_capacity_at_the_same_rate() {
        let bucket = Policy::new("p", Quota::per_minute(60).burst(10)).track_usage();
        let class = bucket.leaving(4).unwrap();
        assert_eq!(class.quota(), Quota::per_minute(60).burst(6));
        assert_eq!((class.numbers().horizon(), class.numbers().tracks_usage()), ((6_000_000, 0), true));
        for algorithm in [Algorithm::FIXED_WINDOW, Algorithm::SLIDING_LOG, Algorithm::InFlight] {
            let window = Policy::new("p", Quota::per_minute(10)).with_algorithm(algorithm);
            let class = window.leaving(4).unwrap();
            assert_eq!((class.quota().limit(), class.capacity(), class.scope()), (6, 6, window.scope()));
            assert_eq!(class.leaving(5).unwrap().numbers().headroom(), 9);
            assert_eq!(window.leaving(10), Err(PolicyError::NothingLeft));
            assert_eq!(window.leaving(u64::MAX), Err(PolicyError::NothingLeft));
        }
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
        assert_eq!(bucket.with_algorithm(queue).leaving(9).unwrap().capacity(), 1);
    }
}
