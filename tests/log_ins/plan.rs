//! What all processes know: the limit on failures, and the turns of a name.

use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota};

/// Short, so that tests see its end.
pub(crate) const BLOCK: Duration = Duration::from_secs(5);

/// Failures of a name.
pub(crate) fn failures() -> Policy {
    let failures = Policy::new("name", Quota::per_hour(5)).with_algorithm(Algorithm::SLIDING_LOG);
    failures.block_after(20, BLOCK)
}

/// The only slot of a name.
pub(crate) fn turns(ttl: Duration) -> Policy {
    Policy::in_flight("turn", 1).with_ttl(ttl)
}
