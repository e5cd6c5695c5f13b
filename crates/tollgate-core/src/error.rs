//! What a failure policy needs to know of an error.

use std::convert::Infallible;
use std::error::Error;

/// An error of a [`Store`](crate::Store), as far as a failure policy needs to know it. Failure policies write what it
/// displays, and what its sources do, to the log: there must be no key in it.
pub trait StoreError: Error + Send + Sync + 'static {
    /// Of which kind it is.
    fn kind(&self) -> ErrorKind;

    /// Whether it may pass by itself: true for every kind but [`ErrorKind::Misconfigured`].
    fn is_transient(&self) -> bool {
        self.kind() != ErrorKind::Misconfigured
    }

    /// The call that failed, if several requests share calls to the store. Errors with the same number are one failure, and
    /// count once for a circuit breaker. `None` if each request is a call of its own.
    fn call(&self) -> Option<u64> {
        None
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
    /// The store cannot be reached, or not now: it is starting, failing over, out of memory.
    Unavailable,
    /// The store was not asked, because too many requests of this process wait for it. Nothing was charged. This says nothing
    /// of the store, so it does not count for a circuit breaker.
    Overloaded,
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
            ErrorKind::Overloaded => "overloaded",
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
