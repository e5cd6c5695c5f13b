//! A limit that counts what it would refuse.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::Router;
use axum::routing::get;
use tollgate::extract::header;
use tollgate::{Outcome, Policy, PolicyExt, Quota, RateLimitLayer};

use crate::guide::{from_peer, shows, status};

fn limit(refused: Arc<AtomicU64>) -> RateLimitLayer {
    RateLimitLayer::new([
        Policy::new("api", Quota::per_minute(600)).by(header("x-api-key")),
        Policy::new("planned", Quota::per_hour(2)).by(header("x-api-key")).shadow(),
    ])
    .observe(move |decision| {
        if decision.outcome() == Outcome::ShadowDenied {
            refused.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[tokio::test]
async fn a_rule_in_shadow_counts_and_refuses_nothing() {
    shows("before_a_rule_bites.md", include_str!("before_a_rule_bites.rs"), &["fn limit"]);
    let refused = Arc::new(AtomicU64::new(0));
    let app = Router::new().route("/", get(|| async {})).layer(limit(Arc::clone(&refused)));
    for _ in 0..5 {
        let request = from_peer(1, http::Request::get("/").header("x-api-key", "a"), "");
        assert_eq!(status(&app, request).await, 200);
    }
    assert_eq!(refused.load(Ordering::Relaxed), 3);
}
