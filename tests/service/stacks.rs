//! Among tower's own layers, in several orders.

use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tollgate::{ManualClock, RateLimitLayer};
use tollgate_tests::{Later, Strict, call, clock, per_user, queue, request, store};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

use crate::service::{layer, timed};

/// Asks a stack 20 times at once. Exactly `admitted` must pass, and the layer must refuse the
/// others.
async fn admits<S, R>(order: &str, stack: S, inner: &Strict, admitted: u32)
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Send + 'static,
{
    let mut callers = Vec::new();
    for _ in 0..20 {
        let mut stack = stack.clone();
        callers.push(tokio::spawn(async move {
            let response = stack.ready().await.map_err(Into::into)?.call(request("ada"));
            response.await.map_err(Into::into).map(|response| response.status().as_u16())
        }));
    }
    let mut passed = 0;
    for caller in callers {
        let status: Result<u16, BoxError> = caller.await.expect("no panic");
        match status.unwrap_or_else(|error| panic!("{order}: {error}")) {
            200 => passed += 1,
            429 => {}
            other => panic!("{order}: {other}"),
        }
    }
    assert_eq!((passed, inner.calls()), (admitted, admitted), "{order}");
}

fn five(time: &ManualClock) -> RateLimitLayer {
    layer(time, [per_user("p", 5)])
}

#[tokio::test(start_paused = true)]
async fn the_layer_works_above_and_below_towers_own_layers() {
    let (time, wait) = (clock(), Duration::from_secs(30));

    let inner = Strict::default();
    let stack =
        ServiceBuilder::new().layer(five(&time)).timeout(wait).concurrency_limit(1).service(inner.clone());
    admits("rate limit, timeout, concurrency limit", stack, &inner, 5).await;

    let inner = Strict::default();
    let stack = ServiceBuilder::new()
        .buffer(32)
        .concurrency_limit(2)
        .timeout(wait)
        .layer(five(&time))
        .service(inner.clone());
    admits("buffer, concurrency limit, timeout, rate limit", stack, &inner, 5).await;

    let inner = Strict::default();
    let stack = ServiceBuilder::new()
        .load_shed()
        .layer(five(&time))
        .buffer(32)
        .concurrency_limit(1)
        .service(inner.clone());
    admits("load shed, rate limit, buffer, concurrency limit", stack, &inner, 5).await;

    let inner = Strict::default();
    let stack =
        ServiceBuilder::new().timeout(wait).layer(five(&time)).load_shed().buffer(32).service(inner.clone());
    admits("timeout, rate limit, load shed, buffer", stack, &inner, 5).await;

    let inner = Strict::default();
    let stack = ServiceBuilder::new().layer(five(&time)).layer(five(&time)).service(inner.clone());
    admits("two layers, boxed", stack.boxed_clone(), &inner, 5).await;
}

/// These services carry the inner service with its permit. A permit that is lost or taken twice
/// would be seen.
#[tokio::test(start_paused = true)]
async fn delayed_requests_keep_their_concurrency_permit() {
    let (time, five_at_most) = (clock(), Duration::from_millis(400));

    let inner = Strict::default();
    let stack = ServiceBuilder::new()
        .layer(layer(&time, [queue("q", five_at_most)]))
        .concurrency_limit(1)
        .service(inner.clone());
    admits("queue, concurrency limit", stack, &inner, 5).await;

    for later in [Later::deciding_first, Later::deciding_last] {
        let inner = Strict::default();
        let rules = [queue("q", Duration::from_secs(5)), per_user("p", 5)];
        let stack = ServiceBuilder::new()
            .buffer(4)
            .layer(RateLimitLayer::new(rules).store(later(store(&time))))
            .concurrency_limit(3)
            .service(inner.clone());
        admits("buffer, awaited queue, concurrency limit", stack, &inner, 5).await;
    }
}

/// A delayed request occupies the next inner layer: a buffer, or a slot of a concurrency limit.
#[tokio::test(start_paused = true)]
async fn a_buffer_keeps_sleepers_out_of_the_slots_of_a_concurrency_limit() {
    let an_hour = || layer(&clock(), [queue("q", Duration::from_secs(3_600))]);
    let slots = || ServiceBuilder::new().concurrency_limit(1).service(Strict::default());
    let without = ServiceBuilder::new().layer(an_hour()).service(slots());
    let with = ServiceBuilder::new().layer(an_hour()).buffer(8).service(slots());
    let [without, with] = [without.map_err(BoxError::from).boxed_clone(), with.boxed_clone()];
    for (stack, waits) in [(without, true), (with, false)] {
        stack.clone().oneshot(request("ada")).await.unwrap();
        let sleeps = tokio::spawn(stack.clone().oneshot(request("ada")));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!sleeps.is_finished());
        let (response, elapsed) = timed(stack.oneshot(request("bob"))).await;
        assert_eq!((response.unwrap().status().as_u16(), !elapsed.is_zero()), (200, waits));
        assert_eq!(sleeps.await.unwrap().unwrap().status(), 200);
    }
}

/// A caller that gave up returns its place, and the timeout creates no other.
#[tokio::test(start_paused = true)]
async fn a_timeout_around_a_queue_returns_the_place() {
    let (inner, layer) = (Strict::default(), layer(&clock(), [queue("q", Duration::from_secs(5))]));
    let mut stack =
        ServiceBuilder::new().timeout(Duration::from_millis(250)).layer(layer.clone()).service(inner.clone());
    let mut passed = Vec::new();
    for _ in 0..6 {
        passed.push(stack.ready().await.unwrap().call(request("ada")).await.is_ok());
    }
    assert_eq!(passed, [true, true, true, false, false, false], "slots at 0, 100, 200 and 300 ms");
    assert_eq!(inner.calls(), 3);
    let mut patient = layer.layer(inner);
    let (_, elapsed) = timed(call(&mut patient, request("ada"))).await;
    assert_eq!(elapsed, Duration::from_millis(300));
}

#[tokio::test]
async fn a_load_shedding_service_is_not_charged_twice() {
    let (time, inner) = (clock(), Strict::default());
    let limit = layer(&time, [per_user("p", 3)]);
    // The inner service is never ready, so every request is charged and then shed.
    let stack =
        ServiceBuilder::new().layer(limit.clone()).load_shed().concurrency_limit(0).service(inner.clone());
    for shed in [true, true, true, false] {
        let answer = stack.clone().oneshot(request("ada")).await;
        assert_eq!(answer.is_err(), shed);
    }
    assert_eq!(inner.calls(), 0);
}
