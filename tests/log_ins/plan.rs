//! What all processes know: the limit on failures.

use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota};

/// Short, so that tests see its end.
pub(crate) const BLOCK: Duration = Duration::from_secs(5);

/// Failures of a name.
pub(crate) fn failures() -> Policy {
    let failures = Policy::new("name", Quota::per_hour(5)).with_algorithm(Algorithm::SLIDING_LOG);
    failures.block_after(20, BLOCK)
}
