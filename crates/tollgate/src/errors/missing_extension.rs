//! The answer to a handler that asks for what no layer has inserted.

#[cfg(feature = "tracing")]
use std::sync::{Mutex, PoisonError};

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::errors::SetupError;

/// Feature `axum`. A 500 without a body, for extractors: the mistake is the server's, and only the
/// log names it.
impl IntoResponse for SetupError {
    fn into_response(self) -> Response {
        #[cfg(feature = "tracing")]
        {
            static LOGGED: Mutex<Vec<SetupError>> = Mutex::new(Vec::new());
            let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
            if !logged.contains(&self) {
                tracing::error!("{self}");
                logged.push(self);
            }
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
