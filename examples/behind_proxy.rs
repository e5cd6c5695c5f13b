//! An axum server behind proxies, which limits each client by its own address. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example behind_proxy -- 127.0.0.1:3000 x-forwarded-for 127.0.0.1`, with
//! the networks of your proxies at the end. To play the proxy:
//! `curl -H 'x-forwarded-for: 203.0.113.7' http://127.0.0.1:3000/`. It answers with the address that
//! it counts by.

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::State;
use axum::{Router, routing::get};
use http::HeaderName;
use http::request::Parts;
use tokio::net::TcpListener;
use tollgate::extract::{AddressExtractor, ClientIp, ClientIpHeader};
use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer};

/// The same address for logs as for the limit.
async fn whoami(State(client): State<ClientIp>, parts: Parts) -> String {
    client
        .address(&Head::from(&parts))
        .map_or_else(|| "unknown\n".to_owned(), |address| format!("{address}\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let header = arguments.next().unwrap_or_else(|| "x-forwarded-for".to_owned());
    let header: HeaderName = header.parse()?;
    // For well-known proxies see `tollgate::guide::recipes::proxies`.
    let networks: Vec<String> = arguments.collect();

    // Only proxies in these networks are believed. Without any this fails.
    let client = ClientIpHeader::from(header).try_trusting(&networks)?;
    // For each client 20 requests at once, and 100 a minute after that.
    let rule = Policy::new("client", Quota::per_minute(100).burst(20)).by(client.clone());
    let app = Router::new().route("/", get(whoami)).with_state(client).layer(RateLimitLayer::new(rule));

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
