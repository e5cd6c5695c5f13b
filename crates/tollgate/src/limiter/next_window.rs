//! Edits of a calendar, which take effect when the running windows end.

use tollgate_core::{Algorithm, Policy, Timestamp};

/// When the running windows end, if a rule gets other boundaries of its calendar at `now`.
pub(super) fn running_end(earlier: &Policy, next: &Policy, now: Timestamp) -> Option<Timestamp> {
    let (Algorithm::CalendarWindow { boundaries: earlier }, Algorithm::CalendarWindow { boundaries: next }) =
        (earlier.algorithm(), next.algorithm())
    else {
        return None;
    };
    let [.., end, _] = earlier.around(now);
    (earlier != next).then_some(Timestamp::from_micros(end))
}

/// A time in UTC, such as `2026-12-01 00:00:00`.
pub(super) fn in_utc(time: Timestamp) -> String {
    let seconds = time.as_micros() / 1_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's `civil_from_days`: years begin in March, and eras of 400 years in 0000.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_its_date_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_767_225_600, "2026-01-01 00:00:00"),
            (1_772_323_199, "2026-02-28 23:59:59"),
            (1_772_323_200, "2026-03-01 00:00:00"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(in_utc(Timestamp::from_micros(seconds * 1_000_000)), text);
        }
    }

    #[test]
    fn each_date_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for n in 0..50_000 {
            let time = Timestamp::from_micros(n * 86_400 * 1_000_000);
            assert_eq!(in_utc(time), format!("{year}-{month:02}-{day:02} 00:00:00"));
            let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let days = match month {
                2 => 28 + u64::from(is_leap_year),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == days => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert!(year > 2100);
    }
}
