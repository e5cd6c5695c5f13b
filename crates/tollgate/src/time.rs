//! The clock of tokio's timer. Deadlines of sleeping requests follow it, and it pauses in tests.

use tokio::time::Instant;

/// Returns the time now. No decision depends on it: stores have clocks of their own.
pub(crate) fn timer_now() -> Instant {
    Instant::now()
}
