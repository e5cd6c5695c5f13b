//! The layer and its service without a network, in tokio's paused time and with manual clocks.

mod apart_in_shadow;
mod blocks;
mod bodies;
mod cancellation;
mod charge_ends;
mod charges;
mod classes;
mod close;
mod concurrency;
mod deadlines;
mod delays;
mod exemptions;
mod names;
mod readiness;
mod replace;
pub(crate) mod request_quotas;
mod responses;
mod shadow;
mod slots;
mod stacks;
mod tiers;
mod times_of_slots;

use axum::body::Body;
use http::{Request, Response};
use tollgate::{ManualClock, RateLimitLayer, Rule};
use tollgate_tests::{poll_once, store, timed};
use tower_test::mock::{Handle, Mock};

type MockService = Mock<Request<Body>, Response<Body>>;
type MockHandle = Handle<Request<Body>, Response<Body>>;

/// A layer whose store uses that clock.
fn layer(clock: &ManualClock, rules: impl IntoIterator<Item = Rule>) -> RateLimitLayer {
    RateLimitLayer::new(rules).store(store(clock))
}

/// Answers the next request that reaches a mock.
async fn answer(handle: &mut MockHandle) {
    let (_, send) = handle.next_request().await.expect("the service lives");
    send.send_response(Response::new(Body::empty()));
}
