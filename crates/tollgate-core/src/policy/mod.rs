//! A named quota and the algorithm that enforces it.

mod algorithm;
mod block;
mod boundaries;
mod debt;
mod error;
mod headroom;
mod in_flight;
mod numbers;
mod scope;
pub(crate) mod share;
mod versions;

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

pub use self::algorithm::Algorithm;
pub use self::boundaries::Boundaries;
pub use self::error::PolicyError;
pub use self::numbers::PolicyNumbers;
use self::numbers::{BlockAfter, PolicyScope, longest_wait};
use self::scope::Scope;
use crate::quota::{MAX_SPAN_US, Quota};

/// A named [`Quota`] with its [`Algorithm`].
///
/// The name appears in the `RateLimit` fields of responses and in stored keys. It must be printable
/// ASCII, and unique among the rules of a layer.
///
/// ```
/// use tollgate_core::{Algorithm, Policy, PolicyError, Quota};
///
/// let burst = Policy::new("burst", Quota::per_second(10).burst(20));
/// let daily = Policy::new("daily", Quota::per_day(5_000)).with_algorithm(Algorithm::SLIDING_BUCKETS);
/// assert_eq!((burst.capacity(), daily.capacity()), (20, 5_000));
///
/// let wrong = burst.try_with_algorithm(Algorithm::SlidingWindow);
/// assert_eq!(wrong, Err(PolicyError::BurstOnWindow));
/// ```
///
/// Clones share what they are made of: a clone costs no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy(Arc<PolicyNumbers>);

pub(crate) const MAX_NAME: usize = 128;

/// The registered unit of requests in flight.
const CONCURRENT_REQUESTS: &str = "concurrent-requests";

