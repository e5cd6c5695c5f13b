//! A slot as an axum extractor.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::Slot;

/// Feature `axum`. Holds nothing, and is never lost, without a rule of requests in flight.
impl<S: Sync> FromRequestParts<S> for Slot {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Slot, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
