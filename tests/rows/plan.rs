//! The table of rows, and what all processes know of it.

use std::fmt;
use std::time::Duration;

use tollgate::jobs::JobPolicy;
use tollgate::{Algorithm, Key, Limit, Policy, Quota};

pub(crate) const CUSTOMERS: u64 = 2_000;

/// The time to live of a slot.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// Longer than a test takes. Only a release ends a job.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// What the row of a customer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) units: Limit,
    /// How many jobs may be held at a time.
    pub(crate) jobs: u64,
}

/// A line of the table.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = match self.units {
            Limit::Of(quota) => format!("{}/d", quota.limit()),
            Limit::Unlimited => "unlimited".to_owned(),
            Limit::Nothing => "none".to_owned(),
            Limit::Own => "own".to_owned(),
        };
        writeln!(f, "{units} {}", self.jobs)
    }
}

/// A window that does not end during a test, so that units neither come back nor are forgotten.
pub(crate) fn units() -> Policy {
    Policy::new("units", Quota::per_day(100)).with_algorithm(Algorithm::FIXED_WINDOW)
}

pub(crate) fn streams() -> Policy {
    Policy::in_flight("streams", 1_000).with_ttl(TTL)
}

pub(crate) fn jobs() -> JobPolicy {
    JobPolicy::new("jobs", 1, HOUR)
}

pub(crate) fn key(customer: u64) -> Key {
    Key::from(customer)
}
