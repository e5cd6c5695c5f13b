//! The answers to gRPC and Connect clients, and how a client reads them.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tollgate::extract::global;
use tollgate::{Key, Limiter, PolicyExt, RateLimitLayer};
use tollgate_tests::{clock, field, per_minute, store};
use tower::{ServiceBuilder, ServiceExt};

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

/// Returns `None` if waiting does not help.
fn wait(status: &tonic::Status) -> Option<Duration> {
    let pushback = status.metadata().get("grpc-retry-pushback-ms")?.to_str().ok()?;
    Some(Duration::from_millis(pushback.parse().ok()?))
}

#[tokio::test]
async fn a_client_reads_the_wait_from_the_status() {
    super::shows("grpc.md", include_str!("grpc.rs"), &["fn wait"]);
    let limiter = Limiter::new([tollgate::Policy::new("one", tollgate::Quota::per_day(1))]);
    let ask = async |cost| limiter.check(&Key::global(), cost).await;
    assert!(wait(&ask(2).await.unwrap_err().into()).is_none());
    assert!(ask(1).await.is_ok());
    assert!(wait(&ask(1).await.unwrap_err().into()).is_some_and(|wait| wait > Duration::from_secs(80_000)));
}
