//! What a failure policy needs to know of an error.

use std::convert::Infallible;
use std::error::Error;

/// An error of a [`Store`](crate::Store), as far as a failure policy needs to know it. Failure policies write what it
/// displays, and what its sources do, to the log: there must be no key in it.
pub trait StoreError: Error + Send + Sync + 'static {
    /// Of which kind it is.
    fn kind(&self) -> ErrorKind;

    /// Whether it may pass by itself: of every kind but [`ErrorKind::Misconfigured`]. Only such errors count for a circuit
    /// breaker.
    fn is_transient(&self) -> bool {
        self.kind() != ErrorKind::Misconfigured
    }

    /// Whether the store did not answer in time. It may have charged nevertheless.
    fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }
}

/// The kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store did not answer in time. It may have charged nevertheless.
    Timeout,
    /// The store cannot be reached, or not now: it is starting, failing over, overloaded.
    Unavailable,
    /// The store was not asked, since a circuit breaker is open. Nothing was charged.
    CircuitOpen,
    /// Somebody has to mend something: a wrong password, a missing permission. A circuit breaker does not open for that,
    /// since that would hide it.
    Misconfigured,
}

impl ErrorKind {
    /// A word for it in logs and metrics, such as `circuit-open`.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Timeout => "timeout",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::CircuitOpen => "circuit-open",
            ErrorKind::Misconfigured => "misconfigured",
        }
    }
}

impl StoreError for Infallible {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }
}
