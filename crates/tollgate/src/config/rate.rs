//! A quota of a file: in a span of time, or in a window of the calendar.

use std::fmt;
use std::str::FromStr;

use tollgate_core::{PolicyError, Quota};

use super::values::{InText, Units, UnitsOr};

/// `100/min`, or `10000/month`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    Span(Quota),
    Calendar(CalendarQuota),
}

/// A quota for each window of the calendar, such as `10000/month`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarQuota {
    /// The units of a window.
    pub limit: u64,
    /// The window.
    pub window: WindowName,
}

/// A window of the calendar. `d` is 24 hours, and `day` a day of a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowName {
    /// From midnight to midnight.
    Day,
    /// Seven days.
    Week,
    /// A month.
    Month,
}

impl WindowName {
    /// What a tier of such a quota needs.
    pub(super) fn tier(self) -> String {
        format!("a quota such as \"100/{}\"", self.name())
    }

    /// Returns its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            WindowName::Day => "day",
            WindowName::Week => "week",
            WindowName::Month => "month",
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Span(quota) => quota.fmt(f),
            Rate::Calendar(quota) => quota.fmt(f),
        }
    }
}

impl fmt::Display for CalendarQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, self.window.name())
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let quota = |text: &str| text.parse::<Quota>().map_err(|error| error.to_string());
        let (limit, window) = text.split_once('/').unwrap_or((text, ""));
        let (window, burst) =
            window.split_once(' ').map_or((window, None), |(window, rest)| (window, Some(rest)));
        let names = [WindowName::Day, WindowName::Week, WindowName::Month];
        let Some(window) = names.into_iter().find(|name| name.name() == window) else {
            return quota(text).map(Rate::Span);
        };
        if burst.is_some() {
            return Err(PolicyError::BurstOnWindow.to_string());
        }
        Ok(Rate::Calendar(CalendarQuota { limit: quota(&format!("{limit}/d"))?.limit(), window }))
    }
}

impl InText for Rate {
    const EXAMPLE: &'static str = "100/min burst 20";
}

impl From<Quota> for UnitsOr<Rate> {
    fn from(quota: Quota) -> UnitsOr<Rate> {
        UnitsOr::Value(Rate::Span(quota))
    }
}

impl From<CalendarQuota> for UnitsOr<Rate> {
    fn from(quota: CalendarQuota) -> UnitsOr<Rate> {
        UnitsOr::Value(Rate::Calendar(quota))
    }
}

impl From<u64> for UnitsOr<Rate> {
    fn from(limit: u64) -> UnitsOr<Rate> {
        UnitsOr::Units(Units(limit))
    }
}
