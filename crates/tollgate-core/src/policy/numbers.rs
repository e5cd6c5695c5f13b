//! What a policy means in numbers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::exact::{Exact, Interval, nearest_with_interval};
use crate::policy::{Algorithm, PolicyError};
use crate::quota::{MAX_SPAN_US, Quota};

/// What a [`Policy`](crate::Policy) means to stores: in numbers, for those with their own
/// arithmetic, and what they keep and refuse besides: [`Policy::numbers`](crate::Policy::numbers).
///
/// ```
/// use tollgate_core::{Policy, Quota};
///
/// // A unit in 100/3 ms: 33,333 and one third of a microsecond.
/// let api = Policy::new("api", Quota::per_second(30).burst(9));
/// let numbers = api.numbers();
/// assert_eq!((numbers.emission(1), numbers.parts()), (Some((33_333, 1)), 3));
/// assert_eq!(numbers.horizon(), (300_000, 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyNumbers {
    pub(super) scope: PolicyScope,
    pub(crate) quota: Quota,
    pub(super) algorithm: Algorithm,
    pub(crate) interval: Interval,
    /// GCRA's τ: the time to refill an empty bucket, burst × T.
    pub(crate) tolerance: Exact,
    /// How far TAT may lie ahead of now: the tolerance plus a leaky bucket's longest wait.
    pub(crate) horizon: Exact,
    /// How far TAT may lie ahead before it is that of another version.
    pub(crate) reach: Exact,
    /// With the limit, names the version. 0 without versions.
    pub(crate) version_burst: u64,
    pub(super) capacity: u64,
    pub(super) largest_cost: u64,
    /// Units that it leaves to others.
    pub(super) headroom: u64,
    /// The most debt that it makes. 0 without debt.
    pub(super) most_debt: u64,
    pub(super) options: PolicyOptions,
}

/// The scope of a policy. It begins with the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyScope {
    pub(super) text: Arc<str>,
    pub(super) name_length: u8,
    pub(super) hash: u64,
}

/// What a policy keeps with another quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyOptions {
    pub(super) unit: Option<Arc<str>>,
    pub(super) tracks_usage: bool,
    pub(super) is_reserved: bool,
    pub(super) block: Option<BlockAfter>,
}

/// When a key is blocked, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockAfter {
    pub(super) denials: NonZeroU32,
    /// One unit in the time of a block.
    pub(super) quota: Quota,
}

impl PolicyNumbers {
    pub(super) fn try_new(
        scope: PolicyScope,
        quota: Quota,
        algorithm: Algorithm,
    ) -> Result<PolicyNumbers, PolicyError> {
        let interval = match algorithm {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => {
                Interval::new(quota.limit(), quota.window_us()).ok_or_else(|| PolicyError::TooManyParts {
                    nearest: nearest_with_interval(quota.limit(), quota.window_us()),
                })?
            }
            _ => Interval::NONE,
        };
        let max_wait = longest_wait(algorithm);
        let capacity = match algorithm {
            Algorithm::Gcra => quota.given_burst().unwrap_or(quota.limit()),
            Algorithm::LeakyBucket { .. } => quota.given_burst().unwrap_or(1),
            _ if quota.given_burst().is_some() => return Err(PolicyError::BurstOnWindow),
            Algorithm::SlidingBuckets { buckets } if !(1..=Algorithm::MAX_BUCKETS).contains(&buckets) => {
                return Err(PolicyError::BucketsOutOfRange);
            }
            Algorithm::SlidingLog { max_limit } if quota.limit() > u64::from(max_limit) => {
                return Err(PolicyError::LogTooLong);
            }
            Algorithm::InFlight if quota.limit() > Algorithm::MAX_IN_FLIGHT => {
                return Err(PolicyError::TooManyInFlight);
            }
            Algorithm::Block if quota.limit() > 1 => return Err(PolicyError::InvalidBlock),
            _ => quota.limit(),
        };
        let tolerance = interval.times(capacity);
        let max_wait_us = u64::try_from(max_wait.as_micros()).unwrap_or(u64::MAX);
        if tolerance.us.saturating_add(max_wait_us) > MAX_SPAN_US {
            return Err(PolicyError::WaitTooLong);
        }
        let horizon = interval.add(tolerance, Exact::from_us(max_wait_us));
        let largest_cost = match algorithm {
            Algorithm::LeakyBucket { .. } => interval.whole_units_in(horizon).min(Quota::MAX_UNITS),
            Algorithm::InFlight => 1,
            // It charges nothing.
            Algorithm::Block => Quota::MAX_UNITS,
            _ => capacity,
        };
        let mut numbers = PolicyNumbers {
            scope,
            quota,
            algorithm,
            interval,
            tolerance,
            horizon,
            reach: tolerance,
            version_burst: capacity,
            capacity,
            largest_cost,
            headroom: 0,
            most_debt: 0,
            options: PolicyOptions::default(),
        };
        if algorithm != Algorithm::Gcra {
            numbers.forget_versions();
        }
        Ok(numbers)
    }

    pub(super) fn name(&self) -> &str {
        &self.scope.text[..usize::from(self.scope.name_length)]
    }

    /// Whether stores keep the last use and the total of every key:
    /// [`Policy::track_usage`](crate::Policy::track_usage).
    #[inline]
    pub fn tracks_usage(&self) -> bool {
        self.options.tracks_usage
    }

    /// Whether charges are corrected once the work is done:
    /// [`Policy::reserved`](crate::Policy::reserved).
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.options.is_reserved
    }

    /// A hash of the [scope](crate::Policy::scope) for tables in memory. It is only valid within
    /// this process.
    #[inline]
    pub fn scope_hash(&self) -> u64 {
        self.scope.hash
    }

    /// The denominator of the emission interval T = window / limit in lowest terms. In units of 1 /
    /// `parts` µs, T is a whole number. 1 unless the algorithm is a bucket.
    pub fn parts(&self) -> u32 {
        self.interval.parts
    }

    /// How far TAT may lie ahead of now: burst × T plus a leaky bucket's longest wait. In
    /// microseconds and [parts](PolicyNumbers::parts) of one. 0 unless the algorithm is a bucket.
    pub fn horizon(&self) -> (u64, u32) {
        (self.horizon.us, self.horizon.frac)
    }

    /// `units` × T, in microseconds and [parts](PolicyNumbers::parts) of one. `None` if `units`
    /// exceeds [`Policy::largest_cost`](crate::Policy::largest_cost). 0 unless the algorithm is a
    /// bucket.
    pub fn emission(&self, units: u64) -> Option<(u64, u32)> {
        let fits = units <= self.largest_cost;
        fits.then(|| self.interval.times(units)).map(|span| (span.us, span.frac))
    }
}

/// The longest wait of a request in the queue of a leaky bucket. Zero for other algorithms.
#[inline]
pub(super) fn longest_wait(algorithm: Algorithm) -> Duration {
    match algorithm {
        Algorithm::LeakyBucket { max_wait } => max_wait,
        _ => Duration::ZERO,
    }
}
