//! The layer and its service, without a network: in tokio's paused time, and by clocks that stand still.

mod bodies;
mod cancellation;
mod concurrency;
mod delays;
mod readiness;
mod responses;
mod stacks;

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::time::Instant;
use tollgate::{ManualClock, RateLimitLayer, Rule};
use tollgate_tests::store;
use tower_test::mock::{Handle, Mock};

type MockService = Mock<Request<Body>, Response<Body>>;
type MockHandle = Handle<Request<Body>, Response<Body>>;

/// A layer whose store goes by that clock.
fn layer(clock: &ManualClock, rules: impl IntoIterator<Item = Rule>) -> RateLimitLayer {
    RateLimitLayer::new(rules).store(store(clock))
}

/// What a future returns, and how long it took in tokio's time.
async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    let output = future.await;
    (output, start.elapsed())
}

/// Polls a future once, which must not be ready.
async fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "ready at once");
        std::task::Poll::Ready(())
    })
    .await;
}

/// Answers the next request that reaches a mock.
async fn answer(handle: &mut MockHandle) {
    let (_, send) = handle.next_request().await.expect("the service lives");
    send.send_response(Response::new(Body::empty()));
}
