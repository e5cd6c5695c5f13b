//! The address behind proxies, invented keys, and failed log-ins.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;
use tollgate::extract::{AddressExtractor, ClientIp, PeerAddr, PeerIp, header};
use tollgate::{Algorithm, Denial, Head, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer};

use super::{from_peer, send, shows};

#[test]
fn entries_that_a_client_wrote_do_not_count() {
    let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
    let seen = |peer: [u8; 4], header: &str| {
        let request = Request::get("/").header("x-forwarded-for", header);
        let request = request.extension(PeerAddr((peer, 443).into())).body(()).unwrap();
        client.address(&Head::from(&request)).unwrap().to_string()
    };
    assert_eq!(seen([10, 0, 0, 1], "203.0.113.7"), "203.0.113.7");
    assert_eq!(seen([10, 0, 0, 1], "192.0.2.1, 203.0.113.7, 10.0.0.2"), "203.0.113.7", "the first is forged");
    assert_eq!(seen([203, 0, 113, 9], "192.0.2.1"), "203.0.113.9", "not a proxy of ours");
}

#[tokio::test]
async fn a_second_rule_limits_a_caller_that_invents_keys() {
    let limit = RateLimitLayer::new([
        Policy::new("address", Quota::per_hour(3)).by(PeerIp::new()),
        Policy::new("api-key", Quota::per_hour(1_000)).by(header("x-api-key")),
    ]);
    let app = axum::Router::new().route("/", axum::routing::get(|| async {})).layer(limit);
    let with = |api_key: &str| from_peer(1, Request::get("/").header("x-api-key", api_key), "");
    for invented in ["a", "b", "c"] {
        assert_eq!(send(&app, with(invented)).await.status(), 200);
    }
    let refused = send(&app, with("d")).await;
    let denial = refused.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["address"]);
}

fn failures() -> Limiter {
    // A log admits at most two failures in any hour. A bucket lets more guesses pass as it refills.
    let policy = Policy::new("failures", Quota::per_hour(2));
    Limiter::new([policy.with_algorithm(Algorithm::SLIDING_LOG)])
}

async fn log_in(failures: &Limiter, user: &str, is_right: impl Future<Output = bool>) -> Response {
    let key = Key::from(user.to_lowercase());
    // Charge before checking the password: concurrent requests cannot exceed the limit.
    let permit = match failures.check(&key, 1).await {
        Ok(permit) => permit,
        Err(denial) => return denial.into_response(),
    };
    if !is_right.await {
        return Response::builder().status(401).body(Body::empty()).unwrap();
    }
    permit.refund().await;
    Response::new(Body::from("welcome"))
}

#[tokio::test]
async fn only_failed_log_ins_count() {
    let failures = failures();
    for is_right in [true, false, true, false] {
        let expected = if is_right { 200 } else { 401 };
        assert_eq!(log_in(&failures, "Ada", async { is_right }).await.status(), expected);
    }
    assert_eq!(log_in(&failures, "ada", async { true }).await.status(), 429);
}

#[test]
fn the_chapter_shows_this_code() {
    shows("keys.md", include_str!("keys.rs"), &["\"api-key\"", "fn log_in"]);
}
