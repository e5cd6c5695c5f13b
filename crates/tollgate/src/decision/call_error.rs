//! Why a call has no response.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::denial::Denial;

/// The error of a [`CallLimit`](crate::calls::CallLimit), and of a `Pause` of the feature `client`.
#[derive(Clone, Debug)]
pub enum CallError<E> {
    /// The limit refused the call. The inner service has not seen it.
    Denied(Denial),
    /// The origin asked for a pause, which ends after this time. The request was not sent.
    Paused(Duration),
    /// The inner service failed.
    Inner(E),
}

impl<E> CallError<E> {
    /// Returns the error in a box, also that of a service whose error is a box.
    pub fn into_box(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            CallError::Denied(denial) => denial.into(),
            CallError::Paused(left) => CallError::<Denial>::Paused(left).into(),
            CallError::Inner(error) => error.into(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Denied(denial) => denial.fmt(f),
            CallError::Paused(left) => write!(f, "the origin asked for a pause, which ends in {left:?}"),
            CallError::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CallError::Denied(_) | CallError::Paused(_) => None,
            CallError::Inner(error) => error.source(),
        }
    }
}
