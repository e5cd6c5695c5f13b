//! The answers to gRPC and Connect clients, and how a client reads them.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use http::{Request, Response};
use tollgate::calls::CallError;
use tollgate::extract::global;
use tollgate::pause::{Pause, PauseLayer};
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{clock, field, per_minute, serve, store};
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Layer, ServiceBuilder, ServiceExt};

/// Returns the answer to `call` after a request that used up the quota.
async fn refused(call: Request<String>) -> Response<String> {
    let limit = RateLimitLayer::new([per_minute("api", 1).by(global())]).store(store(&clock()));
    let service = ServiceBuilder::new()
        .layer(limit)
        .service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
    service.clone().oneshot(Request::default()).await.unwrap();
    service.oneshot(call).await.unwrap().map(|_| String::new())
}

#[tokio::test]
async fn one_layer_answers_grpc_and_http() {
    let call = Request::post("/helloworld.Greeter/SayHello").header("content-type", "application/grpc");
    let answer = refused(call.body(String::new()).unwrap()).await;
    assert_eq!((answer.status().as_u16(), field(&answer, "grpc-status")), (200, Some("8")));
    assert_eq!(field(&answer, "grpc-message"), Some("quota exceeded: api"));
    assert_eq!(field(&answer, "grpc-retry-pushback-ms"), Some("60000"));

    let answer = refused(Request::default()).await;
    assert_eq!((answer.status().as_u16(), field(&answer, "retry-after")), (429, Some("60")));
}

#[tokio::test]
async fn a_unary_connect_call_gets_a_429_with_the_wait() {
    let call = Request::post("/helloworld.Greeter/SayHello")
        .header("content-type", "application/json")
        .header("connect-protocol-version", "1");
    let answer = refused(call.body("{}".to_owned()).unwrap()).await;
    assert_eq!((answer.status().as_u16(), field(&answer, "retry-after")), (429, Some("60")));
}

fn paused(channel: Channel) -> Pause<Channel, Request<Body>, Response<Body>> {
    PauseLayer::new().wait_at_most(Duration::from_secs(5)).layer(channel)
}

#[tokio::test]
async fn a_paused_channel_sends_no_call_after_a_refusal() {
    super::shows("grpc.md", include_str!("grpc.rs"), &["fn paused"]);
    let limit = RateLimitLayer::new([Policy::new("one", Quota::per_day(1)).by(global())]);
    let address = serve(Router::new().layer(limit)).await;
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let client = paused(channel);
    let call = || {
        let call =
            Request::post(format!("http://{address}/a.B/C")).header("content-type", "application/grpc");
        client.clone().oneshot(call.body(Body::empty()).unwrap())
    };
    let mut status = Vec::new();
    for _ in 0..2 {
        status.push(field(&call().await.unwrap(), "grpc-status").map(str::to_owned));
    }
    assert_eq!(status[1].as_deref(), Some("8"), "{status:?}");
    // A pause is an hour at most, unless the client says otherwise.
    assert!(matches!(call().await, Err(CallError::Paused(left)) if left > Duration::from_secs(3_500)));
}
