//! Streams of HTTP/2 that their client resets while they hold slots.

use std::convert::Infallible;
use std::future::pending;

use axum::body::Body;
use axum::routing::get;
use axum::{Router, response::Response};
use http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio_stream::StreamExt;
use tollgate::extract::global;
use tollgate::{Head, Policy, PolicyExt, RateLimitLayer};
use tollgate_tests::serve;

const SLOTS: u64 = 4;

async fn endless() -> Response {
    let first = tokio_stream::iter([Ok::<_, Infallible>("first")]);
    Response::new(Body::from_stream(first.chain(tokio_stream::pending())))
}

/// Before the response begins, and in the middle of its body.
#[tokio::test]
async fn each_stream_that_is_reset_frees_its_slot() {
    let layer = RateLimitLayer::new([Policy::in_flight("slots", SLOTS).by(global())]);
    let limiter = layer.limiter();
    let routes = Router::new().route("/silent", get(pending::<String>)).route("/endless", get(endless));
    let address = serve(routes.layer(layer)).await;
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = |path| Request::get(format!("http://{address}{path}")).body(Body::empty()).unwrap();
    let until_left = async |slots| {
        let head = request("/");
        while limiter.look(&Head::from(&head)).await.unwrap().statuses()[0].remaining() != slots {
            yield_now().await;
        }
    };
    for _ in 0..50 {
        let asked = ["/silent"; 4].map(|path| {
            let (mut sender, request) = (sender.clone(), request(path));
            tokio::spawn(async move { sender.send_request(request).await })
        });
        until_left(0).await;
        asked.iter().for_each(tokio::task::JoinHandle::abort);
        until_left(SLOTS).await;

        let mut bodies = Vec::new();
        for _ in 0..SLOTS {
            let mut response = sender.clone().send_request(request("/endless")).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
            bodies.push(response);
        }
        until_left(0).await;
        drop(bodies);
        until_left(SLOTS).await;
    }
}
