//! An axum server that limits each IP address together with all others that share its Redis. Copy it.
//!
//! `cargo run --release --example redis`, with a Redis or Valkey on this machine. Start a
//! second with `-- 127.0.0.1:3001`, and see them share a limit.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{CircuitBreaker, FailureExt, Quota, RateLimitLayer};
use tollgate_redis::RedisStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let redis = arguments.next().unwrap_or_else(|| "redis://127.0.0.1/".to_owned());

    // An error here is one to mend: a URL, a password, a permission. A Redis that is down is none: it is joined later.
    let store = RedisStore::connect(&redis)
        .await?
        // No request waits longer for Redis, and hardly any once several have waited in vain,
        .timeout(Duration::from_millis(50))
        .circuit_breaker(CircuitBreaker::default())
        // and this is what happens to those that would: they pass. `fail_closed` refuses them.
        .fail_open();

    // For each IP address 20 requests at once, and 100 a minute after that, on however many servers.
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100).burst(20)).store(store);

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit)
        // Added after the layer: never limited.
        .route("/health", get(|| async { "ok\n" }));

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
