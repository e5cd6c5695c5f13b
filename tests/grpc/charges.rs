//! Calls that are charged by how they end.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tollgate::PolicyExt;
use tollgate::charge::ResponseHead;
use tollgate::{Algorithm, Head, RateLimitLayer};
use tollgate_tests::{a_minute, user};
use tonic::Code;
use tower::{Layer, ServiceExt, service_fn};

use crate::grpc::{call, client};

fn layer(limit: u64, counts: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static) -> RateLimitLayer {
    RateLimitLayer::new(a_minute("calls", Algorithm::SLIDING_LOG, limit).by(user()).count_if(counts))
}

/// tonic sends the status of a message in the trailers behind it.
#[tokio::test]
async fn the_status_in_the_trailers_decides() {
    let mut succeeds = client(layer(2, |response| response.grpc_status() == Some(0))).await;
    for _ in 0..2 {
        call(&mut succeeds, "ada").await.unwrap();
    }
    assert_eq!(call(&mut succeeds, "ada").await.unwrap_err().code(), Code::ResourceExhausted);

    let mut fails = client(layer(1, |response| response.grpc_status() != Some(0))).await;
    for _ in 0..10 {
        call(&mut fails, "ada").await.unwrap();
    }
}

/// The response of a call that sends a message, and then fails.
async fn fails_late(
    _: Request<Full<Bytes>>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("16"))]);
    let frames = [Frame::data(Bytes::from_static(b"a message")), Frame::trailers(trailers)];
    let body = StreamBody::new(tokio_stream::iter(frames.map(Ok::<_, Infallible>)));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

fn ada() -> Request<Full<Bytes>> {
    Request::post("/echo.Echo/Words").header("x-user", "ada").body(Full::default()).unwrap()
}

#[tokio::test]
async fn a_call_whose_trailers_never_come_stays_charged() {
    let layer = layer(10, |response| response.trailers().is_none());
    let left = async || layer.limiter().look(&Head::from(&ada())).await.unwrap().statuses()[0].remaining();
    let service = layer.layer(service_fn(fails_late));
    let response = service.clone().oneshot(ada()).await.unwrap();
    assert_eq!(left().await, 9, "it is not known yet");
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "16", "they arrive unchanged");
    assert_eq!((collected.to_bytes(), left().await), (Bytes::from_static(b"a message"), 10));

    drop(service.oneshot(ada()).await.unwrap());
    assert_eq!(left().await, 9, "the client has left");
}
