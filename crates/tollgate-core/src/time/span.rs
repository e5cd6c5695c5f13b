//! A span of time as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::text_error::TextError;

/// A span of time as people write it: a whole number with `ms`, `s`, `min` or `m`, `h` or `d`. A
/// unit alone is one of it. `us` is for windows in microseconds.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::TimeSpan;
///
/// let span: TimeSpan = "90s".parse()?;
/// assert_eq!((span.0, span.in_words()), (Duration::from_secs(90), "90 seconds".to_owned()));
/// assert_eq!("120s".parse::<TimeSpan>()?.to_string(), "2min");
/// assert!("1.5s".parse::<TimeSpan>().is_err());
/// # Ok::<(), tollgate_core::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

/// The units as they are written, in words, and in microseconds.
const UNITS: [(&str, &str, u64); 6] = [
    ("d", "day", 86_400_000_000),
    ("h", "hour", 3_600_000_000),
    ("min", "minute", 60_000_000),
    ("s", "second", 1_000_000),
    ("ms", "millisecond", 1_000),
    ("us", "microsecond", 1),
];

impl TimeSpan {
    /// The number, and the largest unit that divides it.
    fn parts(self) -> (u128, &'static str, &'static str) {
        let micros = self.0.as_micros();
        let divides = |(_, _, unit): &(&str, &str, u64)| micros.is_multiple_of(u128::from(*unit));
        let (sign, word, unit) =
            UNITS.into_iter().find(|unit| micros > 0 && divides(unit)).unwrap_or(UNITS[3]);
        (micros / u128::from(unit), sign, word)
    }

    /// The span in words, such as `10 seconds` or `1 day`.
    pub fn in_words(self) -> String {
        match self.parts() {
            (1, _, word) => format!("1 {word}"),
            (number, _, word) => format!("{number} {word}s"),
        }
    }
}

/// In the largest unit that divides it, such as `10s` or `1d`, rounded down to a microsecond.
impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, sign, _) = self.parts();
        write!(f, "{number}{sign}")
    }
}

impl FromStr for TimeSpan {
    type Err = TextError;

    fn from_str(text: &str) -> Result<TimeSpan, TextError> {
        let read = || {
            let (number, unit) = text.split_at(text.find(|sign: char| !sign.is_ascii_digit())?);
            let number: u64 = if number.is_empty() { 1 } else { number.parse().ok()? };
            let unit = if unit == "m" { "min" } else { unit };
            let (_, _, micros) = UNITS.into_iter().find(|(sign, _, _)| *sign == unit)?;
            number.checked_mul(micros).map(Duration::from_micros)
        };
        let is_not = "a time such as 10s, 500ms, 5min, h or d";
        read().map(TimeSpan).ok_or_else(|| TextError::new(text, is_not))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_with_a_unit_or_a_unit_alone() {
        for (text, micros, written, words) in [
            ("us", 1, "1us", "1 microsecond"),
            ("ms", 1_000, "1ms", "1 millisecond"),
            ("1500ms", 1_500_000, "1500ms", "1500 milliseconds"),
            ("s", 1_000_000, "1s", "1 second"),
            ("60s", 60_000_000, "1min", "1 minute"),
            ("90s", 90_000_000, "90s", "90 seconds"),
            ("m", 60_000_000, "1min", "1 minute"),
            ("min", 60_000_000, "1min", "1 minute"),
            ("48h", 172_800_000_000, "2d", "2 days"),
            ("007d", 604_800_000_000, "7d", "7 days"),
            ("0d", 0, "0s", "0 seconds"),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span, TimeSpan(Duration::from_micros(micros)), "{text}");
            assert_eq!((span.to_string().as_str(), span.in_words().as_str()), (written, words), "{text}");
            assert_eq!(written.parse(), Ok(span), "{text}");
        }
        for text in [
            "",
            "10",
            "1.5s",
            "-1s",
            "+1s",
            " 1s",
            "1s ",
            "1 s",
            "S",
            "10sec",
            "s10",
            "1m30s",
            "µs",
            "١s",
            "18446744073709551615s",
        ] {
            assert_eq!(text.parse::<TimeSpan>().unwrap_err().text(), text);
        }
    }
}
