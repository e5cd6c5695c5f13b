//! Any body passes through unchanged.

use std::convert::Infallible;
use std::future::ready;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Either, Empty, Full, Limited, StreamBody};
use hyper::body::Incoming;
use tollgate::layer::ResponseBody;
use tollgate_tests::{call, clock, per_user, request};
use tower::{Layer, Service, service_fn};

use crate::service::layer;

/// Compiles if the layer makes a service over these bodies, and its responses have the same data
/// and errors.
fn is_limited<Req, Res>()
where
    Req: http_body::Body + Send + 'static,
    Res: http_body::Body<Data = Bytes> + Send + 'static,
{
    fn is_service<Svc, Req, Res, Out>(_: Svc)
    where
        Svc: Service<Request<Req>, Response = Response<Out>, Error = Infallible, Future: Send> + Clone + Send,
        Out: http_body::Body<Data = Res::Data, Error = Res::Error> + Send,
        Res: http_body::Body,
    {
    }
    let inner = service_fn(|_: Request<Req>| std::future::pending::<Result<Response<Res>, Infallible>>());
    is_service::<_, Req, Res, _>(layer(&clock(), [per_user("p", 1)]).layer(inner));
}

#[test]
fn the_bodies_of_axum_tonic_hyper_and_http_body_util_need_no_conversion() {
    is_limited::<Body, Body>();
    is_limited::<tonic::body::Body, tonic::body::Body>();
    is_limited::<Body, tonic::body::Body>();
    is_limited::<Incoming, tonic::body::Body>();
    is_limited::<Incoming, Full<Bytes>>();
    is_limited::<Incoming, Incoming>();
    is_limited::<Full<Bytes>, Empty<Bytes>>();
    is_limited::<String, BoxBody<Bytes, std::io::Error>>();
    is_limited::<BoxBody<Bytes, Infallible>, UnsyncBoxBody<Bytes, axum::Error>>();
    is_limited::<Limited<Incoming>, Either<Full<Bytes>, Empty<Bytes>>>();
    is_limited::<Body, Limited<Full<Bytes>>>();
    // Layers stack: one layer's response body is inside another's.
    is_limited::<Body, ResponseBody<ResponseBody<Full<Bytes>>>>();
}

/// Without a server, a response needs no HTTP body.
#[tokio::test]
async fn responses_may_be_of_any_type() {
    let inner = service_fn(|request: Request<String>| {
        ready(Ok::<_, Infallible>(Response::new(request.into_body().len())))
    });
    let mut service = layer(&clock(), [per_user("p", 1)]).layer(inner);
    let response = call(&mut service, request("ada").map(|_| "hello".to_owned())).await;
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn frames_and_trailers_pass_through_as_they_are() {
    let inner = service_fn(|_: Request<Body>| {
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]);
        let frames = [
            Frame::data(Bytes::from("one")),
            Frame::data(Bytes::new()),
            Frame::data(Bytes::from("two")),
            Frame::trailers(trailers),
        ];
        let body = StreamBody::new(Frames(frames.into_iter()));
        ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let mut service = layer(&clock(), [per_user("p", 1)]).layer(inner);
    let mut body = call(&mut service, request("ada")).await.into_body();
    assert!(!body.is_end_stream() && body.size_hint().exact().is_none());
    for expected in ["one", "", "two"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
    }
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert!(body.frame().await.is_none());
}

/// An iterator as a stream.
struct Frames<I>(I);

impl<I: Iterator<Item = Frame<Bytes>> + Unpin> futures_core::Stream for Frames<I> {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.next().map(Ok))
    }
}

#[tokio::test]
async fn errors_of_a_body_pass_through() {
    let inner = service_fn(|_: Request<Body>| {
        let body = Full::new(Bytes::from("x")).map_frame(|frame| frame);
        let failing = Limited::new(body, 0);
        ready(Ok::<_, Infallible>(Response::new(failing)))
    });
    let mut service = layer(&clock(), [per_user("p", 1)]).layer(inner);
    let mut body = call(&mut service, request("ada")).await.into_body();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "length limit exceeded");
}

#[tokio::test]
async fn the_size_of_a_body_is_known_where_the_inner_one_is() {
    let inner = service_fn(|_: Request<Body>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))))
    });
    let mut service = layer(&clock(), [per_user("p", 1)]).layer(inner);
    let passed = call(&mut service, request("ada")).await.into_body();
    assert_eq!((passed.size_hint().exact(), passed.is_end_stream()), (Some(5), false));
    let mut denied = call(&mut service, request("ada")).await.into_body();
    let length = denied.size_hint().exact().unwrap();
    let document = denied.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(document.len() as u64, length);
    assert!(denied.is_end_stream() && denied.size_hint().exact() == Some(0));
    assert!(denied.frame().await.is_none());
}

/// A response without a body must not become one with an empty frame.
#[tokio::test]
async fn an_empty_answer_has_no_frame() {
    let layer = layer(&clock(), [per_user("p", 1)]).answer(|_, _| "");
    let inner = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let mut service = layer.layer(inner);
    call(&mut service, request("ada")).await;
    let mut denied = call(&mut service, request("ada")).await.into_body();
    assert!(denied.is_end_stream());
    assert!(denied.frame().await.is_none());
}
