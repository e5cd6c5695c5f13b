//! The policy of a quota per day, week or month.

use tollgate_core::Policy;

use super::build::refuse;
use super::error::Mistake;
use super::fields::RuleFields;
use super::rate::WindowName;
#[cfg(feature = "calendar")]
use crate::calendar::{CalendarError, CalendarWindow};

impl RuleFields {
    pub(super) fn in_calendar(&self, limit: u64, window: WindowName) -> Result<Policy, Mistake> {
        self.refuse_options_of_slots()?;
        let is_of_spans = "a quota per day, week or month has an algorithm of its own: remove it";
        refuse(self.algorithm.is_some(), "algorithm", is_of_spans)?;
        refuse(self.buckets.is_some(), "buckets", is_of_spans)?;
        refuse(self.max_limit.is_some(), "max-limit", is_of_spans)?;
        refuse(self.max_wait.is_some(), "max-wait", is_of_spans)?;
        let needs_zone = "a quota per day, week or month needs zone, such as zone = \"Europe/Berlin\"";
        let zone = self.zone.as_ref().ok_or_else(|| Mistake::new("quota", needs_zone))?;
        self.calendar_policy(zone, limit, window)
    }

    #[cfg(feature = "calendar")]
    fn calendar_policy(&self, zone: &str, limit: u64, window: WindowName) -> Result<Policy, Mistake> {
        let calendar = match window {
            WindowName::Day => CalendarWindow::try_day(zone),
            WindowName::Week => CalendarWindow::try_week(zone),
            WindowName::Month => CalendarWindow::try_month(zone),
        };
        let calendar = calendar.map_err(|error| Mistake::new("zone", error))?;
        let calendar = match self.anchor {
            Some(day) => calendar.try_anchor(day).map_err(|error| Mistake::new("anchor", error))?,
            None => calendar,
        };
        calendar.try_policy(&self.name, limit).map_err(|error| match error {
            CalendarError::Policy(_) => Mistake::new("name", error),
            error => Mistake::new("quota", error),
        })
    }

    #[cfg(not(feature = "calendar"))]
    fn calendar_policy(&self, _: &str, _: u64, _: WindowName) -> Result<Policy, Mistake> {
        let reason = "a quota per day, week or month needs the feature `calendar` of the crate tollgate";
        Err(Mistake::new("quota", reason))
    }
}
