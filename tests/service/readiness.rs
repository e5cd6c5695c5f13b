//! The service that was polled ready is the one that is called.

use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tollgate::{RateLimitLayer, StoreExt};
use tollgate_tests::{Later, Strict, call, clock, per_user, queue, request, store};
use tower::{Layer, Service, ServiceExt};
use tower_test::mock;

use crate::service::{answer, layer};

#[tokio::test]
async fn a_request_that_passes_at_once_uses_the_polled_slot() {
    let inner = Strict::default();
    let mut service = layer(&clock(), [per_user("p", 100)]).layer(inner.clone());
    for _ in 0..10 {
        assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    }
    assert_eq!((inner.slots(), inner.calls()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_takes_the_polled_service_along() {
    let inner = Strict::default();
    let mut service = layer(&clock(), [queue("q", Duration::from_secs(5))]).layer(inner.clone());
    let mut pending = Vec::new();
    for _ in 0..10 {
        pending.push(tokio::spawn(service.ready().await.unwrap().call(request("ada"))));
    }
    for response in pending {
        assert_eq!(response.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!((inner.slots(), inner.calls()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn an_awaited_verdict_takes_the_polled_service_along() {
    for store in [Later::deciding_first, Later::deciding_last].map(|later| later(store(&clock()))) {
        let inner = Strict::default();
        let rules = [queue("q", Duration::from_secs(5)), per_user("p", 8)];
        let mut service = RateLimitLayer::new(rules).store(store).layer(inner.clone());
        let mut pending = Vec::new();
        for _ in 0..10 {
            pending.push(tokio::spawn(service.ready().await.unwrap().call(request("ada"))));
        }
        let mut passed = 0;
        for response in pending {
            passed += u32::from(response.await.unwrap().unwrap().status() == 200);
        }
        assert_eq!((passed, inner.calls()), (8, 8));
    }
}

/// A caller polls each clone ready, as hyper and axum do for each connection.
#[tokio::test]
async fn each_clone_of_the_service_is_polled_ready_separately() {
    let service = layer(&clock(), [per_user("p", 3)]).layer(Strict::default());
    for expected in [200, 200, 200, 429] {
        let response = service.clone().oneshot(request("ada")).await.unwrap();
        assert_eq!(response.status(), expected, "the state is shared");
    }
}

#[tokio::test]
async fn a_denied_request_leaves_the_readiness_to_the_next_request() {
    let inner = Strict::default();
    let mut service = layer(&clock(), [per_user("p", 1)]).layer(inner.clone());
    assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    for _ in 0..5 {
        assert_eq!(call(&mut service, request("ada")).await.status(), 429);
    }
    let without_a_key = Request::new(Body::empty());
    assert_eq!(call(&mut service, without_a_key).await.status(), 400);
    assert_eq!((inner.slots(), inner.calls()), (2, 1), "one slot waits");
    assert_eq!(call(&mut service, request("bob")).await.status(), 200);
    assert_eq!((inner.slots(), inner.calls()), (2, 2), "and is used");
}

#[tokio::test]
async fn the_layer_is_ready_when_the_inner_service_is() {
    let (mut service, mut handle) = mock::spawn_layer(layer(&clock(), [per_user("p", 1)]));
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(service.poll_ready().is_ready());
    let first = service.call(request("ada"));
    answer(&mut handle).await;
    assert_eq!(first.await.unwrap().status(), 200);
    assert!(service.poll_ready().is_pending(), "its only slot is used");

    handle.allow(1);
    assert!(service.poll_ready().is_ready());
    assert_eq!(service.call(request("ada")).await.unwrap().status(), 429);
    assert!(service.poll_ready().is_ready(), "a denial uses no slot");
    let second = service.call(request("bob"));
    answer(&mut handle).await;
    assert_eq!(second.await.unwrap().status(), 200);
    assert!(service.poll_ready().is_pending());
}

#[tokio::test]
async fn errors_of_the_inner_service_pass_through() {
    let clock = clock();
    for store in [store(&clock).boxed(), Later::deciding_last(store(&clock)).boxed()] {
        let layer = RateLimitLayer::new([per_user("p", 1)]).store(store);
        let (mut service, mut handle) = mock::spawn_layer::<Request<Body>, Response<Body>, _>(layer);
        assert!(service.poll_ready().is_ready());
        let breaks = async { handle.next_request().await.unwrap().1.send_error("it broke") };
        let (response, ()) = tokio::join!(service.call(request("ada")), breaks);
        assert_eq!(response.unwrap_err().to_string(), "it broke");
        handle.send_error("and for good");
        let error = service.poll_ready();
        assert!(matches!(error, std::task::Poll::Ready(Err(error)) if error.to_string() == "and for good"));
    }
}
