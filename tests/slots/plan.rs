//! What all processes of a fleet know.

use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota};

/// How many requests may run at once.
pub(crate) const LIMIT: u64 = 20;

/// Short, so that each fault lasts for several.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

pub(crate) fn slots() -> Policy {
    Policy::in_flight("slots", LIMIT).with_lease(LEASE)
}

/// Never used up: it counts the requests that were granted.
pub(crate) fn rate() -> Policy {
    Policy::new("rate", Quota::per_day(100_000_000)).with_algorithm(Algorithm::FIXED_WINDOW)
}
