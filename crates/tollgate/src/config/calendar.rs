//! The policy of a quota per day, week or month.

use tollgate_core::Policy;

use super::error::Mistake;
use super::rate::CalendarQuota;
#[cfg(feature = "calendar")]
use super::rate::WindowName;
#[cfg(feature = "calendar")]
use crate::calendar::CalendarWindow;

impl CalendarQuota {
    #[cfg(feature = "calendar")]
    pub(super) fn policy(self, name: &str, zone: &str, anchor: Option<u8>) -> Result<Policy, Mistake> {
        let calendar = match self.window {
            WindowName::Day => CalendarWindow::try_day(zone),
            WindowName::Week => CalendarWindow::try_week(zone),
            WindowName::Month => CalendarWindow::try_month(zone),
        };
        let calendar = calendar.map_err(|error| Mistake::new("zone", error))?;
        let calendar = match anchor {
            Some(day) => calendar.try_anchor(day).map_err(|error| Mistake::new("anchor", error))?,
            None => calendar,
        };
        let quota = calendar.try_quota(self.limit).map_err(|error| Mistake::new("quota", error))?;
        let policy = Policy::try_from_parts(name, quota, calendar.algorithm());
        policy.map_err(|error| Mistake::of_policy("quota", error))
    }

    #[cfg(not(feature = "calendar"))]
    pub(super) fn policy(self, _: &str, _: &str, _: Option<u8>) -> Result<Policy, Mistake> {
        let reason = "a quota per day, week or month needs the feature `calendar` of the crate tollgate";
        Err(Mistake::new("quota", reason))
    }
}
