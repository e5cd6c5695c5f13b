//! Clocks, times and spans of time.
//!
//! Stores decide by a [`Clock`]. Deadlines of sleeping requests follow tokio's timer, which pauses
//! in tests.

pub(crate) mod ending;
pub(crate) mod random_part;
pub(crate) mod under_way;

use std::time::Duration;

use tokio::time::Instant;
pub use tollgate_core::{Clock, ManualClock, TimeSpan, Timestamp};

/// The longest wait. An instant further away may overflow, and tokio's timer ends there.
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Returns the end of a time that begins now.
pub(crate) fn timer_after(time: Duration) -> Instant {
    timer_now() + time.min(YEAR)
}

/// Returns the time now. No decision depends on it: stores have clocks of their own.
pub(crate) fn timer_now() -> Instant {
    Instant::now()
}
