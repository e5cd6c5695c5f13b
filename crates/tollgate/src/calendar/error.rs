//! What is wrong with a window of a calendar.

use std::error::Error;
use std::fmt;

use tollgate_core::{PolicyError, QuotaError};

/// Reasons why a [`CalendarWindow`](crate::CalendarWindow), or a policy with one, cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// The IANA database has no such time zone.
    UnknownZone(String),
    /// A week or a month has no such day, or the window is a day.
    Anchor {
        /// The day.
        day: u8,
        /// The last day that is allowed. 0 if the window is a day.
        most: u8,
    },
    /// The limit is invalid.
    Quota(QuotaError),
    /// The name is invalid.
    Policy(PolicyError),
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalendarError::UnknownZone(zone) => {
                write!(f, "{zone:?} is not a time zone of the IANA database, such as UTC or Europe/Berlin")
            }
            CalendarError::Anchor { most: 0, .. } => f.write_str("only a week or a month has a first day"),
            CalendarError::Anchor { day, most: 7 } => {
                write!(f, "day {day} is not one of a week: 1 (Monday) to 7 (Sunday)")
            }
            CalendarError::Anchor { day, most } => write!(f, "day {day} is not one of a month: 1 to {most}"),
            CalendarError::Quota(error) => error.fmt(f),
            CalendarError::Policy(error) => error.fmt(f),
        }
    }
}

impl Error for CalendarError {}

impl From<QuotaError> for CalendarError {
    fn from(error: QuotaError) -> CalendarError {
        CalendarError::Quota(error)
    }
}

impl From<PolicyError> for CalendarError {
    fn from(error: PolicyError) -> CalendarError {
        CalendarError::Policy(error)
    }
}
