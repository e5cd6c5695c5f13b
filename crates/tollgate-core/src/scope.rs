//! The text of a policy's scope, `name~algorithm~window`: how it is written and read.

use std::fmt;

/// The units of a window, in microseconds. A text has the largest that divides the window.
const UNITS: [(u64, &str); 6] = [
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "m"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "us"),
];

/// The parts of a scope, such as `api~gcra~1m` or `api~sliding-buckets.10~1500ms`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scope<'a> {
    /// May contain the sign between the parts.
    pub(crate) name: &'a str,
    pub(crate) algorithm: &'a str,
    pub(crate) buckets: Option<u32>,
    pub(crate) window_us: u64,
}

impl<'a> Scope<'a> {
    /// Reads a scope. `None` for a text of another form.
    pub(crate) fn parse(text: &'a str) -> Option<Scope<'a>> {
        let mut parts = text.rsplitn(3, '~');
        let (window, algorithm, name) = (parts.next()?, parts.next()?, parts.next()?);
        let (algorithm, buckets) = match algorithm.split_once('.') {
            Some((algorithm, buckets)) => (algorithm, Some(buckets.parse().ok()?)),
            None => (algorithm, None),
        };
        let (number, unit) = window.split_at(window.find(|sign: char| !sign.is_ascii_digit())?);
        let (micros, _) = UNITS.into_iter().find(|(_, suffix)| *suffix == unit)?;
        let scope =
            Scope { name, algorithm, buckets, window_us: number.parse::<u64>().ok()?.checked_mul(micros)? };
        // Not `60s`, which is written `1m`.
        (scope.to_string() == text).then_some(scope)
    }
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.name, self.algorithm)?;
        if let Some(buckets) = self.buckets {
            write!(f, ".{buckets}")?;
        }
        let divides = |(unit, _): &(u64, &str)| self.window_us.is_multiple_of(*unit);
        let (unit, suffix) = UNITS.into_iter().find(divides).unwrap_or((1, "us"));
        write!(f, "~{}{suffix}", self.window_us / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_as_it_was_written() {
        for (text, name, algorithm, buckets, window_us) in [
            ("api~gcra~1m", "api", "gcra", None, 60_000_000),
            ("a~b=c.d~leaky-bucket~1500001us", "a~b=c.d", "leaky-bucket", None, 1_500_001),
            ("api~sliding-buckets.7~366d", "api", "sliding-buckets", Some(7), 366 * 86_400_000_000),
            ("~~90s", "", "", None, 90_000_000),
        ] {
            let scope = Scope { name, algorithm, buckets, window_us };
            assert_eq!(Scope::parse(text), Some(scope), "{text}");
        }
        for text in [
            "",
            "api",
            "api~gcra",
            "api~gcra~60s",
            "api~gcra~01m",
            "api~gcra~1w",
            "api~gcra~m",
            "api~gcra~1m~sums",
            "api~sliding-buckets.+7~1m",
            "api~sliding-buckets.~1m",
            "api~gcra~18446744073709551615d",
        ] {
            assert_eq!(Scope::parse(text), None, "{text}");
        }
    }
}
