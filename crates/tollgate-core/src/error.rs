//! What a failure policy needs to know of an error.

use std::convert::Infallible;
use std::error::Error;

/// An error of a [`Store`](crate::Store), as far as a failure policy needs to know it. Failure policies write what it
/// displays, and what its sources do, to the log: there must be no key in it.
pub trait StoreError: Error + Send + Sync + 'static {
    /// Whether it may pass by itself: the store is slow, unreachable, starting or failing over. `false` where somebody has
    /// to mend something (a wrong password, a missing permission): a circuit breaker does not open for that, since that
    /// would hide it.
    fn is_transient(&self) -> bool;

    /// Whether the store did not answer in time. It may have charged nevertheless.
    fn is_timeout(&self) -> bool;
}

impl StoreError for Infallible {
    fn is_transient(&self) -> bool {
        match *self {}
    }

    fn is_timeout(&self) -> bool {
        match *self {}
    }
}
