//! Five limits in one layer: by address, by the subject and the tenant of a token, for methods that
//! write, and for one route.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, Method, StatusCode};
use tollgate::extract::{PeerIp, extension, extension_ref};
use tollgate::{Algorithm, Head, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, clock, serve, store};

/// Of a token whose signature was verified.
#[derive(Clone)]
struct Claims {
    sub: u64,
    tenant: String,
}

/// Stands for the verification of a token: this one is valid if it has two parts.
async fn verify(headers: HeaderMap, mut request: Request, next: Next) -> Response {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    let claims = token.and_then(|token| {
        let (tenant, sub) = token.strip_prefix("Bearer ")?.split_once('.')?;
        Some(Claims { sub: sub.parse().ok()?, tenant: tenant.to_owned() })
    });
    let Some(claims) = claims else { return StatusCode::UNAUTHORIZED.into_response() };
    request.extensions_mut().insert(claims);
    next.run(request).await
}

fn writes(head: &Head<'_>) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(head.method())
}

fn app() -> Router {
    let subject = || extension(|claims: &Claims| claims.sub);
    let minute = |limit| Quota::new(limit, Duration::from_secs(60));
    let limit = RateLimitLayer::new([
        Policy::new("address", minute(12)).by(PeerIp::new()),
        Policy::new("user", minute(4)).by(subject()),
        Policy::new("tenant", minute(6)).by(extension_ref(|claims: &Claims| claims.tenant.as_str())),
        Policy::new("writes", minute(2))
            .with_algorithm(Algorithm::SLIDING_LOG)
            .by(subject())
            .exempt(|head: &Head<'_>| !writes(head)),
        Policy::new("export", minute(1))
            .by(subject())
            .exempt(|head: &Head<'_>| head.uri().path() != "/export"),
    ]);
    Router::new()
        .route("/", get(|| async { "read" }).post(|| async { "written" }))
        .route("/export", get(|| async { "all" }))
        .layer(limit.store(store(&clock())))
        .layer(from_fn(verify))
}

#[tokio::test]
async fn each_limit_applies_to_its_own_requests() {
    let mut client = Client::connect(serve(app()).await).await;
    let mut violated = Vec::new();
    for (method, path, token) in [
        ("POST", "/", "acme.1"),
        ("POST", "/", "acme.1"),
        ("POST", "/", "acme.1"),
        ("GET", "/export", "acme.1"),
        ("GET", "/export", "acme.1"),
        ("GET", "/", "acme.1"),
        ("GET", "/", "acme.1"),
        ("GET", "/", "acme.2"),
        ("GET", "/", "acme.2"),
        ("GET", "/", "acme.2"),
        ("GET", "/", "other.3"),
    ] {
        let answer = client.request(method, path, &[&format!("authorization: Bearer {token}")]).await;
        let policies = answer.body.split_once("violated-policies\":[").map(|(_, rest)| rest.to_owned());
        violated.push((answer.status, policies.unwrap_or_default()));
    }
    let denied = |name: &str| (429, format!("\"{name}\"]}}"));
    let passed = || (200, String::new());
    let expected = [
        passed(),
        passed(),
        denied("writes"),
        passed(),
        denied("export"),
        passed(),
        denied("user"),
        passed(),
        passed(),
        denied("tenant"),
        passed(),
    ];
    assert_eq!(violated, expected);
}
