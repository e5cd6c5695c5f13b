//! A real axum server, over TCP.

mod behind_nginx;
mod charges;
mod connections;
mod deadlines;
mod keys;
mod paths;
mod refusals;
mod stream_resets;
mod verdicts;
mod websockets;

use axum::Router;
use axum::routing::get;
use tollgate::extract::KeyExtractor;
use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};

/// Two requests a day: no test lasts until one comes back or a new window begins.
fn two_a_day(key: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new([Policy::new("two", two()).with_algorithm(Algorithm::FIXED_WINDOW).by(key)])
}

fn two() -> Quota {
    Quota::per_day(2)
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }).post(|body: String| async move { body }))
}
