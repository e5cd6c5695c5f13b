//! The application's JSON error.

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, StatusCode};
use tollgate::extract::header;
use tollgate::{Denial, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{clock, field, store};

use crate::guide::{from_peer, send, shows};

struct AppError {
    status: StatusCode,
    message: String,
    retry_after: Option<u64>,
}

impl From<Denial> for AppError {
    fn from(denial: Denial) -> AppError {
        // The message is for example "quota exceeded: api".
        let (status, message) = (denial.status(), denial.to_string());
        AppError { status, message, retry_after: denial.retry_after_seconds() }
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        // Or `axum::Json`.
        let json = format!("{{\"error\":{:?}}}", self.message);
        let mut response = (self.status, [(CONTENT_TYPE, "application/json")], json).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

fn app() -> Router {
    let rule = Policy::new("api", Quota::per_hour(1)).by(header("x-api-key"));
    let limit = RateLimitLayer::new(rule).answer(|_, denial| AppError::from(denial.clone()));
    Router::new().route("/", get(|| async { "hello" })).layer(limit)
}

#[tokio::test]
async fn layers_and_handlers_refuse_with_the_error_of_the_application() {
    shows("recipes/applications.md", include_str!("json_error.rs"), &["struct AppError"]);
    let app = app();
    let get = async |name: &str| {
        let response = send(&app, from_peer(1, Request::get("/").header(name, "a"), "")).await;
        let (status, waits) = (response.status().as_u16(), response.headers().contains_key("retry-after"));
        (status, waits, to_bytes(response.into_body(), 1_000).await.unwrap())
    };
    assert_eq!(get("x-api-key").await, (200, false, "hello".into()));
    assert_eq!(get("x-api-key").await, (429, true, "{\"error\":\"quota exceeded: api\"}".into()));
    assert_eq!(get("x-other").await.0, 400);

    let limiter = Limiter::new([Policy::new("mails", Quota::per_hour(1))]).store(store(&clock()));
    let mail = async || -> Result<(), AppError> {
        let _permit = limiter.check(&Key::from("a"), 1).await?;
        Ok(())
    };
    assert!(mail().await.is_ok());
    let refused = mail().await.into_response();
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after")), (429, Some("3600")));
}
