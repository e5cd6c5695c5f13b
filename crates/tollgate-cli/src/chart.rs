//! Numbers, times and bars in text.

use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use indicatif::HumanCount;

/// The length of the longest bar, in characters.
const LONGEST: u128 = 50;

/// Returns the number with commas between thousands.
pub(crate) fn human(count: u64) -> String {
    HumanCount(count).to_string()
}

/// Returns date, hour and minute of a minute since 1970.
pub(crate) fn utc(minute: u64) -> String {
    let text = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(minute * 60)).to_string();
    text.replace('T', " ").chars().take("2026-11-23 20:17".len()).collect()
}

/// Returns a bar of full blocks, then light ones. A bar of `most` is the longest.
pub(crate) fn bar(full: u64, light: u64, most: u64) -> String {
    let length = |count: u64| {
        let blocks = u128::from(count.min(most)) * LONGEST / u128::from(most.max(1));
        usize::try_from(blocks).unwrap_or(0)
    };
    let end = length(full.saturating_add(light));
    "█".repeat(length(full)) + &"░".repeat(end - length(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_bar_are_in_proportion() {
        assert_eq!(bar(10, 5, 25), format!("{}{}", "█".repeat(20), "░".repeat(10)));
        assert_eq!(bar(0, 7, 7), "░".repeat(50));
        assert_eq!(bar(u64::MAX, u64::MAX, u64::MAX), "█".repeat(50));
        assert_eq!((bar(1, 1, 1_000), bar(0, 0, 0)), (String::new(), String::new()));
    }
}
