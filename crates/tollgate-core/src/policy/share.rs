//! A fraction of a quota.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::exact::most_with_interval;
use crate::policy::{Algorithm, Policy, PolicyError};
use crate::quota::{Quota, QuotaError};
use crate::text_error::TextError;

/// A fraction of each quota, for a store that decides alone although a fleet shares the quota.
///
/// With a share of 1/N each, N nodes that lost their common store stay within the quota together.
///
/// ```
/// use tollgate_core::{Policy, Quota, Share};
///
/// let a_third = Share::new(1, 3);
/// let daily = Policy::new("daily", Quota::per_day(1_000));
/// assert_eq!(daily.share(a_third)?.quota(), Quota::per_day(333));
/// assert_eq!("1/3".parse(), Ok(a_third));
/// # Ok::<(), tollgate_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    part: NonZeroU16,
    of: NonZeroU16,
}

impl Share {
    /// The whole quota, for a store that decides for all nodes.
    pub const WHOLE: Share = Share::new(1, 1);

    /// `part` parts of `of`.
    ///
    /// # Panics
    /// If [`Share::try_new`] would return an error; in a constant, at compile time.
    #[track_caller]
    pub const fn new(part: u16, of: u16) -> Share {
        match Share::try_new(part, of) {
            Ok(share) => share,
            Err(error) => panic!("{}", error.as_str()),
        }
    }

    /// [`Share::new`] for values that are known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ShareOfNothing`] or [`QuotaError::ShareAboveWhole`].
    pub const fn try_new(part: u16, of: u16) -> Result<Share, QuotaError> {
        match (NonZeroU16::new(part), NonZeroU16::new(of)) {
            (Some(part), Some(of)) if part.get() <= of.get() => Ok(Share { part, of }),
            (None, Some(_)) => Err(QuotaError::ShareOfNothing),
            _ => Err(QuotaError::ShareAboveWhole),
        }
    }

    /// The part, and what it is a part of.
    pub(crate) fn parts(self) -> (NonZeroU16, NonZeroU16) {
        (self.part, self.of)
    }

    /// The share with these [`Share::parts`]. `None` if it is more than the whole.
    pub(crate) fn of_parts(part: NonZeroU16, of: NonZeroU16) -> Option<Share> {
        (part <= of).then_some(Share { part, of })
    }

    /// Returns this share of at most [`Quota::MAX_UNITS`] units, rounded down.
    ///
    /// ```
    /// use tollgate_core::Share;
    ///
    /// assert_eq!(Share::new(1, 3).of_units(100), 33);
    /// ```
    pub fn of_units(self, units: u64) -> u64 {
        // Does not overflow, since the part is a `u16`.
        units.min(Quota::MAX_UNITS) * u64::from(self.part.get()) / u64::from(self.of.get())
    }
}

/// Written as `1/3`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

impl FromStr for Share {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Share, TextError> {
        let malformed =
            || TextError::new(text, "a share: expected a fraction such as 1/3, in numbers below 65536");
        // `u16::from_str` would accept a sign.
        let number =
            |text: &str| text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let (part, of) = text.split_once('/').ok_or_else(malformed)?;
        match (number(part), number(of)) {
            (Some(part), Some(of)) => {
                Share::try_new(part, of).map_err(|error| TextError::new(text, format!("a share: {error}")))
            }
            _ => Err(malformed()),
        }
    }
}

impl Policy {
    /// The same policy with this share of its limit and of its burst, each rounded down. For a
    /// bucket algorithm, a limit above 2^32 is rounded down to one with few enough
    /// [parts](PolicyError::TooManyParts).
    ///
    /// # Errors
    /// [`PolicyError::ShareOfNothing`] if less than one unit of either is left. This includes a
    /// [leaky bucket](Algorithm::LeakyBucket) with the default burst of 1. Otherwise, the errors of
    /// [`Policy::try_from_parts`] for the smaller quota.
    pub fn share(&self, share: Share) -> Result<Policy, PolicyError> {
        self.share_of_units(|units| share.of_units(units), share)
    }

