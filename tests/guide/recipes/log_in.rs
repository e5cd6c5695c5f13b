//! Log-ins by address and name.

use axum::response::{IntoResponse, Response};
use axum::{Router, extract::State, routing::post};
use http::{Request, StatusCode, request::Parts};
use tollgate::extract::{PeerIp, extension_ref};
use tollgate::{Algorithm, Head, Policy, PolicyExt, Quota, RequestLimiter};

use crate::{from_peer, shows, status};

#[derive(Clone)]
struct Name(String);

async fn is_right(name: &str, password: &str) -> bool {
    // Your check goes here.
    !name.is_empty() && password == "secret"
}

async fn log_in(State(failures): State<RequestLimiter>, mut parts: Parts, body: String) -> Response {
    let (name, password) = body.split_once(':').unwrap_or_default();
    parts.extensions.insert(Name(name.to_lowercase()));
    // First the charge: concurrent guesses cannot exceed the limit.
    let permit = match failures.check(&Head::from(&parts)).await {
        Ok(permit) => permit,
        Err(denial) => return denial.into_response(),
    };
    if !is_right(name, password).await {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    failures.refund(permit).await;
    "welcome".into_response()
}

fn app() -> Router {
    let failures = |name, quota| Policy::new(name, quota).with_algorithm(Algorithm::SLIDING_LOG);
    let failures = RequestLimiter::new([
        failures("address", Quota::per_hour(4)).by(PeerIp::new()),
        failures("name", Quota::per_hour(2)).by(extension_ref(|Name(name): &Name| name.as_str())),
    ]);
    Router::new().route("/log-in", post(log_in)).with_state(failures)
}

#[tokio::test]
async fn failed_log_ins_count_by_address_and_by_name() {
    shows("recipes/callers.md", include_str!("log_in.rs"), &["fn log_in"]);
    let app = app();
    let log_in =
        async |last: u8, body: &str| status(&app, from_peer(last, Request::post("/log-in"), body)).await;
    for _ in 0..5 {
        assert_eq!(log_in(1, "ada:secret").await, 200);
    }
    let by_name = [log_in(1, "ada:a").await, log_in(2, "Ada:b").await, log_in(3, "ADA:secret").await];
    assert_eq!(by_name, [401, 401, 429]);
    let by_address = [log_in(1, "b:a").await, log_in(1, "c:a").await, log_in(1, "d:a").await];
    assert_eq!(by_address, [401, 401, 401]);
    // The last attempt of the address is not charged to the name. An empty name is no key.
    assert_eq!([log_in(1, "e:a").await, log_in(4, "e:secret").await, log_in(5, "").await], [429, 200, 400]);
}
