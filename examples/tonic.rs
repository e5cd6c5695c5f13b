//! A tonic server that limits each IP address. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example tonic`, then, from this directory, a few times: `grpcurl
//! -plaintext -import-path proto -proto helloworld.proto 127.0.0.1:3000
//! helloworld.Greeter/SayHello`

use std::error::Error;

use tollgate::{Quota, RateLimitLayer};
use tollgate_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use tollgate_examples::helloworld::{HelloReply, HelloRequest};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

struct Hello;

#[tonic::async_trait]
impl Greeter for Hello {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let message = format!("hello {}", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For each IP address 20 calls at once, and 100 a minute after that. Other calls fail with
    // `RESOURCE_EXHAUSTED` and the time to wait.
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100).burst(20));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let incoming = TcpIncoming::bind(address.parse()?)?;
    println!("listening on http://{}", incoming.local_addr()?);

    Server::builder()
        // Limits all services of the server. To limit one service, put the layer around it:
        // `.add_service(ServiceBuilder::new().layer(limit).service(GreeterServer::new(Hello)))`.
        .layer(limit)
        .add_service(GreeterServer::new(Hello))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