impl Policy {
    /// A policy enforced by the default algorithm, [`Algorithm::Gcra`].
    ///
    /// # Panics
    /// If [`Policy::try_new`] would return an error.
    #[track_caller]
    pub fn new(name: &str, quota: Quota) -> Policy {
        // Not in a closure, so that the panic names the caller's line.
        match Policy::try_new(name, quota) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {name:?}: {error}"),
        }
    }

    /// [`Policy::new`] for values that are known only at run time.
    ///
    /// # Errors
    /// [`PolicyError`] if the name is invalid, or if GCRA does not allow the quota.
    pub fn try_new(name: &str, quota: Quota) -> Result<Policy, PolicyError> {
        Policy::try_from_parts(name, quota, Algorithm::Gcra)
    }

    /// The same policy under another algorithm.
    ///
    /// # Panics
    /// If [`Policy::try_with_algorithm`] would return an error.
    #[must_use]
    #[track_caller]
    pub fn with_algorithm(self, algorithm: Algorithm) -> Policy {
        match self.clone().try_with_algorithm(algorithm) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {:?}: {error}", self.name()),
        }
    }

    /// [`Policy::with_algorithm`] for an algorithm that is known only at run time.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Policy, PolicyError, Quota};
    ///
    /// # fn main() -> Result<(), PolicyError> {
    /// let from_a_config_file = Algorithm::SLIDING_LOG;
    /// let api = Policy::try_new("api", Quota::per_minute(100))?.try_with_algorithm(from_a_config_file)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PolicyError`] if the algorithm does not allow the quota.
    pub fn try_with_algorithm(self, algorithm: Algorithm) -> Result<Policy, PolicyError> {
        Ok(Policy::try_from_parts(self.name(), self.quota(), algorithm)?.with_options_of(&self))
    }

    /// Names what the policy counts, if that is not requests. The name changes no decision and no
    /// stored state. The cost of a request is that many of these units.
    ///
    /// `content-bytes` and `concurrent-requests` are registered names. They are `qu` of the
    /// `RateLimit-Policy` field. Any other unit, such as `tokens`, appears in no field.
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let upload = Policy::new("upload", Quota::per_minute(1_000_000)).unit("content-bytes");
    /// assert_eq!(upload.unit_name(), Some("content-bytes"));
    /// ```
    ///
    /// # Panics
    /// If [`Policy::try_unit`] would return an error.
    #[must_use]
    #[track_caller]
    pub fn unit(self, unit: &str) -> Policy {
        match self.clone().try_unit(unit) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {:?}, unit {unit:?}: {error}", self.name()),
        }
    }

    /// [`Policy::unit`] for a unit that is known only at run time.
    ///
    /// # Errors
    /// [`PolicyError::InvalidUnit`] if the unit is not 1 to 128 characters of printable ASCII.
    pub fn try_unit(self, unit: &str) -> Result<Policy, PolicyError> {
        if !is_name(unit) {
            return Err(PolicyError::InvalidUnit);
        }
        Ok(self.with(|numbers| numbers.options.unit = Some(unit.into())))
    }

    /// What the policy counts: [`Policy::unit`]. Without one, `concurrent-requests` if it is of
    /// [requests in flight](Policy::in_flight), and otherwise `None`: it counts requests.
    pub fn unit_name(&self) -> Option<&str> {
        let default = self.is_in_flight().then_some(CONCURRENT_REQUESTS);
        self.0.options.unit.as_deref().or(default)
    }

    /// The same policy, for which stores keep the last use and the total of every key: see
    /// [`UsageTotals`](crate::UsageTotals).
    ///
    /// They are counted by the [name](Policy::name) of the policy, in the step that decides. They
    /// survive a change of the quota, of the algorithm and of the window.
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let api = Policy::new("api", Quota::per_day(5_000)).track_usage();
    /// assert!(api.numbers().tracks_usage());
    /// ```
    #[must_use]
    pub fn track_usage(self) -> Policy {
        self.with(|numbers| numbers.options.tracks_usage = true)
    }

    /// The same policy, whose charges are corrected once the work is done. No store grants its
    /// units ahead of demand, so that each correction reaches the units that it is of.
    ///
    /// [`Rule::reserve`](https://docs.rs/tollgate/latest/tollgate/struct.Rule.html#method.reserve)
    /// makes its policy such a one.
    #[must_use]
    pub fn reserved(self) -> Policy {
        self.with(|numbers| numbers.options.is_reserved = true)
    }

    /// The same policy with another quota.
    ///
    /// # Errors
    /// [`PolicyError`] if the algorithm does not allow the quota.
    pub fn try_with_quota(&self, quota: Quota) -> Result<Policy, PolicyError> {
        Ok(Policy::try_from_parts(self.name(), quota, self.algorithm())?.with_options_of(self))
    }

    /// [`Policy::try_new`] and [`Policy::try_with_algorithm`] in one step. A quota need not fit
    /// GCRA then: see [`PolicyError::TooManyParts`].
    ///
    /// # Errors
    /// [`PolicyError`] if the name is invalid, or if the algorithm does not allow the quota.
    pub fn try_from_parts(name: &str, quota: Quota, algorithm: Algorithm) -> Result<Policy, PolicyError> {
        if !is_name(name) {
            return Err(PolicyError::InvalidName);
        }
        let buckets = match algorithm {
            Algorithm::SlidingBuckets { buckets } => Some(buckets),
            _ => None,
        };
        let window_us = (!algorithm.holds_ends()).then(|| quota.window_us());
        let scope = Scope { name, algorithm: algorithm.name(), buckets, window_us }.to_string();
        let name_length = u8::try_from(name.len()).map_err(|_| PolicyError::InvalidName)?;
        let scope = PolicyScope { hash: hash_of(&scope), text: scope.into(), name_length };
        Ok(Policy(Arc::new(PolicyNumbers::try_new(scope, quota, algorithm)?)))
    }

    /// Returns a policy with this [scope](Policy::scope), for tools that list stored states. `None`
    /// if no policy of this version has it.
    ///
    /// A scope contains neither limit nor burst, so the policy has the largest. To look with it
    /// shows what a window has used, and when a bucket is full again, but not what is left. Of a
    /// bucket with several [versions](PolicyNumbers::version_burst) it sees the last that is full.
    /// Slots have [`Quota::DEFAULT_TTL`].
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Policy};
    ///
    /// let policy = Policy::from_scope("api~sliding-buckets.10~1m").unwrap();
    /// assert_eq!((policy.name(), policy.algorithm()), ("api", Algorithm::SLIDING_BUCKETS));
    /// assert_eq!(Policy::from_scope("api~none~1m"), None);
    /// ```
    pub fn from_scope(scope: &str) -> Option<Policy> {
        let Scope { name, algorithm, buckets, window_us } = Scope::parse(scope)?;
        let algorithm = match (algorithm, buckets) {
            ("gcra", None) => Algorithm::Gcra,
            ("leaky-bucket", None) => Algorithm::LeakyBucket { max_wait: Duration::ZERO },
            ("fixed-window", None) => Algorithm::FIXED_WINDOW,
            ("fixed-window-aligned", None) => Algorithm::FIXED_WINDOW_ALIGNED,
            // A scope names no boundaries: what is used counts as used in one window without end.
            ("calendar-window", None) => Algorithm::CalendarWindow { boundaries: Boundaries::NONE },
            ("sliding-window", None) => Algorithm::SlidingWindow,
            ("sliding-buckets", Some(buckets)) => Algorithm::SlidingBuckets { buckets },
            ("sliding-log", None) => Algorithm::SlidingLog { max_limit: u32::MAX },
            ("in-flight", None) => Algorithm::InFlight,
            ("block", None) => Algorithm::Block,
            _ => return None,
        };
        let window = match window_us {
            None if algorithm.holds_ends() => Quota::DEFAULT_TTL,
            Some(window_us) if !algorithm.holds_ends() => Duration::from_micros(window_us),
            _ => return None,
        };
        let quota = match algorithm {
            // A bucket that takes as long to fill as any can.
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => {
                let burst = MAX_SPAN_US.checked_div(window_us?)?;
                let quota = Quota::try_new(1, window).ok()?;
                quota.try_burst(burst.min(Quota::MAX_UNITS)).ok()?
            }
            Algorithm::SlidingLog { max_limit } => Quota::try_new(max_limit.into(), window).ok()?,
            Algorithm::InFlight => Quota::try_new(Algorithm::MAX_IN_FLIGHT, window).ok()?,
            Algorithm::Block => Quota::try_new(1, window).ok()?,
            _ => Quota::try_new(Quota::MAX_UNITS, window).ok()?,
        };
        let policy = Policy::try_from_parts(name, quota, algorithm).ok()?;
        Some(policy.with(PolicyNumbers::forget_versions))
    }

    /// The same policy with another quota of the same window, and so with the same scope.
    fn with_quota_of_scope(&self, quota: Quota) -> Result<Policy, PolicyError> {
        debug_assert_eq!(quota.window(), self.quota().window());
        let numbers = PolicyNumbers::try_new(self.0.scope.clone(), quota, self.algorithm())?;
        Ok(Policy(Arc::new(numbers)).with_options_of(self))
    }

    /// The same policy with all of `other` that does not follow from a quota.
    fn with_options_of(self, other: &Policy) -> Policy {
        self.with(|numbers| {
            numbers.options = other.0.options.clone();
            numbers.headroom = other.0.headroom;
        })
    }

    fn with(mut self, change: impl FnOnce(&mut PolicyNumbers)) -> Policy {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// What it means to stores: see [`PolicyNumbers`].
    #[inline]
    pub fn numbers(&self) -> &PolicyNumbers {
        &self.0
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The quota.
    pub fn quota(&self) -> Quota {
        self.0.quota
    }

    /// The algorithm.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        self.0.algorithm
    }

    /// Identifies the stored states of this policy: its name, its algorithm (`SlidingBuckets` with
    /// its number of buckets) and its window. No part of it is what may change while states live
    /// on: limit and burst, the boundaries of a calendar window, the time to live of
    /// [slots](Policy::in_flight), and the time of a [block](Policy::block_after).
    #[inline]
    pub fn scope(&self) -> &str {
        &self.0.scope.text
    }

    /// The longest wait of a request in the queue of a leaky bucket. Zero for other algorithms.
    #[inline]
    pub fn longest_wait(&self) -> Duration {
        longest_wait(self.algorithm())
    }

    /// The most units that pass at once without delay: the burst of a bucket algorithm, the limit
    /// of the others. This is `q` of the `RateLimit-Policy` field.
    pub fn capacity(&self) -> u64 {
        self.0.capacity
    }

    /// The largest cost that can ever pass: the capacity, plus what a leaky bucket leaks in its
    /// longest wait. 1 for requests in flight.
    pub fn largest_cost(&self) -> u64 {
        self.0.largest_cost
    }
}

