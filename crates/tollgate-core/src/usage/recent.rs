//! How much a key used recently.

use std::future::Future;
use std::time::Duration;

use crate::key::Key;
use crate::policy::Policy;
use crate::usage::UsageError;

/// A store that can say how much a key used in the last seconds: ask the store itself, without its
/// wrappers.
///
/// Only a [`SlidingLog`](crate::Algorithm::SlidingLog) and
/// [`SlidingBuckets`](crate::Algorithm::SlidingBuckets) store when requests came.
pub trait RecentUsage: Clone + Send + Sync + 'static {
    /// Returns how many units `key` used of a policy in the last `interval`. Denied requests and
    /// refunded units do not count. Charges nothing.
    ///
    /// - A log counts exactly: a unit taken at *x* counts while now − *x* < `interval`.
    /// - A ring sums the sub-windows that overlap the interval. It may count units for up to one
    ///   sub-window too long, and misses none.
    /// - Neither stores more than one window, so a longer interval counts what one window has.
    ///
    /// # Errors
    /// [`UsageError::Algorithm`] for other algorithms, and [`UsageError::Store`] if the store does
    /// not answer.
    fn recent_usage(
        &self,
        policy: &Policy,
        key: &Key,
        interval: Duration,
    ) -> impl Future<Output = Result<u64, UsageError>> + Send;
}
