//! The last use and the total of every key, for policies that track usage.

use std::future::Future;

use crate::key::Key;
use crate::time::Timestamp;
use crate::usage::UsageError;

/// The usage of one key under a policy that [tracks usage](crate::Policy::track_usage).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTotal {
    /// The key as the store names it: readable, or a digest.
    pub key: String,
    /// The units granted and not refunded, since the store first saw the key. Exact up to 2^53,
    /// where it stops.
    pub total: u64,
    /// The time of the last grant, by the store's clock.
    pub last_use: Timestamp,
}

/// Keeps the last use and the total of every key, for policies with
/// [`Policy::track_usage`](crate::Policy::track_usage).
///
/// # What is recorded
/// - **A grant** of more than 0 units sets the last use and adds its units to the total, in the
///   step that decides. What is refused, and what only looks, records nothing.
/// - **A refund** lowers the total by its units, also if the limit has nothing left to give back
///   because its window is over. It does not change the last use.
/// - **A [reset](crate::Store::reset)** changes neither. It lifts a limit; these are a record.
///
/// A key that was not used for some time is forgotten. Each grant starts that time again.
pub trait UsageTotals: Clone + Send + Sync + 'static {
    /// Returns the usage of a key under the policy with this name. `None` if it was not used, or is
    /// forgotten.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer.
    fn total_of(
        &self,
        policy: &str,
        key: &Key,
    ) -> impl Future<Output = Result<Option<KeyTotal>, UsageError>> + Send;

    /// Passes the usage of all keys under the policy with this name to `each`, in any order, a part
    /// at a time.
    ///
    /// A key that is there from the beginning to the end is passed at least once. It may be passed
    /// more than once, with the newest values last.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer. Some keys may have been passed.
    fn scan_totals(
        &self,
        policy: &str,
        each: impl FnMut(KeyTotal) + Send,
    ) -> impl Future<Output = Result<(), UsageError>> + Send;
}
