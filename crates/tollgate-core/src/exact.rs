//! Rational microseconds.
//!
//! At three a second, the emission interval is 333,333⅓ µs. Rounded to a microsecond, it would
//! admit one request too many or too few every 278 hours.
//!
//! A span is whole microseconds plus a fraction in `parts` of one. `parts` is the denominator of
//! the emission interval in lowest terms (1 for most quotas). What a policy admits stays below 2^53
//! µs, and a fraction below 2^32, so sums fit into `u64`. Products with more than 2^32 units may
//! not, and are computed in `u128`.

use crate::quota::Quota;

/// A time or a span of time: `us` microseconds and `frac` of [`Interval::parts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exact {
    // Most significant first: the derived order depends on it.
    pub(crate) us: u64,
    pub(crate) frac: u32,
}

impl Exact {
    pub(crate) const fn from_us(us: u64) -> Exact {
        Exact { us, frac: 0 }
    }

    /// Whole microseconds, rounded up.
    #[inline]
    pub(crate) const fn ceil(self) -> u64 {
        self.us + (self.frac > 0) as u64
    }
}

/// The emission interval T = window / limit, without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// T as whole microseconds and a fraction.
    whole: Exact,
    /// The denominator of T in lowest terms.
    pub(crate) parts: u32,
    /// T × parts, the numerator in lowest terms.
    numerator: u64,
    /// 2^64 / numerator, rounded down. Multiplying is much faster than dividing.
    reciprocal: u64,
}

impl Interval {
    /// That of algorithms that count units: they have no emission interval, and need none.
    pub(crate) const NONE: Interval =
        Interval { whole: Exact::from_us(0), parts: 1, numerator: 1, reciprocal: u64::MAX };

    /// `None` if the denominator exceeds a `u32`. With a limit of less than 2^32 it never does.
    pub(crate) const fn new(limit: u64, window_us: u64) -> Option<Interval> {
        let common = gcd(window_us, limit);
        let (parts, numerator) = (limit / common, window_us / common);
        if parts > u32::MAX as u64 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is less than parts, a u32")]
        let whole = Exact { us: numerator / parts, frac: (numerator % parts) as u32 };
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        Some(Interval { whole, parts: parts as u32, numerator, reciprocal: u64::MAX / numerator })
    }

    /// Whether T is whole, as for most quotas. Then every operation is a single integer operation.
    #[inline]
    const fn is_whole(self) -> bool {
        self.parts == 1
    }

    /// n × T. Callers keep n within what the policy can admit, so the result stays below 2^54 µs.
    #[inline]
    pub(crate) const fn times(self, n: u64) -> Exact {
        if self.whole.frac == 0 {
            return Exact::from_us(n * self.whole.us);
        }
        if n > u32::MAX as u64 {
            return self.times_many(n);
        }
        let fractions = n * self.whole.frac as u64;
        let us = n * self.whole.us + fractions / self.parts as u64;
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
        Exact { us, frac: (fractions % self.parts as u64) as u32 }
    }

    #[cold]
    const fn times_many(self, n: u64) -> Exact {
        let scaled = n as u128 * self.numerator as u128;
        let parts = self.parts as u128;
        #[expect(clippy::cast_possible_truncation, reason = "below 2^54, and a remainder of a u32")]
        Exact { us: (scaled / parts) as u64, frac: (scaled % parts) as u32 }
    }

    #[inline]
    pub(crate) const fn add(self, a: Exact, b: Exact) -> Exact {
        if self.is_whole() {
            return Exact::from_us(a.us + b.us);
        }
        let frac = a.frac as u64 + b.frac as u64;
        let parts = self.parts as u64;
        let (carry, frac) = if frac >= parts { (1, frac - parts) } else { (0, frac) };
        #[expect(clippy::cast_possible_truncation, reason = "less than parts, a u32")]
        Exact { us: a.us + b.us + carry, frac: frac as u32 }
    }

    /// a − b, or zero if b is larger.
    #[inline]
    pub(crate) fn saturating_sub(self, a: Exact, b: Exact) -> Exact {
        if self.is_whole() {
            return Exact::from_us(a.us.saturating_sub(b.us));
        }
        if a <= b {
            return Exact::default();
        }
        if a.frac >= b.frac {
            Exact { us: a.us - b.us, frac: a.frac - b.frac }
        } else {
            // a > b and a.frac < b.frac imply a.us > b.us.
            Exact { us: a.us - b.us - 1, frac: self.parts - b.frac + a.frac }
        }
    }

