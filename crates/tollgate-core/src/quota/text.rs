//! A quota as text, such as `100/min` or `5/10s burst 20`.

use std::fmt;
use std::str::FromStr;

use super::Quota;
use crate::text_error::TextError;
use crate::time::span::TimeSpan;

/// `LIMIT/WINDOW`, and `burst N` behind it if there is one. A window of one unit is that unit:
/// `100/min`. The text is read again as the same quota.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = TimeSpan(self.window()).to_string();
        let unit = window.trim_start_matches(|sign: char| sign.is_ascii_digit());
        let is_one = window.strip_prefix('1') == Some(unit);
        write!(f, "{}/{}", self.limit, if is_one { unit } else { &window })?;
        self.given_burst().map_or(Ok(()), |burst| write!(f, " burst {burst}"))
    }
}

/// `LIMIT/WINDOW`, such as `100/min` or `5/10s burst 20`. The window is a [`TimeSpan`].
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Quota;
///
/// assert_eq!("100/min".parse(), Ok(Quota::per_minute(100)));
/// let quota: Quota = "5/10s burst 20".parse()?;
/// assert_eq!(quota, Quota::new(5, Duration::from_secs(10)).burst(20));
/// assert_eq!(quota.to_string(), "5/10s burst 20");
///
/// let error = "0/min".parse::<Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "\"0\" is not a whole number from 1 to 1099511627776");
/// # Ok::<(), tollgate_core::TextError>(())
/// ```
impl FromStr for Quota {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Quota, TextError> {
        let (rate, burst) = text.split_once(" burst ").map_or((text, None), |(rate, n)| (rate, Some(n)));
        let (limit, window) = rate.split_once('/').ok_or_else(|| {
            TextError::new(text, "a quota: expected LIMIT/WINDOW, such as 100/min or 5/10s burst 20")
        })?;
        let (limit, TimeSpan(window)) = (units(limit)?, window.parse()?);
        let quota = Quota::try_new(limit, window);
        let quota = match burst.map(units).transpose()? {
            Some(burst) => quota.and_then(|quota| quota.try_burst(burst)),
            None => quota,
        };
        quota.map_err(|error| TextError::new(text, format!("a quota: {error}")))
    }
}

fn units(text: &str) -> Result<u64, TextError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let units = text.parse().ok().filter(|units| digits && (1..=Quota::MAX_UNITS).contains(units));
    units.ok_or_else(|| TextError::new(text, format!("a whole number from 1 to {}", Quota::MAX_UNITS)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quota_is_written_in_its_shortest_form() {
        for (text, written) in [
            ("100/min", "100/min"),
            ("100/m", "100/min"),
            ("100/1min", "100/min"),
            ("100/60s", "100/min"),
            ("5/10s burst 20", "5/10s burst 20"),
            ("1/11min", "1/11min"),
            ("7/24h", "7/d"),
            ("3/1500001us", "3/1500001us"),
        ] {
            assert_eq!(text.parse::<Quota>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn each_mistake_is_named_with_the_value_and_what_is_allowed() {
        for (text, why) in [
            ("", "\"\" is not a quota: expected LIMIT/WINDOW, such as 100/min or 5/10s burst 20"),
            ("100", "\"100\" is not a quota: expected LIMIT/WINDOW"),
            ("/s", "\"\" is not a whole number from 1 to 1099511627776"),
            ("+1/s", "\"+1\" is not a whole number"),
            ("1.5/s", "\"1.5\" is not a whole number"),
            (" 1/s", "\" 1\" is not a whole number"),
            ("1099511627777/s", "\"1099511627777\" is not a whole number"),
            ("5/", "\"\" is not a time such as 10s, 500ms, 5min, h or d"),
            ("5/10", "\"10\" is not a time"),
            ("5/s/s", "\"s/s\" is not a time"),
            ("5/s burst", "\"s burst\" is not a time"),
            ("5/s burst ", "\"\" is not a whole number"),
            ("5/s burst 0", "\"0\" is not a whole number"),
            ("5/s burst 1 burst 2", "\"1 burst 2\" is not a whole number"),
            ("5/0s", "\"5/0s\" is not a quota: a quota's window must be between 1 ms and 366 days"),
            ("5/367d", "a quota's window must be between 1 ms and 366 days"),
            ("1/366d burst 4294967295", "burst x window / limit must not exceed 2^52 microseconds"),
        ] {
            let error = text.parse::<Quota>().unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_quota_is_read_as_it_was_written(
            limit in 1..=Quota::MAX_UNITS,
            micros in 1_000..=31_622_400_000_000_u64,
            unit in prop::sample::select(vec![1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
            burst in 1..=Quota::MAX_UNITS,
        ) {
            let micros = (micros / unit * unit).max(1_000);
            let quota = Quota::new(limit, Duration::from_micros(micros));
            prop_assert_eq!(quota.to_string().parse(), Ok(quota));
            if let Ok(quota) = quota.try_burst(burst) {
                prop_assert_eq!(quota.to_string().parse(), Ok(quota));
            }
        }
    }
}
