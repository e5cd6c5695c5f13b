//! A limit per window.

mod text;

use std::fmt;
use std::time::Duration;

/// A limit per window, and a burst for bucket algorithms. `Quota::per_second(5)` is five a second.
///
/// Constructors are `const` and panic on invalid values, so the compiler refuses an invalid
/// constant. Each has a `try_` twin for values that are known only at run time.
///
/// | value | domain |
/// |---|---|
/// | limit, burst | 1 to [`Quota::MAX_UNITS`] units (2^40) |
/// | window | 1 ms to 366 days, rounded up to a whole microsecond |
/// | burst × window / limit | at most 2^52 µs (142 years), the time that an empty bucket takes to fill |
///
/// A bucket algorithm allows some limits above 2^32 only in windows that they divide well: see
/// [`PolicyError::TooManyParts`](crate::PolicyError::TooManyParts).
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Quota, QuotaError};
///
/// const API: Quota = Quota::per_minute(100).burst(20);
/// assert_eq!(API.limit(), 100);
/// assert_eq!(API.window(), Duration::from_secs(60));
///
/// let from_a_config_file = 0;
/// assert_eq!(Quota::try_per_second(from_a_config_file), Err(QuotaError::ZeroLimit));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    pub(crate) limit: u64,
    window_us: u64,
    /// 0 if none was given: the default depends on the algorithm.
    pub(crate) burst: u64,
}

/// The largest burst × emission interval, and the largest wait, in microseconds.
pub(crate) const MAX_SPAN_US: u64 = 1 << 52;

const MIN_WINDOW_US: u64 = 1_000;
const MAX_WINDOW_US: u64 = 366 * 86_400 * 1_000_000;

impl Quota {
    /// The largest limit, burst and cost: 2^40 = 1,099,511,627,776 units.
    pub const MAX_UNITS: u64 = 1 << 40;

    /// How long a slot of [`Policy::in_flight`](crate::Policy::in_flight) is held by a process that
    /// no longer renews it, unless [`Policy::with_ttl`](crate::Policy::with_ttl) says
    /// otherwise: 15 seconds.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(15);

    /// `limit` units a second.
    ///
    /// # Panics
    /// If `limit` is 0 or above [`Quota::MAX_UNITS`]; in a constant, at compile time.
    #[track_caller]
    pub const fn per_second(limit: u64) -> Quota {
        Quota::new(limit, Duration::from_secs(1))
    }

    /// `limit` units a minute.
    ///
    /// # Panics
    /// If `limit` is 0 or above [`Quota::MAX_UNITS`]; in a constant, at compile time.
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Quota {
        Quota::new(limit, Duration::from_secs(60))
    }

    /// `limit` units an hour.
    ///
    /// # Panics
    /// If `limit` is 0 or above [`Quota::MAX_UNITS`]; in a constant, at compile time.
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Quota {
        Quota::new(limit, Duration::from_secs(3_600))
    }

    /// `limit` units in 24 hours.
    ///
    /// # Panics
    /// If `limit` is 0 or above [`Quota::MAX_UNITS`]; in a constant, at compile time.
    #[track_caller]
    pub const fn per_day(limit: u64) -> Quota {
        Quota::new(limit, Duration::from_secs(86_400))
    }

    /// `limit` requests at once, for [`Policy::in_flight`](crate::Policy::in_flight) and its tiers.
    /// The window is [`Quota::DEFAULT_TTL`].
    ///
    /// # Panics
    /// If `limit` is 0 or above [`Quota::MAX_UNITS`]; in a constant, at compile time.
    #[track_caller]
    pub const fn in_flight(limit: u64) -> Quota {
        Quota::new(limit, Quota::DEFAULT_TTL)
    }

    /// `limit` units in each `window`.
    ///
    /// # Panics
    /// If [`Quota::try_new`] would return an error; in a constant, at compile time.
    #[track_caller]
    pub const fn new(limit: u64, window: Duration) -> Quota {
        match Quota::try_new(limit, window) {
            Ok(quota) => quota,
            Err(error) => panic!("{}", error.as_str()),
        }
    }