    /// [`Policy::share`], but at least one unit of the limit and of the burst. So with more nodes
    /// than units, the nodes together exceed the quota: each grants one unit in each window.
    ///
    /// # Errors
    /// Those of [`Policy::share`], but never [`PolicyError::ShareOfNothing`].
    pub fn share_of_at_least_one(&self, share: Share) -> Result<Policy, PolicyError> {
        self.share_of_units(|units| share.of_units(units).max(1), share)
    }

    fn share_of_units(&self, of_units: impl Fn(u64) -> u64, share: Share) -> Result<Policy, PolicyError> {
        // A block is the same in each store.
        if share.part == share.of || self.numbers().is_block() {
            return Ok(self.clone());
        }
        let quota = self.quota();
        let nothing = PolicyError::ShareOfNothing;
        let limit = match (of_units(quota.limit()), self.algorithm()) {
            (limit, Algorithm::Gcra | Algorithm::LeakyBucket { .. }) => {
                most_with_interval(limit, quota.window_us())
            }
            (limit, _) => limit,
        };
        let part = Quota::try_new(limit, quota.window()).map_err(|_| nothing)?;
        let has_own_burst =
            quota.given_burst().is_some() || matches!(self.algorithm(), Algorithm::LeakyBucket { .. });
        let policy = match of_units(self.capacity()) {
            _ if !has_own_burst => self.with_quota_of_scope(part)?,
            0 => return Err(nothing),
            burst => {
                let part = part.try_burst(burst).map_err(|_| PolicyError::WaitTooLong)?;
                self.with_quota_of_scope(part)?
            }
        };
        Ok(policy.with(|numbers| {
            // A class and its base have the same share.
            numbers.headroom = match self.0.headroom {
                0 => 0,
                headroom => of_units(self.capacity() + headroom) - numbers.capacity,
            };
            if has_own_burst && self.0.has_versions() {
                // That of its base for a class.
                numbers.set_version(of_units(self.0.version_burst));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn quota(policy: Policy, share: Share) -> Result<(u64, Option<u64>), PolicyError> {
        policy.share(share).map(|policy| (policy.quota().limit(), policy.quota().given_burst()))
    }

    #[test]
    fn shares_of_all_nodes_do_not_exceed_the_whole() {
        for of in 1..=20_u16 {
            for limit in 20..=100 {
                let policy = Policy::new("p", Quota::per_second(limit).burst(2 * limit + 1));
                let (part, burst) = quota(policy, Share::new(1, of)).unwrap();
                assert!(part * u64::from(of) <= limit && (part + 1) * u64::from(of) > limit);
                assert!(burst.unwrap() * u64::from(of) <= 2 * limit + 1);
            }
        }
        assert_eq!(
            quota(Policy::new("p", Quota::per_day(u64::from(u32::MAX))), Share::new(65_534, 65_535)),
            Ok((4_294_901_758, None))
        );
    }

    #[test]
    fn a_share_of_a_large_limit_is_one_that_a_bucket_allows() {
        let third = Share::new(1, 3);
        let large = Policy::new("p", Quota::per_day(50_000_000_000));
        let (limit, _) = quota(large.clone(), third).unwrap();
        assert!(limit <= 16_666_666_666 && limit > 16_666_666_000, "{limit}");
        let window = large.with_algorithm(Algorithm::FIXED_WINDOW);
        assert_eq!(quota(window, third), Ok((16_666_666_666, None)));
    }

    #[test]
    fn a_share_below_one_unit_is_refused() {
        let third = Share::new(1, 3);
        assert_eq!(quota(Policy::new("p", Quota::per_day(2)), third), Err(PolicyError::ShareOfNothing));
        assert_eq!(
            quota(Policy::new("p", Quota::per_day(9).burst(2)), third),
            Err(PolicyError::ShareOfNothing)
        );
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
        let leaky = |quota| Policy::new("p", quota).with_algorithm(queue);
        assert_eq!(quota(leaky(Quota::per_second(9)), third), Err(PolicyError::ShareOfNothing));
        assert_eq!(quota(leaky(Quota::per_second(9).burst(3)), third), Ok((3, Some(1))));
        assert_eq!(quota(leaky(Quota::per_second(9)), Share::WHOLE), Ok((9, None)));
    }

    #[test]
    fn a_share_of_at_least_one_unit_is_never_nothing() {
        let third = Share::new(1, 3);
        let of = |policy: Policy| {
            let part = policy.share_of_at_least_one(third).unwrap();
            (part.quota().limit(), part.capacity())
        };
        assert_eq!(of(Policy::new("p", Quota::per_day(2))), (1, 1));
        assert_eq!(of(Policy::new("p", Quota::per_day(9).burst(2))), (3, 1));
        assert_eq!(of(Policy::new("p", Quota::per_day(2).burst(9))), (1, 3));
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
        assert_eq!(of(Policy::new("p", Quota::per_second(9)).with_algorithm(queue)), (3, 1));
        for limit in 1..=7 {
            for left in 1..limit {
                let class = Policy::new("p", Quota::per_day(limit)).leaving(left).unwrap();
                let part = class.share_of_at_least_one(third).unwrap();
                assert!(part.capacity() >= 1, "{limit} {left}");
                let base = Policy::new("p", Quota::per_day(limit)).share_of_at_least_one(third).unwrap();
                assert!(
                    part.capacity() + part.numbers().headroom() <= base.capacity().max(1),
                    "{limit} {left}"
                );
            }
        }
        let large = Policy::new("p", Quota::per_day(100));
        assert_eq!(large.share_of_at_least_one(third), large.share(third));
    }

    #[test]
    fn a_share_keeps_name_and_scope_of_the_policy() {
        let policy = Policy::new("p", Quota::per_minute(9).burst(6)).with_algorithm(Algorithm::Gcra);
        let third = policy.share(Share::new(1, 3)).unwrap();
        assert_eq!(
            (third.name(), third.scope(), third.numbers().scope_hash()),
            (policy.name(), policy.scope(), policy.numbers().scope_hash())
        );
        assert_eq!((third.quota(), third.capacity()), (Quota::per_minute(3).burst(2), 2));
        assert_eq!(third, Policy::new("p", Quota::per_minute(3).burst(2)));
    }

    #[test]
    fn a_share_keeps_the_options_of_the_policy() {
        let policy = Policy::new("p", Quota::per_minute(9)).unit("tokens").track_usage();
        for share in [Share::new(1, 3), Share::WHOLE] {
            let share = policy.share(share).unwrap();
            assert_eq!((share.unit_name(), share.numbers().tracks_usage()), (Some("tokens"), true));
        }
    }

    #[test]
    fn a_share_is_parsed_from_text_and_bad_text_refused() {
        const FORM: &str = "expected a fraction such as 1/3, in numbers below 65536";
        assert_eq!("2/5".parse(), Ok(Share::new(2, 5)));
        assert_eq!(Share::new(2, 5).to_string(), "2/5");
        for (text, error) in [
            ("0/5", "a share of nothing would refuse everything"),
            ("6/5", "a share must not be more than the whole"),
            ("1/0", "a share must not be more than the whole"),
            ("", FORM),
            ("1", FORM),
            ("+1/3", FORM),
            ("1/-3", FORM),
            ("1/3/3", FORM),
            ("1 / 3", FORM),
            ("1/65536", FORM),
        ] {
            let message = format!("{text:?} is not a share: {error}");
            assert_eq!(text.parse::<Share>().unwrap_err().to_string(), message);
        }
    }
}
