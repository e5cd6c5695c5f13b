//! The panic of a constructor that has a `try_` twin.

use std::fmt::Display;

/// Returns the value, or panics with the error at the caller's caller. A closure of
/// `unwrap_or_else` would name this crate instead.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T, impl Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
