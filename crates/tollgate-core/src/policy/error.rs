//! Why a policy, or a variant of one, cannot be.

use std::fmt;

use crate::quota::QuotaError;

/// Reasons why a [`Policy`](crate::Policy) cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyError {
    /// The quota cannot be made.
    InvalidQuota(QuotaError),
    /// The name is empty, longer than 128 bytes, or not printable ASCII.
    InvalidName,
    /// The unit is empty, longer than 128 bytes, or not printable ASCII.
    InvalidUnit,
    /// A burst was given for a window algorithm.
    BurstOnWindow,
    /// `SlidingBuckets` takes 1 to [`Algorithm::MAX_BUCKETS`](crate::Algorithm::MAX_BUCKETS)
    /// buckets.
    BucketsOutOfRange,
    /// The limit exceeds the `max_limit` of `SlidingLog`, which keeps an entry for each unit.
    LogTooLong,
    /// The limit of requests in flight exceeds
    /// [`Algorithm::MAX_IN_FLIGHT`](crate::Algorithm::MAX_IN_FLIGHT).
    TooManyInFlight,
    /// burst × window / limit + `max_wait` exceeds 2^52 µs.
    WaitTooLong,
    /// For a bucket algorithm, the limit exceeds 2^32 and divides the window badly: window / limit
    /// in lowest terms has a denominator above `u32::MAX`.
    TooManyParts {
        /// The nearest limit that fits, in the same window.
        nearest: u64,
    },
    /// The limit of a [`JobPolicy`](crate::JobPolicy) exceeds
    /// [`JobPolicy::MAX_JOBS`](crate::JobPolicy::MAX_JOBS).
    TooManyJobs,
    /// A block after no denials, of a time outside of 1 ms to 366 days, or with a limit above 1.
    InvalidBlock,
    /// A class of requests would leave all units to others.
    NothingLeft,
    /// The [`Share`](crate::Share) of the limit, or of the burst, is less than one unit.
    ShareOfNothing,
    /// The boundaries of a [calendar window](crate::Algorithm::CalendarWindow) do not ascend, or
    /// one is later than [`Timestamp::MAX`](crate::Timestamp::MAX).
    InvalidBoundaries,
    /// A tier of a calendar window has another window than the rule's policy.
    OtherWindow,
    /// The store does not support the policy: see [`Store::supports`](crate::Store::supports).
    Unsupported,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyError::InvalidQuota(error) => return error.fmt(f),
            PolicyError::InvalidName => "a policy's name must be 1 to 128 characters of printable ASCII",
            PolicyError::InvalidUnit => "a policy's unit must be 1 to 128 characters of printable ASCII",
            PolicyError::BurstOnWindow => {
                "a burst has no meaning for a window algorithm: choose gcra, or remove the burst"
            }
            PolicyError::BucketsOutOfRange => "sliding-buckets takes 1 to 1000 buckets",
            PolicyError::LogTooLong => {
                "sliding-log may keep an entry for each unit: raise max_limit, or choose another algorithm"
            }
            PolicyError::TooManyInFlight => "in-flight takes a limit of at most 1000000",
            PolicyError::TooManyJobs => "a policy of jobs takes a limit of at most 1000",
            PolicyError::WaitTooLong => "burst x window / limit + max_wait must not exceed 2^52 microseconds",
            PolicyError::TooManyParts { nearest } => {
                return write!(
                    f,
                    "window / limit has more than 2^32 parts of a microsecond: the nearest limit that fits is {nearest}"
                );
            }
            PolicyError::InvalidBlock => "a block takes at least 1 denial, and lasts 1 ms to 366 days",
            PolicyError::NothingLeft => "a class must leave less than the capacity to others",
            PolicyError::ShareOfNothing => {
                "that share of the limit, or of the burst (1 for leaky-bucket unless given), is less than one unit"
            }
            PolicyError::InvalidBoundaries => "the boundaries of windows must ascend, up to 2^52 microseconds",
            PolicyError::OtherWindow => {
                "a tier of a calendar window has the window of the rule: use CalendarWindow::quota"
            }
            PolicyError::Unsupported => "the store does not support this policy: see the store's documentation",
        })
    }
}

impl std::error::Error for PolicyError {}

/// For `?` where a quota and its policy are made of values that are known only at run time.
impl From<QuotaError> for PolicyError {
    fn from(error: QuotaError) -> PolicyError {
        PolicyError::InvalidQuota(error)
    }
}