/// Whether a text can be the name of a policy or of a unit.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

fn hash_of(scope: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(scope.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_be_printable_ascii() {
        for name in ["a", "with space", "quo\"te", &"x".repeat(128)] {
            assert!(Policy::try_from_parts(name, Quota::per_second(1), Algorithm::Gcra).is_ok(), "{name:?}");
        }
        for name in ["", "é", "new\nline", "\u{7f}", &"x".repeat(129)] {
            let error = Policy::try_from_parts(name, Quota::per_second(1), Algorithm::Gcra);
            assert_eq!(error, Err(PolicyError::InvalidName), "{name:?}");
        }
    }

    #[test]
    fn units_must_be_printable_ascii() {
        let policy = Policy::new("p", Quota::per_second(1));
        assert_eq!(policy.unit_name(), None);
        for unit in ["tokens", "content-bytes", "quo\"te", &"x".repeat(128)] {
            assert_eq!(policy.clone().unit(unit).unit_name(), Some(unit));
        }
        for unit in ["", "é", "new\nline", "\u{7f}", &"x".repeat(129)] {
            assert_eq!(policy.clone().try_unit(unit), Err(PolicyError::InvalidUnit), "{unit:?}");
        }
    }

    #[test]
    #[should_panic(expected = "policy \"p\", unit \"\": a policy's unit must be 1 to 128 characters")]
    fn an_invalid_unit_panics_with_the_policys_name() {
        let _ = Policy::new("p", Quota::per_second(1)).unit("");
    }

    #[test]
    fn a_unit_changes_neither_scope_nor_capacity() {
        let plain = Policy::new("p", Quota::per_minute(9));
        let bytes = plain.clone().unit("tokens").unit("content-bytes");
        assert_eq!(
            (bytes.scope(), bytes.numbers().scope_hash()),
            (plain.scope(), plain.numbers().scope_hash())
        );
        assert_eq!(
            (bytes.capacity(), bytes.numbers().horizon()),
            (plain.capacity(), plain.numbers().horizon())
        );
    }

    #[test]
    fn a_policy_keeps_its_options_under_another_algorithm() {
        let policy = Policy::new("p", Quota::per_minute(9)).unit("tokens").track_usage();
        let window = policy.with_algorithm(Algorithm::SlidingWindow);
        assert_eq!((window.unit_name(), window.numbers().tracks_usage()), (Some("tokens"), true));
    }

    #[test]
    fn a_scope_contains_window_and_algorithm_but_not_the_limit() {
        let scope =
            |quota, algorithm| Policy::try_from_parts("p", quota, algorithm).unwrap().scope().to_owned();
        assert_eq!(scope(Quota::per_minute(7), Algorithm::Gcra), "p~gcra~1m");
        assert_eq!(scope(Quota::per_minute(9).burst(2), Algorithm::Gcra), "p~gcra~1m");
        assert_eq!(scope(Quota::per_day(9), Algorithm::SLIDING_BUCKETS), "p~sliding-buckets.10~1d");
        let odd = Quota::new(1, Duration::from_micros(1_500_001));
        assert_eq!(scope(odd, Algorithm::FIXED_WINDOW), "p~fixed-window~1500001us");
        assert_eq!(scope(Quota::per_day(9), Algorithm::InFlight), "p~in-flight");
        assert_eq!(scope(Quota::per_day(1), Algorithm::Block), "p~block");
    }

    #[test]
    fn a_policy_is_found_by_its_scope() {
        for algorithm in [
            Algorithm::Gcra,
            Algorithm::LeakyBucket { max_wait: Duration::ZERO },
            Algorithm::FIXED_WINDOW,
            Algorithm::FIXED_WINDOW_ALIGNED,
            Algorithm::CalendarWindow { boundaries: Boundaries::NONE },
            Algorithm::SlidingWindow,
            Algorithm::SlidingBuckets { buckets: 7 },
            Algorithm::SlidingLog { max_limit: u32::MAX },
        ] {
            for window in
                [Duration::from_millis(1), Duration::from_secs(90), Duration::from_secs(366 * 86_400)]
            {
                let policy = Policy::try_from_parts("a~b=c", Quota::new(1, window), algorithm).unwrap();
                let found = Policy::from_scope(policy.scope()).unwrap();
                assert_eq!((found.scope(), found.algorithm()), (policy.scope(), algorithm));
                assert!(
                    found.largest_cost() >= policy.largest_cost()
                        && found.numbers().horizon() >= policy.numbers().horizon()
                );
            }
        }
        for policy in [
            Policy::in_flight("a~b", 3),
            Policy::new("a~1m", Quota::per_day(1))
                .block_after(1, Duration::from_secs(9))
                .numbers()
                .block()
                .unwrap(),
        ] {
            let found = Policy::from_scope(policy.scope()).unwrap();
            assert_eq!((found.scope(), found.algorithm()), (policy.scope(), policy.algorithm()));
        }
        for scope in [
            "api~gcra.1~1m",
            "api~other~1m",
            "api~sliding-buckets~1m",
            "api~sliding-buckets.0~1m",
            "~gcra~1m",
            "api~gcra~0us",
            "api~gcra~367d",
            "api~gcra",
            "api~block~1m",
            "api~in-flight~15s",
        ] {
            assert_eq!(Policy::from_scope(scope), None, "{scope}");
        }
    }

    #[test]
    fn out_of_range_algorithm_options_are_refused() {
        let quota = Quota::per_minute(60);
        let leaky = |max_wait| Policy::try_from_parts("p", quota, Algorithm::LeakyBucket { max_wait });
        assert_eq!(leaky(Duration::MAX), Err(PolicyError::WaitTooLong));
        assert_eq!(
            leaky(Duration::from_micros(1 << 52)),
            Err(PolicyError::WaitTooLong),
            "burst × T is added to max_wait"
        );
        assert_eq!(
            leaky(Duration::from_micros((1 << 52) - 1_000_000)).unwrap().largest_cost(),
            (1 << 52) / 1_000_000
        );
        assert_eq!(leaky(Duration::from_secs(3)).unwrap().largest_cost(), 4);
        let buckets = |buckets| Policy::try_from_parts("p", quota, Algorithm::SlidingBuckets { buckets });
        assert_eq!(buckets(0), Err(PolicyError::BucketsOutOfRange));
        assert_eq!(buckets(1_001), Err(PolicyError::BucketsOutOfRange));
        let odd = Quota::per_day(50_000_000_007);
        for bucket in [Algorithm::Gcra, Algorithm::LeakyBucket { max_wait: Duration::ZERO }] {
            let error = Policy::try_from_parts("p", odd, bucket).unwrap_err();
            assert_eq!(error, PolicyError::TooManyParts { nearest: 50_000_000_004 });
            assert!(error.to_string().ends_with("the nearest limit that fits is 50000000004"), "{error}");
            assert!(Policy::try_from_parts("p", Quota::per_day(50_000_000_004), bucket).is_ok());
        }
        assert!(Policy::try_from_parts("p", odd, Algorithm::SlidingWindow).is_ok(), "windows count no parts");
        let log = Algorithm::SlidingLog { max_limit: u32::MAX };
        assert_eq!(Policy::try_from_parts("p", Quota::per_day(1 << 32), log), Err(PolicyError::LogTooLong));
        let big = Quota::per_day(100_001);
        assert_eq!(Policy::try_from_parts("p", big, Algorithm::SLIDING_LOG), Err(PolicyError::LogTooLong));
        assert!(Policy::try_from_parts("p", big, Algorithm::SlidingLog { max_limit: 200_000 }).is_ok());
    }
}
