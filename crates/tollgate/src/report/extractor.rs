//! The report as an axum extractor.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use super::Report;

/// Feature `axum`. Without a layer that [exposes its verdict](crate::RateLimitLayer::expose_verdict) the request is
/// answered 500, and the log says once which call is missing. `Option<Report>` is `None` then.
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
///     .layer(RateLimitLayer::per_ip(Quota::per_minute(100)).expose_verdict());
/// ```
impl<S: Sync> FromRequestParts<S> for Report {
    type Rejection = MissingReport;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Report, MissingReport> {
        parts.extensions.get().cloned().ok_or(MissingReport(()))
    }
}

/// Feature `axum`. `None` without a layer that exposes its verdict.
impl<S: Sync> OptionalFromRequestParts<S> for Report {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Report>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// A handler asked for a [`Report`] that no layer had left. Its answer is a bare 500: what is missing is a call on the
/// server, which is told to the log and not to clients.
#[derive(Clone, Debug)]
pub struct MissingReport(());

impl fmt::Display for MissingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a handler asks for a `tollgate::Report`, and no layer around it left one: call `.expose_verdict()` on its \
             `RateLimitLayer`",
        )
    }
}

impl std::error::Error for MissingReport {}

impl IntoResponse for MissingReport {
    fn into_response(self) -> Response {
        #[cfg(feature = "tracing")]
        {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| tracing::error!("{self}"));
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