    #[inline]
    pub(crate) fn max(self, a: Exact, b: Exact) -> Exact {
        if self.is_whole() { Exact::from_us(a.us.max(b.us)) } else { a.max(b) }
    }

    /// n / numerator, rounded down.
    #[inline]
    const fn over_numerator(self, n: u64) -> u64 {
        // The reciprocal is at most 1 below 2^64 / numerator. So the product is at most n / 2^64 <
        // 1 below the quotient, and its rounded value at most one below.
        let quotient = ((n as u128 * self.reciprocal as u128) >> 64) as u64;
        quotient + (n - quotient * self.numerator >= self.numerator) as u64
    }

    /// The number of whole T in `span`: the units that it pays for.
    #[inline]
    pub(crate) fn whole_units_in(self, span: Exact) -> u64 {
        if self.is_whole() {
            return self.over_numerator(span.us);
        }
        match span.us.checked_mul(u64::from(self.parts)) {
            Some(scaled) if scaled <= u64::MAX - u64::from(span.frac) => {
                self.over_numerator(scaled + u64::from(span.frac))
            }
            // More than 584,000 years in parts: a limit of millions with such a denominator.
            _ => {
                let scaled = u128::from(span.us) * u128::from(self.parts) + u128::from(span.frac);
                u64::try_from(scaled / u128::from(self.numerator)).unwrap_or(u64::MAX)
            }
        }
    }
}

/// The limit nearest to `limit` whose [`Interval`] exists, of those below it and those above it.
pub(crate) fn nearest_with_interval(limit: u64, window_us: u64) -> u64 {
    let below = most_with_interval(limit, window_us);
    let above = divisors(window_us)
        .into_iter()
        .map(|divisor| (limit.div_ceil(divisor), divisor))
        .filter(|(parts, divisor)| *parts <= MAX_PARTS && parts * divisor <= Quota::MAX_UNITS)
        .map(|(parts, divisor)| parts * divisor)
        .min();
    above.filter(|above| above - limit < limit - below).unwrap_or(below)
}

/// The largest limit up to `limit` whose [`Interval`] exists: a divisor of the window times its
/// parts.
pub(crate) fn most_with_interval(limit: u64, window_us: u64) -> u64 {
    if limit <= MAX_PARTS {
        return limit;
    }
    let below = divisors(window_us).into_iter().map(|divisor| (limit / divisor).min(MAX_PARTS) * divisor);
    below.max().unwrap_or(MAX_PARTS)
}

/// The most parts of a microsecond.
const MAX_PARTS: u64 = u32::MAX as u64;

