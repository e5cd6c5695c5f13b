//! The text of a policy's scope, `name~algorithm~window`: how it is written and read. An algorithm
//! whose states hold their ends has no window there.

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
    /// `None` if the states hold their ends.
    pub(crate) window_us: Option<u64>,
}

impl<'a> Scope<'a> {
    /// Reads a scope. `None` for a text of another form.
    pub(crate) fn parse(text: &'a str) -> Option<Scope<'a>> {
        let (rest, last) = text.rsplit_once('~')?;
        // No algorithm begins with a digit.
        let (name, algorithm, window_us) = if last.starts_with(|sign: char| sign.is_ascii_digit()) {
            let (name, algorithm) = rest.rsplit_once('~')?;
            (name, algorithm, Some(window_of(last)?))
        } else {
            (rest, last, None)
        };
        let (algorithm, buckets) = match algorithm.split_once('.') {
            Some((algorithm, buckets)) => (algorithm, Some(buckets.parse().ok()?)),
            None => (algorithm, None),
        };
        let scope = Scope { name, algorithm, buckets, window_us };
        // Not `60s`, which is written `1m`.
        (scope.to_string() == text).then_some(scope)
    }
}

/// A window in microseconds.
fn window_of(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|sign: char| !sign.is_ascii_digit())?);
    let (micros, _) = UNITS.into_iter().find(|(_, suffix)| *suffix == unit)?;
    number.parse::<u64>().ok()?.checked_mul(micros)
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.name, self.algorithm)?;
        if let Some(buckets) = self.buckets {
            write!(f, ".{buckets}")?;
        }
        let Some(window_us) = self.window_us else { return Ok(()) };
        let divides = |(unit, _): &(u64, &str)| window_us.is_multiple_of(*unit);
        let (unit, suffix) = UNITS.into_iter().find(divides).unwrap_or((1, "us"));
        write!(f, "~{}{suffix}", window_us / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_as_it_was_written() {
        for (text, name, algorithm, buckets, window_us) in [
            ("api~gcra~1m", "api", "gcra", None, Some(60_000_000)),
            ("a~b=c.d~leaky-bucket~1500001us", "a~b=c.d", "leaky-bucket", None, Some(1_500_001)),
            ("api~sliding-buckets.7~366d", "api", "sliding-buckets", Some(7), Some(366 * 86_400_000_000)),
            ("~~90s", "", "", None, Some(90_000_000)),
            ("a~gcra~block", "a~gcra", "block", None, None),
            ("a~1m~in-flight", "a~1m", "in-flight", None, None),
        ] {
            let scope = Scope { name, algorithm, buckets, window_us };
            assert_eq!(Scope::parse(text), Some(scope), "{text}");
        }
        for text in [
            "",
            "api",
            "api~gcra~60s",
            "api~gcra~01m",
            "api~gcra~1w",
            "api~sliding-buckets.+7~1m",
            "api~sliding-buckets.~1m",
            "api~gcra~18446744073709551615d",
        ] {
            assert_eq!(Scope::parse(text), None, "{text}");
        }
    }
}
