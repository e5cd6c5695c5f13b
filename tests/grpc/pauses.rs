//! A tonic client that obeys the pauses of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::calls::CallError;
use tollgate::pause::PauseLayer;
use tollgate::{Quota, RateLimitLayer};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tower::ServiceBuilder;

use crate::grpc::echo::Echo;
use crate::grpc::echo::proto::Text;
use crate::grpc::echo::proto::echo_client::EchoClient;
use crate::grpc::echo::text;
use crate::grpc::serve;

/// A client around a server with that limit, and how many calls the server saw.
async fn calls(limit: Quota, patience: Duration) -> (impl AsyncFn() -> Result<(), Status>, Arc<AtomicU32>) {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let address = serve(RateLimitLayer::per_ip(limit), Echo::default());
    let origin = http::Uri::try_from(format!("http://{address}")).expect("a URI");
    let channel = Channel::builder(origin.clone()).connect().await.expect("a connection");
    let channel = ServiceBuilder::new()
        .layer(PauseLayer::new().wait_at_most(patience))
        .map_request(move |request: http::Request<tonic::body::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            request
        })
        .service(channel);
    let client = EchoClient::with_origin(channel, origin);
    let call = async move || {
        client.clone().once(Request::new(text("hello"))).await.map(|_: tonic::Response<Text>| ())
    };
    (call, sent)
}

#[tokio::test]
async fn a_call_waits_until_the_pushback_of_another_is_over() {
    let window = Duration::from_secs(6);
    let (call, sent) = calls(Quota::new(1, window), Duration::from_secs(10)).await;
    let start = Instant::now();
    call().await.unwrap();
    assert_eq!(call().await.unwrap_err().code(), Code::ResourceExhausted);
    call().await.unwrap();
    // A timer may be a millisecond early for the clock of the limit.
    assert!(start.elapsed() + Duration::from_millis(5) >= window, "{:?}", start.elapsed());
    assert_eq!(sent.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_call_that_would_wait_for_too_long_is_not_sent() {
    let (call, sent) = calls(Quota::per_hour(1), Duration::from_secs(5)).await;
    call().await.unwrap();
    assert_eq!(call().await.unwrap_err().code(), Code::ResourceExhausted);
    let error = call().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    let paused = source.downcast_ref::<CallError<tonic::transport::Error>>().unwrap();
    assert!(matches!(paused, CallError::Paused(left) if left.as_secs() > 3_500), "{paused}");
    assert_eq!(sent.load(Ordering::Relaxed), 2);
}
