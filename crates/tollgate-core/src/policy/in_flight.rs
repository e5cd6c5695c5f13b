//! Policies of requests in flight.

use std::time::Duration;

use crate::policy::{Algorithm, Policy, PolicyError};
use crate::quota::Quota;

impl Policy {
    /// A policy of [`Algorithm::InFlight`]: at most `limit` requests of a key at once, each with a
    /// slot that it gives back when it ends. The time to live is [`Quota::DEFAULT_TTL`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let exports = Policy::in_flight("exports", 20);
    /// assert_eq!((exports.capacity(), exports.ttl()), (20, Some(Quota::DEFAULT_TTL)));
    /// let quick = exports.with_ttl(Duration::from_secs(5));
    /// assert_eq!(quick.ttl(), Some(Duration::from_secs(5)));
    /// ```
    ///
    /// # Panics
    /// If [`Policy::try_in_flight`] would return an error.
    #[track_caller]
    pub fn in_flight(name: &str, limit: u64) -> Policy {
        match Policy::try_in_flight(name, limit) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {name:?}: {error}"),
        }
    }

    /// [`Policy::in_flight`] for values that are known only at run time.
    ///
    /// ```
    /// use tollgate_core::{Policy, PolicyError, QuotaError};
    ///
    /// let from_a_row = 0;
    /// let error = Policy::try_in_flight("exports", from_a_row).unwrap_err();
    /// assert_eq!(error, PolicyError::InvalidQuota(QuotaError::ZeroLimit));
    /// ```
    ///
    /// # Errors
    /// [`PolicyError`] if the name is invalid, or if the limit is 0 or exceeds
    /// [`Algorithm::MAX_IN_FLIGHT`].
    pub fn try_in_flight(name: &str, limit: u64) -> Result<Policy, PolicyError> {
        let quota = Quota::try_new(limit, Quota::DEFAULT_TTL)?;
        Policy::try_from_parts(name, quota, Algorithm::InFlight)
    }

    /// The same policy of requests in flight with another time to live, rounded down to a
    /// microsecond. It is no part of the [scope](Policy::scope): slots that are in use count, and
    /// end when they would have.
    ///
    /// A holder renews its slot after a third of the time to live. So the slots of a process that
    /// was killed are free after one time to live at the latest, and a store that fails for two
    /// thirds of it costs no slot. Slots in memory have no time to live.
    ///
    /// # Panics
    /// If the policy is not one of [`Policy::in_flight`], or if [`Quota::try_new`] refuses the
    /// time to live as a window.
    #[must_use]
    #[track_caller]
    pub fn with_ttl(self, ttl: Duration) -> Policy {
        assert!(
            self.ttl().is_some(),
            "policy {:?}: only requests in flight have a time to live",
            self.name()
        );
        let quota = Quota::new(self.quota().limit(), ttl);
        match self.try_with_quota(quota) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {:?}: {error}", self.name()),
        }
    }

    /// How long a slot is held that is not renewed. `None` unless the policy is one of
    /// [`Policy::in_flight`].
    #[inline]
    pub fn ttl(&self) -> Option<Duration> {
        self.is_in_flight().then(|| self.quota().window())
    }

    /// Whether its units come back when their requests end: [`Algorithm::InFlight`].
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        self.algorithm() == Algorithm::InFlight
    }
}
