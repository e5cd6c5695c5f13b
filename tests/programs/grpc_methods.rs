//! gRPC services with a limit for each caller and method, and a client with a limit of its own.

use std::net::SocketAddr;

use tollgate::calls::{CallError, CallLimitLayer};
use tollgate::extract::{PeerIp, header};
use tollgate::{Head, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{clock, store};
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tower::{Service, ServiceBuilder, ServiceExt};

/// A server without services, which answers each call that passes with 12 (`UNIMPLEMENTED`).
async fn serve<S: tollgate::store::Store<Error: tollgate::store::NeverFails>>(
    layer: RateLimitLayer<S>,
) -> SocketAddr {
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_routes(Routes::default());
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

fn call(method: &str, user: &str) -> http::Request<tonic::body::Body> {
    http::Request::post(method)
        .header("content-type", "application/grpc")
        .header("x-user", user)
        .body(tonic::body::Body::empty())
        .unwrap()
}

/// The status of a call: 12 if it passed, 8 if the limit refused it.
async fn status(channel: &mut Channel, method: &str, user: &str) -> String {
    let response = channel.ready().await.unwrap().call(call(method, user)).await.unwrap();
    response.headers()["grpc-status"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_caller_has_a_quota_for_each_method() {
    // The path of a gRPC call is its service and method.
    let method = |head: &Head<'_>| Some(Key::from(head.uri().path()));
    let rule = Policy::new("calls", Quota::per_minute(1)).by((header("x-user"), method));
    let address = serve(
        RateLimitLayer::new([rule, Policy::new("address", Quota::per_minute(100)).by(PeerIp::new())])
            .store(store(&clock())),
    )
    .await;
    let mut channel = Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap();
    for (method, user, expected) in [
        ("/a.A/One", "ada", "12"),
        ("/a.A/One", "ada", "8"),
        ("/a.A/Two", "ada", "12"),
        ("/a.A/One", "bob", "12"),
    ] {
        assert_eq!(status(&mut channel, method, user).await, expected, "{method} of {user}");
    }
}

#[tokio::test]
async fn a_channel_refuses_calls_beyond_its_own_limit() {
    let address = serve(RateLimitLayer::per_ip(Quota::per_minute(100))).await;
    let channel = Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap();
    let limiter = Limiter::new([Policy::new("calls", Quota::per_minute(2))]).store(store(&clock()));
    let layer = CallLimitLayer::new(limiter, |_: &http::Request<tonic::body::Body>| Some(Key::global()));
    let mut limited = ServiceBuilder::new().layer(layer).service(channel);
    for _ in 0..2 {
        let response = limited.ready().await.unwrap().call(call("/a.A/One", "ada")).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "12");
    }
    let refused = limited.ready().await.unwrap().call(call("/a.A/One", "ada")).await;
    assert!(matches!(refused, Err(CallError::Denied(_))), "{refused:?}");
}
