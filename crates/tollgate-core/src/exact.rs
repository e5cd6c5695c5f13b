//! Rational microseconds.
//!
//! At three a second, the emission interval is 333,333⅓ µs. Rounded to a microsecond, it would
//! admit one request too many or too few every 278 hours.
//!
//! A span is whole microseconds plus a fraction in `parts` of one. `parts` is the denominator of
//! the emission interval in lowest terms (1 for most quotas). What a policy admits stays below 2^53
//! µs, and a fraction below 2^32, so sums fit into `u64`.

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
    #[expect(
        clippy::cast_possible_truncation,
        reason = "quotients and remainders of a u32 divisor, see each"
    )]
    pub(crate) const fn new(limit: u32, window_us: u64) -> Interval {
        let common = gcd(window_us, limit as u64);
        let parts = limit as u64 / common; // ≤ limit
        let numerator = window_us / common;
        let whole = Exact { us: numerator / parts, frac: (numerator % parts) as u32 }; // < parts
        Interval { whole, parts: parts as u32, numerator, reciprocal: u64::MAX / numerator }
    }

    /// Whether T is whole, as for most quotas. Then every operation is a single integer operation.
    #[inline]
    const fn is_whole(self) -> bool {
        self.parts == 1
    }

    /// n × T. Callers keep n within what the policy can admit, so the result stays below 2^54 µs.
    #[inline]
    pub(crate) const fn times(self, n: u32) -> Exact {
        if self.whole.frac == 0 {
            return Exact::from_us(n as u64 * self.whole.us);
        }
        let fractions = n as u64 * self.whole.frac as u64;
        let us = n as u64 * self.whole.us + fractions / self.parts as u64;
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
        Exact { us, frac: (fractions % self.parts as u64) as u32 }
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

    /// The number of whole T in `span`: the units that it pays for, at most `u32::MAX`.
    #[inline]
    pub(crate) fn whole_units_in(self, span: Exact) -> u32 {
        if self.is_whole() {
            return saturated(self.over_numerator(span.us));
        }
        let units = match span.us.checked_mul(u64::from(self.parts)) {
            Some(scaled) if scaled <= u64::MAX - u64::from(span.frac) => {
                self.over_numerator(scaled + u64::from(span.frac))
            }
            // More than 584,000 years in parts: a limit of millions with such a denominator.
            _ => {
                let scaled = u128::from(span.us) * u128::from(self.parts) + u128::from(span.frac);
                u64::try_from(scaled / u128::from(self.numerator)).unwrap_or(u64::MAX)
            }
        };
        saturated(units)
    }
}

/// A count that may exceed a `u32`, at most `u32::MAX`.
pub(crate) fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
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
        let t = Interval::new(3, 1_000_000);
        let once = t.times(1);
        assert_eq!(once, Exact { us: 333_333, frac: 1 });
        let sum = (0..3).fold(Exact::default(), |sum, _| t.add(sum, once));
        assert_eq!(sum, Exact::from_us(1_000_000));
        assert_eq!(t.times(3 * 3_600), Exact::from_us(3_600_000_000));
    }

    #[test]
    fn more_than_a_million_a_second_has_an_interval_below_a_microsecond() {
        let t = Interval::new(4_000_000, 1_000_000);
        assert_eq!(t.times(1), Exact { us: 0, frac: 1 });
        assert_eq!(t.times(4_000_000), Exact::from_us(1_000_000));
        assert_eq!(t.whole_units_in(Exact { us: 1, frac: 3 }), 7);
    }

    #[test]
    fn multiplying_by_the_reciprocal_equals_dividing_at_the_edges() {
        for window_us in [1, 2, 3, 7, 999_983, 1_000_000, 86_400_000_000, (1 << 32) - 1, 1 << 52] {
            let t = Interval::new(1, window_us);
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
            prop_assert_eq!(Interval::new(1, window_us).over_numerator(n), n / window_us);
        }

        /// Every operation agrees with the same operation on integers scaled by the denominator.
        #[test]
        fn agrees_with_scaled_integers(
            limit in 1_u32.., window in 1_000_u64..31_622_400_000_000, n in 0_u32..1_000_000, m in 0_u32..1_000_000,
        ) {
            let t = Interval::new(limit, window);
            let scaled = |x: Exact| u128::from(x.us) * u128::from(t.parts) + u128::from(x.frac);
            prop_assume!(u128::from(n.max(m)) * u128::from(window) < (1 << 53) * u128::from(limit));
            let (a, b) = (t.times(n), t.times(m));
            prop_assert_eq!(scaled(a), u128::from(n) * u128::from(t.numerator));
            prop_assert_eq!(scaled(t.add(a, b)), scaled(a) + scaled(b));
            prop_assert_eq!(scaled(t.saturating_sub(a, b)), scaled(a).saturating_sub(scaled(b)));
            prop_assert_eq!(t.whole_units_in(a), n);
            prop_assert_eq!(a < b, scaled(a) < scaled(b));
        }
    }
}
