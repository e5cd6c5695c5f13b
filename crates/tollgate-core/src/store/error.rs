//! The errors of stores, as failure policies see them.

use std::convert::Infallible;
use std::error::Error;

/// An error of a [`Store`](crate::Store). Failure policies log its message and those of its
/// sources, so they must not contain a key.
pub trait StoreError: Error + Send + Sync + 'static {
    /// Returns the kind of this error.
    fn kind(&self) -> ErrorKind;

    /// Whether the error may resolve itself: all kinds except [`ErrorKind::Misconfigured`].
    fn is_transient(&self) -> bool {
        self.kind() != ErrorKind::Misconfigured
    }

    /// The number of the failure, if one failure of the store has several errors: requests share
    /// calls, and calls wait for the same silent node. A circuit breaker counts errors of one
    /// number once. `None` if each error is a failure of its own.
    fn call(&self) -> Option<u64> {
        None
    }

    /// Whether the store certainly executed nothing of the operation, so that it can be sent again.
    /// By default that is so for the kinds [`ErrorKind::Overloaded`] and
    /// [`ErrorKind::CircuitOpen`].
    fn executed_nothing(&self) -> bool {
        matches!(self.kind(), ErrorKind::Overloaded | ErrorKind::CircuitOpen)
    }

    /// Whether the store did not answer in time. It may have charged nevertheless.
    fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store did not answer in time. It may have charged nevertheless.
    Timeout,
    /// The store cannot answer now: it is unreachable, starting, failing over or out of memory.
    Unavailable,
    /// Too many requests of this process wait for the store, so it was not asked. Nothing was
    /// charged. Circuit breakers do not count this, because it says nothing about the store.
    Overloaded,
    /// A circuit breaker is open, so the store was not asked. Nothing was charged.
    CircuitOpen,
    /// The keys of the request are moving to another node of the store, which refuses some sets
    /// until then. Nothing was charged. Circuit breakers do not count this: other keys are decided.
    Moving,
    /// An operator has to act: a wrong password, a missing permission. A circuit breaker does not
    /// open for such an error, because that would hide it.
    Misconfigured,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [ErrorKind; 6] = [
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::Overloaded,
        ErrorKind::CircuitOpen,
        ErrorKind::Moving,
        ErrorKind::Misconfigured,
    ];

    /// The name in logs and metrics, such as `circuit-open`.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Timeout => "timeout",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::CircuitOpen => "circuit-open",
            ErrorKind::Moving => "moving",
            ErrorKind::Misconfigured => "misconfigured",
        }
    }
}

impl StoreError for Infallible {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }
}
