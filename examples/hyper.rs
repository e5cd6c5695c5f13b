//! A server that uses only hyper and limits each IP address. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example hyper`, then `curl -i http://127.0.0.1:3000/` a few times.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::extract::PeerAddr;
use tollgate::{Quota, RateLimitLayer};
use tower::ServiceBuilder;

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For each IP address 20 requests at once, and 100 a minute after that. All services of one
    // layer count together.
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100).burst(20));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // One connection failed, or there are too many: the next accept may succeed.
                eprintln!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = ServiceBuilder::new()
            // The layer learns the peer's address from this. Behind a proxy, the peer is the proxy:
            // see `tollgate::extract::ClientIp`.
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            })
            .layer(limit.clone())
            .service_fn(hello);
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = connection.await {
                eprintln!("a connection to {peer} ended: {error}");
            }
        });
    }
}
