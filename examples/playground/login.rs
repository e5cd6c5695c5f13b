//! `POST /login`: a form whose wrong passwords are counted.

use std::time::Duration;

use axum::body::Bytes;
use http::StatusCode;
use tokio::time::sleep;
use tollgate::{Head, ResponseHead};

/// The name of the rule that counts failures.
pub(crate) const RULE: &str = "login";

const PATH: &str = "/login";
const PASSWORD: &str = "open sesame";

/// Stands for a slow hash.
const TIME_OF_CHECK: Duration = Duration::from_millis(100);

/// Whether the rule ignores a request: all but log-ins. `/me` charges nothing, and shows the rule.
pub(crate) fn is_elsewhere(head: &Head<'_>) -> bool {
    ![PATH, "/me"].contains(&head.uri().path())
}

/// Whether the rule counts a request.
pub(crate) fn is_failure(response: &ResponseHead<'_>) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
}

/// Checks the first field `password` of a form. A form with several is still one guess.
pub(crate) async fn log_in(form: Bytes) -> (StatusCode, &'static str) {
    sleep(TIME_OF_CHECK).await;
    let password = form_urlencoded::parse(&form).find(|(name, _)| name == "password");
    if password.is_some_and(|(_, password)| password == PASSWORD) {
        (StatusCode::OK, "welcome\n")
    } else {
        (StatusCode::UNAUTHORIZED, "wrong password\n")
    }
}
