//! The shortest program. The README shows it.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tollgate::{Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        // For each IP address 20 requests at once, and 100 a minute after that.
        .layer(RateLimitLayer::per_ip(Quota::per_minute(100).burst(20)));

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, try:");
    println!("  curl -i {url}");
    println!("  for i in $(seq 25); do curl -so /dev/null -w '%{{http_code}} ' {url}; done  # 429: refused");
    println!("  curl -i {url}  # what a refusal says");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
