//! Reasons why the usage of an interval is unknown.

pub(crate) mod log;
pub(crate) mod recent;
pub(crate) mod totals;

use std::fmt;

use crate::policy::Algorithm;
use crate::store::error::{ErrorKind, StoreError};

/// Why usage is unknown: the error of [`RecentUsage`](crate::RecentUsage),
/// [`UsageTotals`](crate::UsageTotals) and [`UsageLog`](crate::UsageLog).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageError {
    /// The algorithm stores no times of requests. [`Algorithm::SlidingBuckets`] and
    /// [`Algorithm::SlidingLog`] do.
    Algorithm(Algorithm),
    /// The store did not answer.
    Store {
        /// The kind of the store's error.
        kind: ErrorKind,
        /// The store's message. It contains no key.
        message: String,
    },
}

impl UsageError {
    /// The error of a store that did not answer.
    pub fn of_store(error: &impl StoreError) -> UsageError {
        UsageError::Store { kind: error.kind(), message: error.to_string() }
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::Algorithm(algorithm) => {
                let name = algorithm.name();
                write!(f, "{name} stores no times of requests: use sliding-buckets or sliding-log")
            }
            UsageError::Store { message, .. } => write!(f, "the store did not answer: {message}"),
        }
    }
}

impl std::error::Error for UsageError {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::State;
    use crate::policy::Policy;
    use crate::quota::Quota;
    use crate::time::Timestamp;

    #[test]
    fn algorithms_without_times_name_those_that_have_them() {
        let algorithms = [
            Algorithm::Gcra,
            Algorithm::LeakyBucket { max_wait: Duration::ZERO },
            Algorithm::FIXED_WINDOW,
            Algorithm::FIXED_WINDOW_ALIGNED,
            Algorithm::SlidingWindow,
            Algorithm::InFlight,
        ];
        for algorithm in algorithms {
            let policy = Policy::new("p", Quota::per_minute(5)).with_algorithm(algorithm);
            let usage = State::new(&policy).usage(&policy, Timestamp::EPOCH, Duration::from_secs(1));
            assert_eq!(usage, Err(UsageError::Algorithm(algorithm)));
            let message = usage.unwrap_err().to_string();
            assert!(message.starts_with(algorithm.name()), "{message}");
            assert!(message.ends_with("use sliding-buckets or sliding-log"), "{message}");
        }
    }
}
