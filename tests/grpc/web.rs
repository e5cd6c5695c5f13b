//! gRPC-Web, with tonic's layer on both sides.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use tollgate::RateLimitLayer;
use tollgate_tests::{Client, clock, per_user, store};
use tonic::transport::Server;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::grpc::echo::proto::echo_client::EchoClient;
use crate::grpc::echo::proto::echo_server::EchoServer;
use crate::grpc::echo::{Echo, asking, text};
use crate::grpc::{incoming, pushback};

fn layer() -> RateLimitLayer {
    RateLimitLayer::new([per_user("p", 1)]).store(store(&clock()))
}

fn inside(layer: RateLimitLayer) -> SocketAddr {
    let (incoming, address) = incoming();
    let mut server = Server::builder().accept_http1(true).layer(GrpcWebLayer::new()).layer(layer);
    tokio::spawn(server.add_service(EchoServer::new(Echo::default())).serve_with_incoming(incoming));
    address
}

fn outside(layer: RateLimitLayer) -> SocketAddr {
    let (incoming, address) = incoming();
    let mut server = Server::builder().accept_http1(true).layer(layer).layer(GrpcWebLayer::new());
    tokio::spawn(server.add_service(EchoServer::new(Echo::default())).serve_with_incoming(incoming));
    address
}

async fn call(address: SocketAddr, user: &str) -> Result<String, Status> {
    let http = Http::builder(TokioExecutor::new()).build_http();
    let service = ServiceBuilder::new().layer(GrpcWebClientLayer::new()).service(http);
    let origin = format!("http://{address}").try_into().expect("a URI");
    let reply = EchoClient::with_origin(service, origin).once(asking(user, text("hello"))).await?;
    Ok(reply.into_inner().text)
}

#[tokio::test]
async fn a_grpc_web_client_reads_denials_inside_and_outside_translation() {
    for address in [inside(layer()), outside(layer())] {
        assert_eq!(call(address, "ada").await.unwrap(), "hello");
        let status = call(address, "ada").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "quota exceeded: p"));
        assert_eq!(pushback(&status), 60_000);
        assert_eq!(status.get_details_quota_failure().unwrap().violations[0].subject, "p");
        assert_eq!(call(address, "bob").await.unwrap(), "hello");
    }
}

/// The trailers of gRPC-Web are in the body, if the limit is outside of the translation.
#[tokio::test]
async fn the_status_of_a_call_settles_inside_and_outside_of_translation() {
    let failures = || {
        let failures = per_user("p", 1).count_if(|response| response.grpc_status() != Some(0));
        RateLimitLayer::new([failures]).store(store(&clock()))
    };
    for address in [inside(failures()), outside(failures())] {
        for _ in 0..5 {
            assert_eq!(call(address, "ada").await.unwrap(), "hello");
            let mut browser = Client::connect(address).await;
            browser.send(&as_a_browser()).await;
            let answer = browser.answer_to("POST").await;
            assert_eq!((answer.status, answer.field("grpc-status")), (200, None), "{answer:?}");
        }
    }
}

/// How many of 20 calls pass, whose answers have this body in chunks that end at these places.
/// Those that fail count.
async fn calls_that_pass(content_type: &'static str, body: &[u8], ends: &[usize], limit: u64) -> usize {
    let failures = per_user("p", limit).count_if(|response| response.grpc_status() != Some(0));
    let layer = RateLimitLayer::new([failures]).store(store(&clock()));
    let starts = [0].iter().chain(ends).copied();
    let chunks: Vec<Bytes> = starts
        .zip(ends.iter().copied().chain([body.len()]))
        .map(|(start, end)| Bytes::copy_from_slice(&body[start..end]))
        .collect();
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let frames = chunks.clone().into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        let body = StreamBody::new(tokio_stream::iter(frames));
        let response = Response::builder().header("content-type", content_type).body(body);
        async { Ok::<_, Infallible>(response.expect("a response")) }
    }));
    let mut passed = 0;
    for _ in 0..20 {
        let request = Request::post("/echo.Echo/Once").header("x-user", "ada");
        let request = request.header("content-type", content_type).body(String::new()).expect("a request");
        let response = service.clone().oneshot(request).await.unwrap();
        passed += usize::from(!response.headers().contains_key("grpc-status"));
        let _ = response.into_body().collect().await;
    }
    passed
}

fn frame(flags: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short frame").to_be_bytes();
    [&[flags], &length[..], content].concat()
}

#[tokio::test]
async fn trailers_are_found_wherever_chunks_begin() {
    let body = [frame(0, b"hello"), frame(0x80, b"grpc-status:0\r\n")].concat();
    for at in 0..=body.len() {
        assert_eq!(calls_that_pass("application/grpc-web+proto", &body, &[at], 1).await, 20, "{at}");
    }
    // The same in base64, in two pieces.
    let text = b"AAAAAAVoZQ==bGxvgAAAAA9ncnBjLXN0YXR1czowDQo=";
    for at in 0..=text.len() {
        let passed = calls_that_pass("application/grpc-web-text+proto", text, &[at], 1).await;
        assert_eq!(passed, 20, "{at}");
    }
}

#[tokio::test]
async fn content_that_a_caller_chose_is_not_taken_for_trailers() {
    let body = [frame(0, &frame(0x80, b"grpc-status:0\r\n")), frame(0x80, b"grpc-status:13\r\n")].concat();
    // The content is in a chunk of its own, which is all that a caller needs.
    let passed = calls_that_pass("application/grpc-web+proto", &body, &[5, body.len() - 21], 5).await;
    assert_eq!(passed, 5);
}

/// A call as a browser sends it: base64 over HTTP/1.1.
fn as_a_browser() -> String {
    // A message with the text "hi", after one byte of flags and four of length.
    const MESSAGE: &str = "AAAAAAQKAmhp";
    format!(
        "POST /echo.Echo/Once HTTP/1.1\r\nhost: test\r\nx-user: ada\r\n\
         content-type: application/grpc-web-text+proto\r\naccept: application/grpc-web-text+proto\r\n\
         content-length: {}\r\n\r\n{MESSAGE}",
        MESSAGE.len()
    )
}

#[tokio::test]
async fn a_browser_gets_the_content_type_of_its_request() {
    for address in [inside(layer()), outside(layer())] {
        let mut client = Client::connect(address).await;
        let ask = as_a_browser();
        client.send(&ask).await;
        let passed = client.answer_to("POST").await;
        assert_eq!(passed.status, 200);
        assert_eq!(passed.field("ratelimit"), Some("\"p\";r=0;t=60"));
        let mut client = Client::connect(address).await;
        client.send(&ask).await;
        let denied = client.answer_to("POST").await;
        assert_eq!((denied.status, denied.field("grpc-status")), (200, Some("8")));
        assert_eq!(denied.field("content-type"), Some("application/grpc-web-text+proto"));
        assert_eq!(denied.field("grpc-message"), Some("quota exceeded: p"));
    }
}
