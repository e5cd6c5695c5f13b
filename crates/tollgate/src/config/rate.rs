//! A quota of a file: in a span of time, or in a window of the calendar.

use std::fmt;
use std::str::FromStr;

use tollgate_core::{PolicyError, Quota};

use super::values::InText;

/// `100/min`, or `10000/month`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    Span(Quota),
    Calendar(u64, WindowName),
}

/// A window of the calendar. `d` is 24 hours, and `day` a day of a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowName {
    Day,
    Week,
    Month,
}

impl WindowName {
    pub(super) const fn name(self) -> &'static str {
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
            Rate::Calendar(limit, window) => write!(f, "{limit}/{}", window.name()),
        }
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
        let Some(name) = names.into_iter().find(|name| name.name() == window) else {
            return quota(text).map(Rate::Span);
        };
        if burst.is_some() {
            return Err(PolicyError::BurstOnWindow.to_string());
        }
        Ok(Rate::Calendar(quota(&format!("{limit}/d"))?.limit(), name))
    }
}

impl InText for Rate {
    const EXAMPLE: &'static str = "100/min burst 20";
}
