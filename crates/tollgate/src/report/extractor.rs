//! The report as an axum extractor.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use super::Report;

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

/// The error of a handler that asks for a [`Report`] that no layer inserted. The answer is a 500
/// without a body: the missing call is a mistake in the server, and only the log names it.
#[derive(Clone, Debug)]
pub struct MissingReport(());

impl fmt::Display for MissingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a handler asks for a `tollgate::Report`, but no layer around it inserted one: call `.expose_report()` on \
             its `RateLimitLayer`",
        )
    }
}

impl std::error::Error for MissingReport {}

impl IntoResponse for MissingReport {
    fn into_response(self) -> Response {
        #[cfg(feature = "tracing")]
        {
            static LOGGED: std::sync::Once = std::sync::Once::new();
            LOGGED.call_once(|| tracing::error!("{self}"));
        }
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
