//! An axum server that limits each IP address. Copy it.
//!
//! `cargo run --release --example axum`, then `curl -i http://127.0.0.1:3000/` a few times.

use std::error::Error;
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For each IP address 20 requests at once, and 100 a minute after that.
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100).burst(20));

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        // Limits all routes above it, and unknown paths.
        .layer(limit)
        // Added after the layer, so never limited.
        .route("/health", get(|| async { "ok\n" }));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

    // The layer learns the peer's address from `with_connect_info`. Behind a proxy, the peer is the
    // proxy: see `tollgate::extract::ClientIp`.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
