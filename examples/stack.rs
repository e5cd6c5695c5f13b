//! An axum server with the layers of a production server, and the rate limit in its place among
//! them. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example stack`, then a few times
//! `curl -i --compressed -H 'origin: https://app.example' http://127.0.0.1:3000/`. A request for
//! `/slow` times out.

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

/// Answers the errors of the load shed and the buffer.
async fn overloaded(_: BoxError) -> (StatusCode, &'static str) {
    (StatusCode::SERVICE_UNAVAILABLE, "overloaded\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().without_time().init();

    // The fields that scripts of other origins may read.
    let fields = ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static);
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(fields);

    // From the outside in: a request passes down this list, and its response up.
    let layers = ServiceBuilder::new()
        // Sees everything, refusals too.
        .layer(TraceLayer::new_for_http().on_response(DefaultOnResponse::new().level(Level::INFO)))
        // Outside the limit, so that scripts can read a 429 and wait. It answers preflights itself,
        // so they cost nothing.
        .layer(cors)
        .layer(CompressionLayer::new())
        // Outside everything expensive. It refuses at once, even if the layers below are busy.
        .layer(RateLimitLayer::per_ip(Quota::per_minute(100).burst(20)))
        // Inside the limit, so that a single caller cannot fill the queue. Requests that are shed
        // here have been charged.
        .layer(HandleErrorLayer::new(overloaded))
        // 32 requests at a time, and 64 in the queue of each route. Further requests get a 503
        // instead of waiting.
        .load_shed()
        .buffer(64)
        .layer(GlobalConcurrencyLimitLayer::new(32))
        // Innermost, so that it limits work and not waiting. The delay of a leaky bucket does not
        // count.
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1)));

    let app = Router::new()
        .route("/", get(|| async { "hello, hello, hello, hello, hello, hello, hello, hello\n" }))
        .route("/slow", get(|| async { tokio::time::sleep(Duration::from_secs(3600)).await }))
        .layer(layers);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);

    // Do not pass `app` itself: axum would build the stack and its queue again for each connection.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
