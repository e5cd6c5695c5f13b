//! A single sign-on server. Addresses may try 30 log-ins a minute, and a name may fail 5 times in a
//! quarter of an hour. An address resets 3 passwords a day. A client fetches 100 tokens a minute.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use http::StatusCode;
use tollgate::extract::{PeerIp, basic_user};
use tollgate::{Algorithm, Denial, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer};

const QUARTER: Duration = Duration::from_secs(15 * 60);

pub(super) fn app(store: MemoryStore) -> Router {
    let failures = Policy::new("failures", Quota::new(5, QUARTER)).with_algorithm(Algorithm::SLIDING_LOG);
    let log_ins = Policy::new("log-ins", Quota::per_minute(30)).by(PeerIp::new());
    let resets = Policy::new("resets", Quota::per_day(3)).by(PeerIp::new());
    let tokens = Policy::new("tokens", Quota::per_minute(100)).by(basic_user());
    let limit = |rule| RateLimitLayer::new(rule).store(store.clone());
    Router::new()
        .route("/login/{name}", post(log_in).route_layer(limit(log_ins)))
        .route("/reset/{name}", post(reset).route_layer(limit(resets)))
        .route("/token", post(async || "token").route_layer(limit(tokens)))
        .with_state(Limiter::new([failures]).store(store.clone()))
}

/// Charged before the password is checked, so that concurrent guesses do not pass.
async fn log_in(
    State(failures): State<Limiter>,
    Path(name): Path<String>,
    password: String,
) -> Result<StatusCode, Denial> {
    let permit = failures.check(&Key::from(name), 1).await?;
    if password != "right" {
        return Ok(StatusCode::UNAUTHORIZED);
    }
    permit.refund().await;
    Ok(StatusCode::OK)
}

/// A new password ends the block of its name.
async fn reset(State(failures): State<Limiter>, Path(name): Path<String>) -> StatusCode {
    failures.reset(&Key::from(name)).await;
    StatusCode::OK
}
