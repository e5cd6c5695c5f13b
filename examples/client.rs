//! A client that stays within the rate limit of another API: it waits for its turn instead of being
//! refused. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example client -- http://127.0.0.1:3000/`, with a server there, such as
//! the example `hello`. It sends twelve requests, prints when it sent each, and ends. To send one
//! by hand: `curl -i http://127.0.0.1:3000/`

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate::{Algorithm, Denial, Fields, Head, Key, Policy, PolicyExt, Quota, RateLimitLayer};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:3000/".to_owned());
    let url: Uri = url.parse()?;

    // The API allows ten requests a second. `paced` sends one every 110 ms to each host: a burst
    // after an idle time, or requests that the network delays, would exceed its limit otherwise.
    // No request waits longer than a second.
    let ours = Policy::new("ours", Quota::per_second(10).paced())
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) })
        .by(|head: &Head<'_>| head.uri().host().map(Key::from));

    let start = Instant::now();
    let client = ServiceBuilder::new()
        // Our fields would mix with those of the API.
        .layer(RateLimitLayer::new([ours]).fields(Fields::None))
        // Inside the limit: only requests that are sent arrive here.
        .map_request(move |request| {
            println!("sent after {} ms", start.elapsed().as_millis());
            request
        })
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let request = Request::get(url.clone()).body(Empty::new())?;
        calls.spawn(client.clone().oneshot(request));
    }
    while let Some(response) = calls.join_next().await {
        let response = response??;
        // A refusal by our limit has a `Denial`. One by the API has none.
        match response.extensions().get::<Denial>() {
            Some(denial) => println!("not sent: it would have waited too long ({denial})"),
            None => println!("answered {}", response.status()),
        }
    }
    Ok(())
}
