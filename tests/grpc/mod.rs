//! gRPC over real sockets: tonic's client, against tonic's server and axum's.

mod answers;
mod charges;
mod connect;
mod deadlines;
mod denials;
mod echo;
mod mounts;
mod pauses;
mod streams;
mod web;

use std::net::SocketAddr;

use tollgate::RateLimitLayer;
use tollgate::store::{NeverFails, Store};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Response, Status};

use echo::proto::Text;
use echo::proto::echo_client::EchoClient;
use echo::proto::echo_server::EchoServer;
use echo::{Echo, asking, text};

/// A listener on a free port.
fn incoming() -> (TcpIncoming, SocketAddr) {
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let address = incoming.local_addr().expect("an address");
    (incoming, address)
}

/// A tonic server with that layer around all of its services, for as long as the runtime lives.
fn serve<S>(layer: RateLimitLayer<S>, echo: Echo) -> SocketAddr
where
    S: Store<Error: NeverFails>,
{
    let (incoming, address) = incoming();
    let server = Server::builder().layer(layer).add_service(EchoServer::new(echo));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn connect(address: SocketAddr) -> EchoClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("a URL");
    EchoClient::new(endpoint.connect().await.expect("a connection"))
}

/// The client of a server with that layer.
async fn client<S>(layer: RateLimitLayer<S>) -> EchoClient<Channel>
where
    S: Store<Error: NeverFails>,
{
    connect(serve(layer, Echo::default())).await
}

/// The result of a call of that user.
async fn call(client: &mut EchoClient<Channel>, user: &str) -> Result<Response<Text>, Status> {
    client.once(asking(user, text("hello"))).await
}

async fn code(client: &mut EchoClient<Channel>, user: &str) -> Code {
    call(client, user).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// The status of a call that does not pass.
async fn refused(client: &mut EchoClient<Channel>, user: &str) -> Status {
    call(client, user).await.expect_err("it does not pass")
}

/// `grpc-retry-pushback-ms`.
fn pushback(status: &Status) -> i64 {
    let pushback = status.metadata().get("grpc-retry-pushback-ms").expect("a pushback");
    pushback.to_str().expect("a text").parse().expect("a number")
}
