//! Callers of a leaky bucket in Redis that do not wait for their turn.

use std::time::Duration;

use http::Request;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::extract::global;
use tollgate::layer::RateLimit;
use tollgate::store::{NeverFails, Store};
use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_test_servers::Kind;
use tollgate_tests::Strict;
use tower::{Layer, ServiceExt};

use crate::redis::{Fresh, shared};

/// One request each two seconds, and the next place is taken.
async fn service() -> (RateLimit<Strict, impl Store<Error: NeverFails>>, Fresh) {
    let fresh = Fresh::on(shared(Kind::Redis8_2)).await;
    let algorithm = Algorithm::LeakyBucket { max_wait: Duration::from_secs(60) };
    let policy = Policy::new("queue", Quota::new(1, Duration::from_secs(2))).with_algorithm(algorithm);
    let layer = RateLimitLayer::new([policy.by(global())]).store(fresh.store.clone().fail_closed());
    (layer.deadline_header("x-request-timeout").layer(Strict::default()), fresh)
}

fn request() -> Request<axum::body::Body> {
    Request::default()
}

fn hurried() -> Request<axum::body::Body> {
    Request::builder().header("x-request-timeout", "100").body(axum::body::Body::empty()).unwrap()
}

/// Concurrent callers travel in one call to Redis, between others that do wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_with_a_short_deadline_take_no_place() {
    let (service, _fresh) = service().await;
    let start = Instant::now();
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 200);
    let mut calls = JoinSet::new();
    for n in 0..40 {
        let service = service.clone();
        let request = if n % 20 == 10 { request() } else { hurried() };
        calls.spawn(async move { service.oneshot(request).await.unwrap().status().as_u16() });
    }
    let mut statuses = calls.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [&[200; 2][..], &[429; 38]].concat());
    // Those two had the places at 2 s and 4 s.
    assert!(start.elapsed() < Duration::from_secs(15), "after {:?} instead of 4 s", start.elapsed());
}

#[tokio::test]
async fn a_caller_that_leaves_a_queue_in_redis_gives_its_place_back() {
    let (service, _fresh) = service().await;
    let start = Instant::now();
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 200);
    for _ in 0..12 {
        assert!(timeout(Duration::from_millis(20), service.clone().oneshot(request())).await.is_err());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
    assert!(start.elapsed() < Duration::from_secs(15), "after {:?} instead of 2 s", start.elapsed());
}
