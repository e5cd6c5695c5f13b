//! Spans of time in rules.

use std::time::Duration;

const UNITS: [(&str, &str, u64); 5] = [
    ("d", "day", 86_400_000),
    ("h", "hour", 3_600_000),
    ("m", "minute", 60_000),
    ("s", "second", 1_000),
    ("ms", "millisecond", 1),
];

/// Parses `10s`, `500ms`, or a unit alone: `s` is one second.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = if number.is_empty() { 1 } else { number.parse().ok()? };
    let (_, _, millis) = UNITS.into_iter().find(|(name, _, _)| *name == unit)?;
    number.checked_mul(millis).map(Duration::from_millis)
}

/// Returns the span in words, in the largest unit that divides it: `10 seconds`, `1 day`.
pub(crate) fn in_words(span: Duration) -> String {
    let millis = span.as_millis();
    let unit = UNITS.into_iter().find(|(_, _, unit)| millis.is_multiple_of(u128::from(*unit)) && millis > 0);
    let Some((_, name, unit)) = unit else { return "no time".to_owned() };
    match millis / u128::from(unit) {
        1 => format!("1 {name}"),
        n => format!("{n} {name}s"),
    }
}

/// Returns whole seconds, rounded up, so that a client that waits this long waits long enough.
pub(crate) fn seconds_up(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_alone_and_with_a_number() {
        for (text, millis) in [
            ("ms", 1),
            ("s", 1_000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("10s", 10_000),
            ("500ms", 500),
            ("007d", 7 * 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn malformed_spans_are_refused() {
        for text in
            ["", "10", "1.5s", "-1s", "+1s", " 1s", "1s ", "1 s", "S", "10sec", "s10", "1m30s", "µs", "١s"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn spans_that_overflow_are_refused() {
        assert_eq!(parse("18446744073709551615ms"), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(parse("18446744073709551615s"), None);
        assert_eq!(parse("99999999999999999999ms"), None);
    }

    #[test]
    fn words() {
        let words = |text| in_words(parse(text).unwrap());
        assert_eq!(words("10s"), "10 seconds");
        assert_eq!(words("60s"), "1 minute");
        assert_eq!(words("90s"), "90 seconds");
        assert_eq!(words("1500ms"), "1500 milliseconds");
        assert_eq!(words("48h"), "2 days");
        assert_eq!(words("0s"), "no time");
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(seconds_up(Duration::ZERO), 0);
        assert_eq!(seconds_up(Duration::from_nanos(1)), 1);
        assert_eq!(seconds_up(Duration::from_secs(2)), 2);
    }
}
