//! No decision constructs a clock. Alone in its process, because clocks are counted per process.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::extract::global;
use tollgate::time::Clock;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::call;
use tower::{Layer, service_fn};

type Body = Full<bytes::Bytes>;

#[tokio::test]
async fn a_denial_constructs_no_clock() {
    if crate::ran_in_own_process(a_denial_constructs_no_clock) {
        return;
    }
    let layer = RateLimitLayer::new([Policy::new("p", Quota::per_day(1)).by(global())]);
    let hello = |_: Request<Body>| std::future::ready(Ok::<_, Infallible>(Response::new(Body::default())));
    let mut service = layer.layer(service_fn(hello));
    assert_eq!(call(&mut service, Request::new(Body::default())).await.status(), StatusCode::OK);
    let before = Clock::systems_constructed();
    assert!(before > 0, "the layer's own are counted");
    for _ in 0..1_000 {
        let denied = call(&mut service, Request::new(Body::default())).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(Clock::systems_constructed(), before);
}
