//! What all processes of a fleet know.

use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota};

/// How many requests may run at once.
pub(crate) const LIMIT: u64 = 20;

pub(crate) fn slots(ttl: Duration) -> Policy {
    Policy::in_flight("slots", LIMIT).with_ttl(ttl)
}

/// Slots that are never used up: they show whether slots are renewed in time, whatever the time to
/// live of the others is.
pub(crate) fn renewed() -> Policy {
    Policy::in_flight("renewed", 100_000).with_ttl(Duration::from_secs(2))
}

/// Never used up: it counts the requests that were granted.
pub(crate) fn rate() -> Policy {
    Policy::new("rate", Quota::per_day(100_000_000)).with_algorithm(Algorithm::FIXED_WINDOW)
}
