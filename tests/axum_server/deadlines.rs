//! A leaky bucket and callers that do not wait for their turn.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::extract::global;
use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, serve};

use crate::axum_server::hello;

fn one_in_four_seconds() -> RateLimitLayer {
    let (max_wait, quota) = (Duration::from_secs(60), Quota::new(1, Duration::from_secs(4)));
    let policy = Policy::new("q", quota).with_algorithm(Algorithm::LeakyBucket { max_wait });
    RateLimitLayer::new([policy.by(global())])
}

#[tokio::test]
async fn requests_that_cannot_meet_their_deadline_do_not_hold_up_the_next() {
    let layer = one_in_four_seconds().deadline_header("x-request-timeout");
    let mut client = Client::connect(serve(hello().layer(layer)).await).await;
    let mut statuses = Vec::new();
    let start = Instant::now();
    for _ in 0..5 {
        statuses.push(client.get("/", &["x-request-timeout: 300"]).await.status);
    }
    assert_eq!(statuses, [200, 429, 429, 429, 429]);
    assert_eq!(client.get("/", &[]).await.status, 200);
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(14), "after {elapsed:?} instead of 4 s");
}

/// The server notices that a client has gone while its request waits.
#[tokio::test]
async fn a_client_that_disconnects_in_the_queue_gives_its_place_back() {
    let address = serve(hello().layer(one_in_four_seconds())).await;
    let start = Instant::now();
    assert_eq!(Client::connect(address).await.get("/", &[]).await.status, 200);
    for _ in 0..5 {
        let mut client = Client::connect(address).await;
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
        sleep(Duration::from_millis(50)).await;
        drop(client);
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(Client::connect(address).await.get("/", &[]).await.status, 200);
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(14), "after {elapsed:?} instead of 4 s");
}
