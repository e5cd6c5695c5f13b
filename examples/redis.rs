//! An axum server that limits each IP address together with all other servers on its Redis. Copy
//! it.
//!
//! `cargo run --release -p tollgate-examples --example redis`, with a Redis or Valkey on this machine. Start a second
//! one with `-- 127.0.0.1:3001`: they share the limit. Stop Redis: each keeps half of it.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollgate::{CircuitBreaker, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
use tollgate_redis::RedisStore;

/// How many servers share the limit. If it grows, the fallbacks of an outage together grant more
/// than the quota.
const SERVERS: u16 = 2;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let redis = arguments.next().unwrap_or_else(|| "redis://127.0.0.1/".to_owned());

    // Fails on a bad URL, password or permission. If Redis is down, the server starts anyway and
    // connects later.
    let store = RedisStore::connect(&redis)
        .await?
        // No request waits longer than this for Redis.
        .timeout(Duration::from_millis(250))
        // After several failures requests no longer wait: a probe finds out when Redis is back.
        .circuit_breaker(CircuitBreaker::default())
        // While Redis fails, each of two servers grants half of each quota by itself: a limit
        // stays. With `fail_open` requests would pass, and a caller who can make Redis late would
        // switch the limit off.
        .fall_back_to(MemoryStore::new(), Share::new(1, SERVERS));

    // For each IP address 20 requests at once, and 100 a minute after that, on all servers
    // together.
    let limit = RateLimitLayer::per_ip(Quota::per_minute(100).burst(20)).store(store);

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit)
        // Added after the layer, so never limited.
        .route("/health", get(|| async { "ok\n" }));

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