    /// [`Quota::per_second`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`] or [`QuotaError::TooManyUnits`].
    pub const fn try_per_second(limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, Duration::from_secs(1))
    }

    /// [`Quota::per_minute`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`] or [`QuotaError::TooManyUnits`].
    pub const fn try_per_minute(limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, Duration::from_secs(60))
    }

    /// [`Quota::per_hour`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`] or [`QuotaError::TooManyUnits`].
    pub const fn try_per_hour(limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, Duration::from_secs(3_600))
    }

    /// [`Quota::per_day`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`] or [`QuotaError::TooManyUnits`].
    pub const fn try_per_day(limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, Duration::from_secs(86_400))
    }

    /// [`Quota::in_flight`] for a limit that is known only at run time, such as that of a row.
    ///
    /// ```
    /// use tollgate_core::{Quota, QuotaError};
    ///
    /// assert_eq!(Quota::try_in_flight(2), Ok(Quota::in_flight(2)));
    /// assert_eq!(Quota::try_in_flight(u64::MAX), Err(QuotaError::TooManyUnits));
    /// ```
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`] or [`QuotaError::TooManyUnits`].
    pub const fn try_in_flight(limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, Quota::DEFAULT_TTL)
    }

    /// [`Quota::new`] for values that are known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`], [`QuotaError::TooManyUnits`], or
    /// [`QuotaError::WindowOutOfRange`] outside of 1 ms to 366 days.
    pub const fn try_new(limit: u64, window: Duration) -> Result<Quota, QuotaError> {
        if limit == 0 {
            return Err(QuotaError::ZeroLimit);
        }
        if limit > Quota::MAX_UNITS {
            return Err(QuotaError::TooManyUnits);
        }
        let window_us = window.as_nanos().div_ceil(1_000);
        if window_us < MIN_WINDOW_US as u128 || window_us > MAX_WINDOW_US as u128 {
            return Err(QuotaError::WindowOutOfRange);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_WINDOW_US, as was just checked")]
        Ok(Quota { limit, window_us: window_us as u64, burst: 0 })
    }

    /// Sets the most units that may be taken at once. Only the bucket algorithms (`Gcra`,
    /// `LeakyBucket`) use it. The default is the limit for `Gcra`, and 1 for `LeakyBucket`.
    ///
    /// # Panics
    /// If [`Quota::try_burst`] would return an error; in a constant, at compile time.
    #[doc(alias = "burst_size")]
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Quota {
        match self.try_burst(burst) {
            Ok(quota) => quota,
            Err(error) => panic!("{}", error.as_str()),
        }
    }

    /// [`Quota::burst`] for a value that is known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroBurst`], [`QuotaError::TooManyUnits`], or [`QuotaError::BurstTooLarge`] if
    /// burst × window / limit exceeds 2^52 µs.
    pub const fn try_burst(self, burst: u64) -> Result<Quota, QuotaError> {
        if burst == 0 {
            return Err(QuotaError::ZeroBurst);
        }
        if burst > Quota::MAX_UNITS {
            return Err(QuotaError::TooManyUnits);
        }
        if burst as u128 * self.window_us as u128 > MAX_SPAN_US as u128 * self.limit as u128 {
            return Err(QuotaError::BurstTooLarge);
        }
        Ok(Quota { burst, ..self })
    }

    /// The quota by which a client stays within this quota of another API: burst 1, and a window
    /// that is a tenth longer, up to 366 days. Pass the API's own numbers.
    ///
    /// A burst after an idle time, followed by the rate, exceeds the API's quota. Evenly spaced
    /// requests at the API's own rate can exceed it too, since the network delays each by a
    /// different time. With the longer window, delays may differ by up to a tenth of the window.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Quota;
    ///
    /// // The API allows 10 requests a second: a client sends one every 110 ms.
    /// let ours = Quota::per_second(10).paced();
    /// assert_eq!(ours, Quota::new(10, Duration::from_millis(1_100)).burst(1));
    /// ```
    #[must_use]
    pub const fn paced(self) -> Quota {
        let longer_us = self.window_us + self.window_us.div_ceil(10);
        let window_us = if longer_us < MAX_WINDOW_US { longer_us } else { MAX_WINDOW_US };
        Quota { window_us, burst: 1, ..self }
    }

    /// Units in each window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of the window, in whole microseconds.
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window_us)
    }

    /// The burst, if one was given.
    pub const fn given_burst(&self) -> Option<u64> {
        if self.burst == 0 { None } else { Some(self.burst) }
    }

    pub(crate) const fn window_us(&self) -> u64 {
        self.window_us
    }
}

