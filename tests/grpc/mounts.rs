//! Places where a layer can stand.

use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;
use tollgate::extract::{PeerAddr, global};
use tollgate::{Algorithm, Head, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, clock, per_user, store};
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::ServiceBuilder;

use crate::grpc::echo::Echo;
use crate::grpc::echo::proto::echo_server::EchoServer;
use crate::grpc::echo::proto::other_server::OtherServer;
use crate::grpc::{client, code, connect, incoming, refused};

/// Four a day for all callers together: no test lasts until one comes back.
fn four() -> RateLimitLayer {
    let policy = Policy::new("four", Quota::per_day(4)).with_algorithm(Algorithm::FIXED_WINDOW);
    RateLimitLayer::new([policy.by(global())])
}

async fn statuses(client: &mut Client, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(client.get("/", &[]).await.status);
    }
    statuses
}

#[tokio::test]
async fn http_and_grpc_on_one_port_share_a_quota() {
    let http = Router::new().route("/", get(|| async { "hello" }));
    let echo = Echo::default();
    let app = Routes::from(http).add_service(EchoServer::new(echo.clone())).into_axum_router().layer(four());
    let address = tollgate_tests::serve(app).await;
    let (mut http, mut grpc) = (Client::connect(address).await, connect(address).await);
    assert_eq!(statuses(&mut http, 1).await, [200]);
    assert_eq!(code(&mut grpc, "ada").await, Code::Ok);
    assert_eq!(statuses(&mut http, 1).await, [200]);
    assert_eq!(code(&mut grpc, "ada").await, Code::Ok);
    let answer = http.get("/", &[]).await;
    assert_eq!((answer.status, answer.field("content-type")), (429, Some("application/problem+json")));
    assert_eq!(refused(&mut grpc, "ada").await.code(), Code::ResourceExhausted);
    assert_eq!(echo.calls(), 2);
}

#[tokio::test]
async fn tonic_routes_merged_into_a_limited_router_are_limited() {
    let services = Routes::new(EchoServer::new(Echo::default())).into_axum_router();
    let app = Router::new().route("/", get(|| async { "hello" })).merge(services).layer(four());
    let address = tollgate_tests::serve(app).await;
    let mut grpc = connect(address).await;
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::Ok, Code::ResourceExhausted] {
        assert_eq!(code(&mut grpc, "ada").await, expected);
    }
    assert_eq!(statuses(&mut Client::connect(address).await, 1).await, [429]);
}

/// The same layer on two servers.
#[tokio::test]
async fn a_server_of_axum_and_one_of_tonic_share_the_quota_of_one_layer() {
    let layer = four();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer.clone());
    let mut http = Client::connect(tollgate_tests::serve(app).await).await;
    let mut grpc = client(layer).await;
    assert_eq!(statuses(&mut http, 3).await, [200, 200, 200]);
    assert_eq!(code(&mut grpc, "ada").await, Code::Ok);
    assert_eq!(code(&mut grpc, "ada").await, Code::ResourceExhausted);
    assert_eq!(statuses(&mut http, 1).await, [429]);
}

#[tokio::test]
async fn a_layer_around_one_service_limits_it_and_keeps_its_name() {
    let (limited, free) = (Echo::default(), Echo::default());
    let layer = RateLimitLayer::new([per_user("p", 1)]).store(store(&clock()));
    let service = ServiceBuilder::new().layer(layer).service(EchoServer::new(limited.clone()));
    let (incoming, address) = incoming();
    let server = Server::builder().add_service(service).add_service(OtherServer::new(free.clone()));
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = connect(address).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    assert_eq!(code(&mut client, "ada").await, Code::ResourceExhausted);
    assert_eq!(code(&mut client, "bob").await, Code::Ok);
    assert_eq!(limited.calls(), 2);
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}")).unwrap();
    let mut other = crate::grpc::echo::proto::other_client::OtherClient::new(channel.connect_lazy());
    for _ in 0..3 {
        let reply = other.once(crate::grpc::echo::text("hello")).await.unwrap();
        assert!(reply.metadata().get("ratelimit").is_none());
    }
    assert_eq!(free.calls(), 3);
}

#[tokio::test]
async fn tower_layers_can_stand_on_either_side_of_the_limit() {
    let layer = RateLimitLayer::new([per_user("p", 2)]).store(store(&clock()));
    let (incoming, address) = incoming();
    let server = Server::builder()
        .layer(ServiceBuilder::new().concurrency_limit(8).layer(layer).concurrency_limit(1).into_inner())
        .add_service(EchoServer::new(Echo::default()));
    tokio::spawn(server.serve_with_incoming(incoming));
    let client = connect(address).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { code(&mut client, "ada").await })
        })
        .collect();
    let mut passed = 0;
    for call in calls {
        match call.await.unwrap() {
            Code::Ok => passed += 1,
            other => assert_eq!(other, Code::ResourceExhausted),
        }
    }
    assert_eq!(passed, 2);
}

#[tokio::test]
async fn each_peer_of_a_tonic_server_is_limited_by_its_address() {
    let layer = RateLimitLayer::per_ip(Quota::per_day(2));
    let limiter = layer.limiter();
    let mut client = client(layer).await;
    for expected in [Code::Ok, Code::Ok, Code::ResourceExhausted] {
        assert_eq!(code(&mut client, "ada").await, expected);
    }
    let left = async |address: [u8; 4]| {
        let peer = PeerAddr((Ipv4Addr::from(address), 4_000).into());
        let request = http::Request::builder().extension(peer).body(()).unwrap();
        limiter.look(&Head::from(&request)).await.unwrap().statuses()[0].remaining()
    };
    assert_eq!((left([127, 0, 0, 1]).await, left([127, 0, 0, 2]).await), (0, 2));
}
