//! Callers that leave half-way do not disturb later requests and do not raise the limit.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use tollgate::store::BoxStore;
use tollgate::{RateLimitLayer, StoreExt};
use tollgate_tests::{Later, Strict, call, clock, per_user, queue, request, store};
use tower::{Layer, Service, ServiceExt};
use tower_test::mock;

use crate::service::{MockHandle, MockService, layer, poll_once, timed};

/// How many requests pass before the first one that does not.
async fn passing<S, R>(service: &mut S) -> u32
where
    S: Service<http::Request<Body>, Response = http::Response<R>>,
    S::Error: std::fmt::Debug,
{
    let mut passed = 0;
    while call(service, request("ada")).await.status() == 200 {
        passed += 1;
    }
    passed
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_first_poll_is_charged_at_most_once() {
    let at_hand = store(&clock()).boxed();
    let [first, last] = [Later::deciding_first, Later::deciding_last].map(|later| later(store(&clock())));
    for (store, left) in [(at_hand, 4), (first.boxed(), 5), (last.boxed(), 5)] {
        let inner = Strict::default();
        let mut service = RateLimitLayer::new([per_user("p", 5)]).store(store).layer(inner.clone());
        drop(service.ready().await.unwrap().call(request("ada")));
        assert_eq!(passing(&mut service).await, left);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_store_call_is_charged_at_most_once() {
    let stores = [(Later::deciding_first(store(&clock())), 4), (Later::deciding_last(store(&clock())), 5)];
    for (store, left) in stores {
        let inner = Strict::default();
        let mut service = RateLimitLayer::new([per_user("p", 5)]).store(store).layer(inner.clone());
        poll_once(service.ready().await.unwrap().call(request("ada"))).await;
        assert_eq!(inner.calls(), 0);
        assert_eq!(passing(&mut service).await, left);
        assert_eq!(inner.calls(), left);
    }
}

const MS: Duration = Duration::from_millis(1);

/// A store that answers at once, and two whose answers and refunds must be awaited.
fn stores() -> [BoxStore<Infallible>; 3] {
    let [first, last] =
        [Later::deciding_first, Later::deciding_last].map(|later| later(store(&clock())).boxed());
    [store(&clock()).boxed(), first, last]
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_the_queue_gives_its_place_and_charge_back() {
    for store in stores() {
        let inner = Strict::default();
        let rules = [queue("q", Duration::from_secs(5)), per_user("p", 5)];
        let mut service = RateLimitLayer::new(rules).store(store).layer(inner.clone());
        assert_eq!(timed(call(&mut service, request("ada"))).await.1, Duration::ZERO);
        for _ in 0..20 {
            // Each gets the place at 100 ms, and leaves after 50 ms.
            let response = service.ready().await.unwrap().call(request("ada"));
            assert!(tokio::time::timeout(50 * MS, response).await.is_err());
            tokio::time::sleep(MS).await;
        }
        assert_eq!(inner.calls(), 1);
        let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
        assert_eq!((response.status().as_u16(), elapsed), (200, 100 * MS));
        assert_eq!(passing(&mut service).await, 3, "5 in all");
    }
}

#[tokio::test(start_paused = true)]
async fn queue_places_are_returned_last_in_first_out() {
    for store in stores() {
        let rules = [queue("q", Duration::from_secs(5))];
        let mut service = RateLimitLayer::new(rules).store(store).layer(Strict::default());
        let mut queued = Vec::new();
        for _ in 0..4 {
            let mut response = Box::pin(service.ready().await.unwrap().call(request("ada")));
            let _ = tokio::time::timeout(MS, &mut response).await;
            queued.push(response);
        }
        // The first has passed.
        while queued.len() > 1 {
            drop(queued.pop());
            tokio::time::sleep(MS).await;
        }
        assert_eq!(timed(call(&mut service, request("ada"))).await.1, 100 * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_others_queue_behind_stays_reserved() {
    for store in stores() {
        let rules = [queue("q", Duration::from_secs(5))];
        let mut service = RateLimitLayer::new(rules).store(store).layer(Strict::default());
        call(&mut service, request("ada")).await;
        let mut leaves = Box::pin(service.ready().await.unwrap().call(request("ada")));
        assert!(tokio::time::timeout(MS, &mut leaves).await.is_err());
        let mut stays = Box::pin(service.ready().await.unwrap().call(request("ada")));
        assert!(tokio::time::timeout(MS, &mut stays).await.is_err());
        drop(leaves);
        tokio::time::sleep(MS).await;
        assert_eq!(timed(call(&mut service, request("ada"))).await.1, 300 * MS);
        assert_eq!(timed(stays).await.0.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_inner_call_stays_charged() {
    let layer = layer(&clock(), [per_user("p", 3)]);
    let (inner, mut handle): (MockService, MockHandle) = mock::pair();
    let mut service = layer.layer(inner);
    poll_once(service.ready().await.unwrap().call(request("ada"))).await;
    let (seen, send) = handle.next_request().await.unwrap();
    assert_eq!(seen.headers()["x-user"], "ada");
    send.send_response(http::Response::new(Body::empty()));

    let mut strict = layer.layer(Strict::default());
    assert_eq!(passing(&mut strict).await, 2);
}

/// Half of the callers leave at random stages. All together get at most the limit.
#[tokio::test(start_paused = true)]
async fn callers_that_leave_at_any_stage_do_not_raise_the_limit() {
    let [first, last] =
        [Later::deciding_first, Later::deciding_last].map(|later| later(store(&clock())).boxed());
    for store in [store(&clock()).boxed(), first, last] {
        let inner = Strict::default();
        let rules = [queue("q", Duration::from_secs(2)), per_user("p", 15)];
        let service = RateLimitLayer::new(rules).store(store).layer(inner.clone());
        let mut callers = Vec::new();
        for n in 0..60_u64 {
            let response = service.clone().oneshot(request("ada"));
            let patience =
                if n % 2 == 0 { Duration::from_secs(60) } else { Duration::from_millis(n * 13 % 900) };
            callers.push(tokio::spawn(async move { tokio::time::timeout(patience, response).await }));
        }
        let mut passed = 0;
        for caller in callers {
            let answer = caller.await.unwrap();
            passed += u32::from(answer.is_ok_and(|response| response.unwrap().status() == 200));
        }
        assert!((7..=15).contains(&passed), "{passed}");
        assert!((passed..=15).contains(&inner.calls()), "{} calls for {passed} answers", inner.calls());
    }
}
