//! Log-ins by address and name.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use axum::{Router, extract::State, routing::post};
use http::{Request, StatusCode, request::Parts};
use tollgate::extract::{PeerIp, extension_ref};
use tollgate::{Algorithm, Denial, Head, Key, Limiter, Policy, PolicyExt, Quota, RequestLimiter};

use crate::guide::{from_peer, shows, status};

#[derive(Clone)]
struct Name(String);

async fn is_right(name: &str, password: &str) -> bool {
    // Your check goes here.
    !name.is_empty() && password == "secret"
}

#[derive(Clone)]
struct Limits {
    turns: Limiter,
    addresses: RequestLimiter,
    names: RequestLimiter,
}

async fn log_in(State(limits): State<Limits>, mut parts: Parts, body: String) -> Result<Response, Denial> {
    let (name, password) = body.split_once(':').unwrap_or_default();
    let name = name.to_lowercase();
    parts.extensions.insert(Name(name.clone()));
    let head = Head::from(&parts);
    // First the charges: concurrent guesses cannot exceed a limit. That of the address before the
    // wait, too: one that is refused holds up no name.
    let by_address = limits.addresses.check(&head).await?;
    let checked = check_in_turn(&limits, &head, &name, password).await;
    if matches!(checked, Ok(false)) {
        return Ok(StatusCode::UNAUTHORIZED.into_response());
    }
    by_address.refund().await;
    checked.map(|_| "welcome".into_response())
}

/// One at a time, so that right log-ins do not lack a failure that another has only reserved.
async fn check_in_turn(limits: &Limits, head: &Head<'_>, name: &str, password: &str) -> Result<bool, Denial> {
    let _turn = limits.turns.until_ready(&Key::from(name), 1, Duration::from_secs(10)).await?;
    let by_name = limits.names.check(head).await?;
    let is_right = is_right(name, password).await;
    if is_right {
        by_name.refund().await;
    }
    Ok(is_right)
}

fn app() -> Router {
    let failures = |name, quota| Policy::new(name, quota).with_algorithm(Algorithm::SLIDING_LOG);
    let address = failures("address", Quota::per_hour(20)).block_after(100, Duration::from_secs(3_600));
    let name = failures("name", Quota::per_hour(5)).block_after(20, Duration::from_secs(900));
    let limits = Limits {
        turns: Limiter::new([Policy::in_flight("turn", 1)]),
        addresses: RequestLimiter::new(address.by(PeerIp::new())),
        names: RequestLimiter::new(name.by(extension_ref(|Name(name): &Name| name.as_str()))),
    };
    Router::new().route("/log-in", post(log_in)).with_state(limits)
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
    for (address, body) in [(1, "ada:a"), (2, "Ada:b"), (3, "ADA:c"), (4, "ada:d"), (5, "ada:e")] {
        assert_eq!(log_in(address, body).await, 401);
    }
    assert_eq!(log_in(6, "ADA:secret").await, 429);
    for n in 1..20 {
        assert_eq!(log_in(1, &format!("name{n}:a")).await, 401, "{n}");
    }
    // The last attempt of the address is not charged to the name. An empty name is no key.
    assert_eq!([log_in(1, "e:a").await, log_in(4, "e:secret").await, log_in(5, "").await], [429, 200, 400]);
}
