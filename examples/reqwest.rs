//! A reqwest client that stays within the limit of another API: its requests wait for their turn.
//! Copy it.
//!
//! `cargo run --release -p tollgate-examples --example reqwest -- http://127.0.0.1:3000/`, with a server there, such as
//! the example `hello`. It sends eight requests at once, prints when each was answered, and ends.

use std::error::Error;
use std::time::Duration;

use reqwest::{Client, Method, Request, Url};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate::calls::{CallError, CallLimitLayer};
use tollgate::{Algorithm, Key, Limiter, Policy, Quota};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:3000/".to_owned());
    let url: Url = url.parse()?;

    // The API allows ten requests a second: one is sent every 110 ms to each host. None waits
    // longer than half a second.
    let spaced = Policy::new("spaced", Quota::per_second(10).paced())
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_millis(500) });
    let limit = CallLimitLayer::new(Limiter::new([spaced]), |request: &Request| {
        request.url().host_str().map(Key::from)
    });
    let client = ServiceBuilder::new().layer(limit).service(Client::new());

    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        calls.spawn(client.clone().oneshot(Request::new(Method::GET, url.clone())));
    }
    while let Some(response) = calls.join_next().await {
        match response? {
            Ok(response) => println!("{} after {} ms", response.status(), start.elapsed().as_millis()),
            Err(CallError::Denied(denial)) => println!("not sent: {denial}"),
            Err(error) => return Err(error.into_box()),
        }
    }
    Ok(())
}