/// Found by trial division: up to six million for the longest window, and few for most.
fn divisors(n: u64) -> Vec<u64> {
    let (mut divisors, mut rest, mut prime) = (vec![1], n, 2);
    while rest > 1 {
        if prime * prime > rest {
            prime = rest;
        }
        let (without, mut power) = (divisors.len(), 1);
        while rest.is_multiple_of(prime) {
            (rest, power) = (rest / prime, power * prime);
            divisors.extend_from_within(..without);
            divisors.iter_mut().rev().take(without).for_each(|divisor| *divisor *= power);
        }
        prime += 1;
    }
    divisors
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_a_second_has_no_rounding_error() {
        let t = Interval::new(3, 1_000_000).unwrap();
        let once = t.times(1);
        assert_eq!(once, Exact { us: 333_333, frac: 1 });
        let sum = (0..3).fold(Exact::default(), |sum, _| t.add(sum, once));
        assert_eq!(sum, Exact::from_us(1_000_000));
        assert_eq!(t.times(3 * 3_600), Exact::from_us(3_600_000_000));
    }

    #[test]
    fn more_than_a_million_a_second_has_an_interval_below_a_microsecond() {
        let t = Interval::new(4_000_000, 1_000_000).unwrap();
        assert_eq!(t.times(1), Exact { us: 0, frac: 1 });
        assert_eq!(t.times(4_000_000), Exact::from_us(1_000_000));
        assert_eq!(t.whole_units_in(Exact { us: 1, frac: 3 }), 7);
    }

    #[test]
    fn more_units_than_a_u32_have_no_rounding_error() {
        let t = Interval::new(50_000_000_000, 86_400_000_000).unwrap();
        assert_eq!((t.parts, t.times(1)), (125, Exact { us: 1, frac: 91 }));
        assert_eq!(t.times(50_000_000_000), Exact::from_us(86_400_000_000));
        assert_eq!(t.whole_units_in(Exact::from_us(86_400_000_000)), 50_000_000_000);
        let most_parts = Interval::new(u64::from(u32::MAX), 31_622_400_000_001).unwrap();
        let many = most_parts.times(Quota::MAX_UNITS / 2);
        assert_eq!(many, Exact { us: 4_047_667_200_942_548, frac: 4_121_846_228 });
        assert_eq!(most_parts.whole_units_in(many), Quota::MAX_UNITS / 2);
    }

    #[test]
    fn the_nearest_limit_with_few_enough_parts_is_found() {
        let day = 86_400_000_000;
        assert_eq!(nearest_with_interval(Quota::MAX_UNITS - 1, day), Quota::MAX_UNITS);
        assert_eq!(most_with_interval(Quota::MAX_UNITS - 1, day), Quota::MAX_UNITS - 16);
        // Twelve parts of a day are few enough.
        assert_eq!(nearest_with_interval(50_000_000_007, day), 50_000_000_004);
        assert_eq!(nearest_with_interval(50_000_000_015, day), 50_000_000_016);
        assert_eq!(most_with_interval(50_000_000_015, day), 50_000_000_010);
        // A prime window has no divisor that could help.
        assert_eq!(nearest_with_interval(1 << 33, 1_000_000_000_039), MAX_PARTS);
        for (limit, window) in [((1 << 40) - 1, day), (50_000_000_007, day), (4_294_967_297, 1_000)] {
            let nearest = nearest_with_interval(limit, window);
            let has = |limit: u64| limit <= Quota::MAX_UNITS && Interval::new(limit, window).is_some();
            assert!(has(nearest) && !has(limit));
            let between = (0..limit.abs_diff(nearest)).find(|by| has(limit - by) || has(limit + by));
            assert_eq!(between, None, "nearer than {nearest} to {limit} in {window} µs");
        }
    }

    #[test]
    fn multiplying_by_the_reciprocal_equals_dividing_at_the_edges() {
        for window_us in [1, 2, 3, 7, 999_983, 1_000_000, 86_400_000_000, (1 << 32) - 1, 1 << 52] {
            let t = Interval::new(1, window_us).unwrap();
            for near in [0, 1, 2, u64::MAX / 2, u64::MAX - 2 * window_us, u64::MAX].map(|n| n / window_us) {
                for n in [
                    near * window_us,
                    (near * window_us).saturating_add(window_us / 2),
                    near.saturating_add(1).saturating_mul(window_us) - 1,
                ] {
                    assert_eq!(t.over_numerator(n), n / window_us, "{n} / {window_us}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn multiplying_by_the_reciprocal_equals_dividing(n in any::<u64>(), window_us in 1_u64..1 << 52) {
            prop_assert_eq!(Interval::new(1, window_us).unwrap().over_numerator(n), n / window_us);
        }

        /// Every operation agrees with the same operation on integers scaled by the denominator.
        #[test]
        fn agrees_with_scaled_integers(
            limit in (0..=40_u32, any::<u64>()).prop_map(|(bits, any)| 1 + any % (1 << bits)),
            window in 1_000_u64..31_622_400_000_000,
            units in (0..=40_u32).prop_flat_map(|bits| [0..=1_u64 << bits, 0..=1_u64 << bits]),
        ) {
            let Some(t) = Interval::new(limit, window) else {
                prop_assert!(limit > u64::from(u32::MAX));
                return Ok(());
            };
            let scaled = |x: Exact| u128::from(x.us) * u128::from(t.parts) + u128::from(x.frac);
            let most = (1 << 53) * u128::from(limit) / u128::from(window);
            let [n, m] = units.map(|n| n.min(u64::try_from(most).unwrap_or(u64::MAX)));
            let (a, b) = (t.times(n), t.times(m));
            prop_assert_eq!(scaled(a), u128::from(n) * u128::from(t.numerator));
            prop_assert_eq!(scaled(t.add(a, b)), scaled(a) + scaled(b));
            prop_assert_eq!(scaled(t.saturating_sub(a, b)), scaled(a).saturating_sub(scaled(b)));
            prop_assert_eq!(t.whole_units_in(a), n);
            prop_assert_eq!(a < b, scaled(a) < scaled(b));
        }
    }
}
