//! Spans of time on the command line: `10s`, `500ms`, or a unit alone.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a whole number with a unit. `s` is one second.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = if number.is_empty() { 1 } else { number.parse().ok()? };
    let (_, millis) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(millis).map(Duration::from_millis)
}

/// Parses a span that is not zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = parse(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a time such as 10s, 500ms or 5m".to_owned())
}

/// Returns microseconds, at most `u64::MAX`.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_with_a_unit_or_a_unit_alone() {
        for (text, millis) in
            [("ms", 1), ("s", 1_000), ("10s", 10_000), ("2h", 7_200_000), ("007d", 604_800_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "1.5s", "-1s", " 1s", "1 s", "S", "s10", "1m30s", "18446744073709551615s"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
