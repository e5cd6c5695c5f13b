//! The errors of a guarded store.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tollgate_core::{ErrorKind, StoreError};

/// Reasons why a [`Guarded`](super::Guarded) store did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardError<E> {
    /// No answer came within this limit. The store may still have done, or may still do, what it
    /// was asked.
    Elapsed(Duration),
    /// The circuit is open, so the store was not asked. Nothing was charged.
    Open {
        /// The time until the next probe, at the latest.
        retry_in: Duration,
    },
    /// The store failed. Or it [ended the wait](tollgate_core::Store::with_deadline) by itself,
    /// with an error of the same kind as [`GuardError::Elapsed`].
    Store(E),
}

impl<E: StoreError> StoreError for GuardError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            GuardError::Elapsed(_) => ErrorKind::Timeout,
            GuardError::Open { .. } => ErrorKind::CircuitOpen,
            GuardError::Store(error) => error.kind(),
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            GuardError::Elapsed(_) | GuardError::Open { .. } => true,
            GuardError::Store(error) => error.is_transient(),
        }
    }

    fn call(&self) -> Option<u64> {
        match self {
            GuardError::Elapsed(_) | GuardError::Open { .. } => None,
            GuardError::Store(error) => error.call(),
        }
    }

    fn executed_nothing(&self) -> bool {
        match self {
            GuardError::Elapsed(_) => false,
            GuardError::Open { .. } => true,
            GuardError::Store(error) => error.executed_nothing(),
        }
    }

    fn is_timeout(&self) -> bool {
        match self {
            GuardError::Elapsed(_) => true,
            GuardError::Open { .. } => false,
            GuardError::Store(error) => error.is_timeout(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for GuardError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardError::Elapsed(limit) => write!(f, "no answer within {limit:?}"),
            GuardError::Open { .. } => f.write_str("the circuit breaker is open"),
            GuardError::Store(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for GuardError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            GuardError::Elapsed(_) | GuardError::Open { .. } => None,
            // Skips the store's error, whose message `Display` already shows.
            GuardError::Store(error) => error.source(),
        }
    }
}
