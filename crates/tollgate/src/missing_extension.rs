//! What a handler asks for, and no layer has inserted.

use std::fmt;
#[cfg(feature = "tracing")]
use std::sync::{Mutex, PoisonError};

use axum::response::{IntoResponse, Response};
use http::StatusCode;

/// The error of a handler that asks for a [`Report`](crate::Report) or a [`Charge`](crate::Charge)
/// that no layer inserted. The answer is a 500 without a body: the missing call is a mistake in the
/// server, and only the log names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingExtension(&'static str);

impl MissingExtension {
    /// That of a handler, with the call that is missing.
    pub(crate) fn new(message: &'static str) -> MissingExtension {
        MissingExtension(message)
    }
}

impl fmt::Display for MissingExtension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a handler asks for {}", self.0)
    }
}

impl std::error::Error for MissingExtension {}

impl IntoResponse for MissingExtension {
    fn into_response(self) -> Response {
        #[cfg(feature = "tracing")]
        {
            static LOGGED: Mutex<Vec<MissingExtension>> = Mutex::new(Vec::new());
            let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
            if !logged.contains(&self) {
                tracing::error!("{self}");
                logged.push(self);
            }
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
