//! The body of a refused request, over HTTP/1.1: the answer arrives, and the connection is in order
//! or closed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::extract::{global, header};
use tollgate::{MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_tests::{Client, Connection, Failing, Fault, serve};

use crate::axum_server::{hello, two_a_day};

fn two() -> Policy {
    Policy::new("two", Quota::per_day(2))
}

/// The status of a request without a key, which is refused from the first.
const REFUSED: u16 = 400;

async fn server(layer: RateLimitLayer) -> SocketAddr {
    serve(hello().layer(layer)).await
}

fn refuse_all() -> RateLimitLayer {
    two_a_day(header("x-key"))
}

/// It drains bodies for longer than a busy machine delays a client.
fn refuse_patiently() -> RateLimitLayer {
    refuse_all().drain_body(1 << 20, Duration::from_secs(60))
}

fn head(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: test\r\n{fields}\r\n\r\n")
}

/// The head first, and the body only after the answer: a server that dropped the body has closed by
/// then.
#[tokio::test]
async fn a_refused_body_within_the_bound_keeps_the_connection() {
    let mut client = Client::connect(server(refuse_patiently()).await).await;
    for _ in 0..3 {
        client.send(head("content-length: 300000")).await;
        let answer = client.answer_to("POST").await;
        assert_eq!((answer.status, answer.field("connection")), (REFUSED, None));
        client.send("x".repeat(300_000)).await;
    }
    assert_eq!(client.get("/", &["x-key: ada"]).await.status, 200);
}

#[tokio::test]
async fn each_kind_of_refusal_drains_the_body() {
    let full = two_a_day(global());
    let costly = RateLimitLayer::new([two().by(global()).cost(|_| 3)]);
    let custom = refuse_all().answer(|_, _| "no");
    let failing = Failing::new(MemoryStore::new(), Connection::Fails(Fault::Unreachable));
    let closed = RateLimitLayer::new([two().by(global())]).store(failing.fail_closed());
    let mut servers = vec![
        (server(refuse_all()).await, 400),
        (server(costly).await, 422),
        (server(custom).await, 200),
        (serve(hello().layer(closed)).await, 503),
    ];
    let full = server(full).await;
    for _ in 0..2 {
        assert_eq!(Client::connect(full).await.get("/", &[]).await.status, 200);
    }
    servers.push((full, 429));
    for (server, status) in servers {
        let mut client = Client::connect(server).await;
        for _ in 0..2 {
            client.send(head("content-length: 300000")).await;
            assert_eq!(client.answer_to("POST").await.status, status);
            client.send("x".repeat(300_000)).await;
        }
    }
}

/// A chunked body may be longer than the bound, so the connection ends with it.
#[tokio::test]
async fn a_refused_chunked_body_is_read_and_the_connection_closed() {
    let mut client = Client::connect(server(refuse_all()).await).await;
    client.send(head("transfer-encoding: chunked")).await;
    let answer = client.answer_to("POST").await;
    assert_eq!((answer.status, answer.field("connection")), (REFUSED, Some("close")));
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    client.send(chunk.repeat(9) + "0\r\n\r\n").await;
    assert!(client.is_closed_within(Duration::from_secs(10)).await);
}

/// The client reads only after it has sent all that the server accepts, like a client without
/// threads.
#[tokio::test]
async fn a_refused_body_beyond_the_bound_gets_its_answer_then_closes() {
    const LENGTH: usize = 64 << 20;
    let address = server(refuse_all()).await;
    for fields in [format!("content-length: {LENGTH}"), "transfer-encoding: chunked".to_owned()] {
        let mut client = Client::connect(address).await;
        let mut bytes = head(&fields).into_bytes();
        bytes.extend(format!("{LENGTH:x}\r\n").as_bytes());
        bytes.resize(bytes.len() + LENGTH, b'x');
        client.send_meanwhile(bytes);
        sleep(Duration::from_millis(300)).await;
        let answer = client.answer_to("POST").await;
        assert_eq!((answer.status, answer.field("connection")), (REFUSED, Some("close")), "{fields}");
        assert!(client.is_closed_within(Duration::from_secs(10)).await, "{fields}");
    }
}

#[tokio::test]
async fn a_refused_body_that_never_arrives_is_awaited_briefly() {
    let mut client = Client::connect(server(refuse_all()).await).await;
    client.send(head("content-length: 10")).await;
    assert_eq!(client.answer_to("POST").await.status, REFUSED);
    assert!(client.is_closed_within(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn a_client_that_waits_for_100_is_refused_without_it() {
    let mut client = Client::connect(server(refuse_all()).await).await;
    client.send(head("content-length: 10\r\nexpect: 100-continue")).await;
    let answer = client.answer_to("POST").await;
    assert_eq!((answer.status, answer.field("connection")), (REFUSED, Some("close")));
    assert!(client.is_closed_within(Duration::from_secs(10)).await, "without another answer");
}

/// Like a client that gets no `100 Continue` in time.
#[tokio::test]
async fn a_client_that_does_not_wait_for_100_gets_its_answer() {
    let address = server(refuse_patiently()).await;
    for _ in 0..20 {
        let mut client = Client::connect(address).await;
        client.send(head("content-length: 100000\r\nexpect: 100-continue")).await;
        for _ in 0..10 {
            client.send("x".repeat(10_000)).await;
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.answer_to("POST").await.status, REFUSED);
    }
}

#[tokio::test]
async fn the_bound_of_a_layer_can_be_changed() {
    let no_drain = refuse_all().drain_body(0, Duration::from_secs(60));
    let mut client = Client::connect(server(no_drain).await).await;
    client.send(head("content-length: 10")).await;
    assert_eq!(client.answer_to("POST").await.status, REFUSED);
    assert!(client.is_closed_within(Duration::from_secs(30)).await, "at once");

    let long = refuse_all().drain_body(8 << 20, Duration::from_secs(30));
    let mut client = Client::connect(server(long).await).await;
    client.send(head(&format!("content-length: {}", 4 << 20))).await;
    let answer = client.answer_to("POST").await;
    assert_eq!((answer.status, answer.field("connection")), (REFUSED, None));
    sleep(Duration::from_millis(1_500)).await;
    client.send("x".repeat(4 << 20)).await;
    assert_eq!(client.get("/", &["x-key: ada"]).await.status, 200);
}

/// A client without threads: it reads only after it has sent everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_after_sending_a_megabyte_gets_its_answer() {
    let address = server(refuse_all()).await;
    for _ in 0..100 {
        let mut client = Client::connect(address).await;
        client.send(head("content-length: 1000000")).await;
        for _ in 0..100 {
            client.send("x".repeat(10_000)).await;
        }
        assert_eq!(client.answer_to("POST").await.status, REFUSED);
    }
}

/// The stream stays open until its body has been read: no reset follows the answer.
#[tokio::test]
async fn an_http2_client_sends_the_whole_refused_body() {
    // Within a time that a busy machine does not need.
    let address = server(refuse_all().drain_body(1 << 20, Duration::from_secs(60))).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // The refusal of a gRPC call has no body, so it ends the stream by its head.
    for content_type in ["text/plain", "application/grpc"].repeat(15) {
        let (chunks, body) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
        let body = StreamBody::new(ReceiverStream::new(body));
        let request = Request::post(format!("http://{address}/")).header("content-type", content_type);
        let response = sender.send_request(request.body(body).unwrap()).await.expect("an answer");
        let refused = response.status() == 400 || response.headers()["grpc-status"] == "3";
        assert!(refused, "{response:?}");
        response.into_body().collect().await.expect("a whole answer");
        for _ in 0..20 {
            let chunk = Frame::data(Bytes::from(vec![b'x'; 10_000]));
            chunks.send(Ok(chunk)).await.expect("the stream was not reset");
            sleep(Duration::from_millis(2)).await;
        }
    }
}
