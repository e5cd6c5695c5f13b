//! An axum server with the layers that one has in production, and where among them the rate limit stands. Copy it.
//!
//! `cargo run --release --example stack`, then `curl -i --compressed -H 'origin: https://app.example' http://127.0.0.1:3000/`
//! a few times; `/slow` is timed out.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::{Router, routing::get};
use http::{HeaderName, StatusCode};
use tokio::net::TcpListener;
use tollgate::{Quota, RateLimitLayer};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::{DefaultOnResponse, TraceLayer};
use tracing::Level;

/// What the layers below answer by errors.
async fn overloaded(_: BoxError) -> (StatusCode, &'static str) {
    (StatusCode::SERVICE_UNAVAILABLE, "overloaded\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().without_time().init();

    // What a script in a browser may read of a response from another origin.
    let told = ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static);
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(told);

    // From the outside in: a request goes down this list, and its response comes up.
    let layers = ServiceBuilder::new()
        // Sees everything, refusals too.
        .layer(TraceLayer::new_for_http().on_response(DefaultOnResponse::new().level(Level::INFO)))
        // Outside of the limit: without its header a browser hides a 429 from the script that has to wait. It answers
        // preflights itself, which so cost nothing.
        .layer(cors)
        .layer(CompressionLayer::new())
        // Before all that is dear. It refuses at once, whatever is going on below.
        .layer(RateLimitLayer::per_ip(Quota::per_minute(100).burst(20)))
        // Below the limit, so that one caller alone does not fill the queue. Who is turned away here has been charged.
        .layer(HandleErrorLayer::new(overloaded))
        // 32 requests at a time, and 64 in the queue of each route; what comes on top is answered 503 instead of waiting.
        .load_shed()
        .buffer(64)
        .layer(GlobalConcurrencyLimitLayer::new(32))
        // Innermost, so that it limits work and not waiting. A request that a leaky bucket delays is not timed out for it.
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1)));

    let app = Router::new()
        .route("/", get(|| async { "hello, hello, hello, hello, hello, hello, hello, hello\n" }))
        .route("/slow", get(|| async { tokio::time::sleep(Duration::from_secs(3600)).await }))
        .layer(layers);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

    // Not `app` by itself: axum would make the stack, with its queue, anew for each connection.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