/// Reasons why a [`Quota`] or a [`Share`](crate::Share) of one cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaError {
    /// A limit of 0 would refuse everything.
    ZeroLimit,
    /// The limit or the burst exceeds [`Quota::MAX_UNITS`].
    TooManyUnits,
    /// The window is below 1 ms or above 366 days.
    WindowOutOfRange,
    /// A burst of 0 would refuse everything.
    ZeroBurst,
    /// burst × window / limit exceeds 2^52 µs.
    BurstTooLarge,
    /// A share of zero would refuse everything.
    ShareOfNothing,
    /// A share is more than the whole, or a part of 0.
    ShareAboveWhole,
}

impl QuotaError {
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            QuotaError::ZeroLimit => "a quota's limit must be at least 1",
            QuotaError::TooManyUnits => {
                "a quota's limit and burst must be at most 2^40 = 1099511627776 units"
            }
            QuotaError::WindowOutOfRange => "a quota's window must be between 1 ms and 366 days",
            QuotaError::ZeroBurst => "a quota's burst must be at least 1",
            QuotaError::BurstTooLarge => "burst x window / limit must not exceed 2^52 microseconds",
            QuotaError::ShareOfNothing => "a share of nothing would refuse everything",
            QuotaError::ShareAboveWhole => "a share must not be more than the whole",
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for QuotaError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_per_second_has_a_window_of_one_second() {
        assert_eq!(Quota::per_second(5), Quota::new(5, Duration::from_secs(1)));
        assert_eq!(Quota::per_day(5), Quota::new(5, Duration::from_secs(24 * 60 * 60)));
    }

    #[test]
    fn a_paced_quota_has_burst_1_and_a_window_a_tenth_longer() {
        let days = |n: u64| Duration::from_secs(n * 86_400);
        assert_eq!(Quota::per_second(10).burst(20).paced().given_burst(), Some(1));
        assert_eq!(
            Quota::new(1, Duration::from_micros(1_001)).paced().window(),
            Duration::from_micros(1_102)
        );
        assert_eq!(Quota::new(1, days(366)).paced().window(), days(366));
        assert_eq!(Quota::new(Quota::MAX_UNITS, days(360)).paced().window(), days(366));
    }

    #[test]
    fn values_at_the_edges_of_the_domain_are_allowed_and_beyond_refused() {
        let days = |n: u64| Duration::from_secs(n * 86_400);
        assert!(Quota::try_new(Quota::MAX_UNITS, Duration::from_millis(1)).is_ok());
        let above = Quota::MAX_UNITS + 1;
        assert_eq!(Quota::try_per_day(above), Err(QuotaError::TooManyUnits));
        assert_eq!(Quota::per_second(u64::from(u32::MAX)).try_burst(above), Err(QuotaError::TooManyUnits));
        assert!(Quota::per_day(1 << 40).try_burst(Quota::MAX_UNITS).is_ok());
        assert!(Quota::try_new(1, days(366)).is_ok());
        for window in [Duration::ZERO, Duration::from_nanos(999_000), Duration::MAX, days(367)] {
            assert_eq!(Quota::try_new(1, window), Err(QuotaError::WindowOutOfRange), "{window:?}");
        }
        assert_eq!(Quota::try_new(0, days(1)), Err(QuotaError::ZeroLimit));
        assert_eq!(Quota::per_second(1).try_burst(0), Err(QuotaError::ZeroBurst));
        assert!(Quota::per_second(1).try_burst(1 << 32).is_ok(), "2^32 s are below 2^52 µs");
        assert_eq!(Quota::per_minute(1).try_burst(1 << 32), Err(QuotaError::BurstTooLarge));
        let most = (1_u64 << 52) / 60_000_000;
        assert!(Quota::per_minute(1).try_burst(most).is_ok());
        assert_eq!(Quota::per_minute(1).try_burst(most + 1), Err(QuotaError::BurstTooLarge));
    }

    #[test]
    fn a_window_rounds_up_to_a_microsecond() {
        let quota = Quota::new(3, Duration::from_nanos(1_000_001));
        assert_eq!(quota.window(), Duration::from_micros(1_001));
    }

    #[test]
    #[should_panic(expected = "limit must be at least 1")]
    fn zero_panics_with_the_reason() {
        let _ = Quota::per_second(std::hint::black_box(0));
    }
}
