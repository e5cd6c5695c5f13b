//! The report as an axum extractor.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;

use super::Report;
use crate::errors::SetupError;

/// Feature `axum`. Without a layer that [exposes its
/// report](crate::RateLimitLayer::expose_report), the request is answered 500, and the log says
/// once which call is missing. `Option<Report>` is `None` then.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Quota, RateLimitLayer, Report};
///
/// async fn me(report: Report) -> String {
///     match report.get("default") {
///         Some((policy, status)) => format!("{} of {} left\n", status.remaining(), policy.capacity()),
///         None => "no limit applies\n".to_owned(),
///     }
/// }
///
/// let app: Router = Router::new()
///     .route("/me", get(me))
///     .layer(RateLimitLayer::per_ip(Quota::per_minute(100)).expose_report());
/// ```
impl<S: Sync> FromRequestParts<S> for Report {
    type Rejection = SetupError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Report, SetupError> {
        parts.extensions.get().cloned().ok_or(SetupError::MissingExtension(
            "a `tollgate::Report`, but no layer around it inserted one: call `.expose_report()` on its \
             `RateLimitLayer`",
        ))
    }
}

/// Feature `axum`. `None` without a layer that exposes its verdict.
impl<S: Sync> OptionalFromRequestParts<S> for Report {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Report>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}
