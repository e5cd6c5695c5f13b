//! Rules in shadow, whose answers no request waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tollgate::{Outcome, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{call, request, user};
use tower::{Layer, service_fn};

use crate::redis::{Fresh, eventually};

async fn ok(_: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
    Ok(Response::new(Body::empty()))
}

#[tokio::test]
async fn requests_pass_while_redis_is_silent_and_are_counted_after_it() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let counts: Arc<[AtomicU64; Outcome::ALL.len()]> =
        Arc::new([const { AtomicU64::new(0) }; Outcome::ALL.len()]);
    let (seen, count) =
        (Arc::clone(&counts), |outcome: Outcome| counts[outcome as usize].load(Ordering::Relaxed));
    let daily = |name, limit| Policy::new(name, Quota::per_day(limit)).by(user()).shadow();
    let layer = RateLimitLayer::new([daily("few", 5), daily("many", 500)])
        .store(fresh.store.clone().fail_closed())
        .observe(move |decision| {
            seen[decision.outcome() as usize].fetch_add(1, Ordering::Relaxed);
        });
    let mut service = layer.layer(service_fn(ok));
    server.pause().unwrap();
    for _ in 0..100 {
        assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::OK);
    }
    assert_eq!(count(Outcome::ShadowAllowed) + count(Outcome::ShadowDenied), 0, "Redis is silent");
    server.resume().unwrap();
    eventually("both rules have decided", async || {
        (count(Outcome::ShadowAllowed), count(Outcome::ShadowDenied)) == (105, 95)
    })
    .await;
    assert_eq!(count(Outcome::ShadowDropped) + count(Outcome::Allowed) + count(Outcome::Denied), 0);
}
