//! Health checks that no limit applies to.

use axum::body::Body;
use axum::{Router, routing::get};
use http::Request;
use tollgate::extract::PeerIp;
use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer};

use crate::guide::{shows, status};

fn below() -> Router {
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100));
    Router::new().route("/", get(|| async {})).layer(limit).route("/health", get(|| async {}))
}

fn exempt() -> RateLimitLayer {
    let rule = Policy::new("default", Quota::per_minute(100)).by(PeerIp::new());
    RateLimitLayer::new(rule.exempt(|head: &Head<'_>| head.uri().path() == "/health"))
}

/// The requests have no peer address, so a rule that applies answers 500.
#[tokio::test]
async fn no_rule_applies_to_a_health_check() {
    shows("recipes/applications.md", include_str!("health_checks.rs"), &["fn below"]);
    let routes = Router::new().route("/health", get(|| async {})).route("/", get(|| async {}));
    for app in [below(), routes.layer(exempt())] {
        for (path, expected) in [("/health", 200), ("/", 500)] {
            assert_eq!(status(&app, Request::get(path).body(Body::empty()).unwrap()).await, expected);
        }
    }
}
