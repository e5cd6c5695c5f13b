//! Policies of requests in flight.

use std::time::Duration;

use crate::policy::{Algorithm, Policy, PolicyError};
use crate::quota::Quota;

impl Policy {
    /// A policy of [`Algorithm::InFlight`]: at most `limit` requests of a key at once, each with a
    /// slot that it gives back when it ends. The lease is [`Quota::DEFAULT_LEASE`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let exports = Policy::in_flight("exports", 20);
    /// assert_eq!((exports.capacity(), exports.lease()), (20, Some(Quota::DEFAULT_LEASE)));
    /// let quick = exports.with_lease(Duration::from_secs(5));
    /// assert_eq!(quick.lease(), Some(Duration::from_secs(5)));
    /// ```
    ///
    /// # Panics
    /// If [`Policy::try_in_flight`] would return an error, or if `limit` is 0 or above
    /// [`Quota::MAX_UNITS`].
    #[track_caller]
    pub fn in_flight(name: &str, limit: u64) -> Policy {
        match Policy::try_in_flight(name, Quota::in_flight(limit)) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {name:?}: {error}"),
        }
    }

    /// [`Policy::in_flight`] for values that are known only at run time. The window of the quota is
    /// the lease.
    ///
    /// # Errors
    /// [`PolicyError`] if the name is invalid, if the limit exceeds [`Algorithm::MAX_IN_FLIGHT`],
    /// or if the quota has a burst.
    pub fn try_in_flight(name: &str, quota: Quota) -> Result<Policy, PolicyError> {
        Policy::try_from_parts(name, quota, Algorithm::InFlight)
    }

    /// The same policy of requests in flight with another lease, rounded down to a microsecond. It
    /// is no part of the [scope](Policy::scope): slots that are in use count, and end when they
    /// would have.
    ///
    /// A holder renews its slot after a third of the lease. So the slots of a process that was
    /// killed are free after one lease at the latest, and a store that fails for two thirds of it
    /// costs no slot. Slots in memory have no lease.
    ///
    /// # Panics
    /// If the policy is not one of [`Policy::in_flight`], or if [`Quota::try_new`] refuses the
    /// lease as a window.
    #[must_use]
    #[track_caller]
    pub fn with_lease(self, lease: Duration) -> Policy {
        assert!(self.lease().is_some(), "policy {:?}: only requests in flight have a lease", self.name());
        let quota = Quota::new(self.quota().limit(), lease);
        match self.try_with_quota(quota) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {:?}: {error}", self.name()),
        }
    }

    /// How long a slot is held that is not renewed. `None` unless the policy is one of
    /// [`Policy::in_flight`].
    #[inline]
    pub fn lease(&self) -> Option<Duration> {
        self.is_in_flight().then(|| self.quota().window())
    }

    /// Whether its units come back when their requests end: [`Algorithm::InFlight`].
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        self.algorithm() == Algorithm::InFlight
    }
}
