//! A limit on requests to an API of a third party.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tollgate::extract::global;
use tollgate::{Algorithm, Denial, Fields, Head, Key, Policy, PolicyExt, Quota, RateLimitLayer, Rule};
use tollgate_tests::{clock, field, store, timed};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::stacks::{get, http_client, serve, two_each};

/// An API that counts its requests.
async fn api() -> (SocketAddr, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let hello = service_fn(move |_: Request<Incoming>| {
        counted.fetch_add(1, Relaxed);
        async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) }
    });
    (serve(hello).await, asked)
}

fn to(address: SocketAddr) -> Request<Empty<Bytes>> {
    get(address).body(Empty::new()).unwrap()
}

fn queue(quota: Quota, max_wait: Duration) -> Policy {
    Policy::new("ours", quota).with_algorithm(Algorithm::LeakyBucket { max_wait })
}

fn by_host(policy: Policy) -> Rule {
    policy.by(|head: &Head<'_>| head.uri().authority().map(|authority| Key::from(authority.as_str())))
}

#[tokio::test]
async fn a_client_waits_its_turn_instead_of_failing() {
    let (address, asked) = api().await;
    let ours = queue(Quota::per_second(20), Duration::from_secs(60)).by(global());
    let client = RateLimitLayer::new([ours]).fields(Fields::None).layer(http_client());
    let (responses, took) = timed(async {
        let mut calls: JoinSet<_> = (0..8).map(|_| client.clone().oneshot(to(address))).collect();
        let mut responses = Vec::new();
        while let Some(response) = calls.join_next().await {
            responses.push(response.unwrap().unwrap());
        }
        responses
    })
    .await;
    for response in responses {
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (200, None));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    assert_eq!(asked.load(Relaxed), 8);
    // Seven turns of 50 ms; the two clocks may differ by a little.
    assert!(took >= 7 * Duration::from_millis(45), "{took:?}");
}

/// If the wait is too long, the client denies the request and the API never sees it.
#[tokio::test]
async fn a_client_call_that_would_wait_too_long_is_denied_locally() {
    let (address, asked) = api().await;
    let rule = queue(Quota::per_minute(1), Duration::from_secs(90)).by(global());
    let layer = RateLimitLayer::new([rule]).store(store(&clock()));
    let client = layer.layer(http_client());
    let first = client.clone().oneshot(to(address)).await.unwrap();
    assert_eq!(first.status(), 200);
    // The second has the next turn and times out. The third would have the turn after the longest
    // wait.
    let waiting = tokio::spawn(client.clone().oneshot(to(address)));
    tokio::task::yield_now().await;
    let refused = client.clone().oneshot(to(address)).await.unwrap();
    let denial = refused.extensions().get::<Denial>().unwrap();
    assert_eq!((refused.status().as_u16(), denial.retry_after()), (429, Some(Duration::from_secs(30))));
    waiting.abort();
    assert_eq!(asked.load(Relaxed), 1);
}

#[tokio::test]
async fn a_refusal_by_the_api_is_not_a_local_denial() {
    let address = serve(two_each().layer(service_fn(async |_: Request<Incoming>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    })))
    .await;
    let ours = Policy::new("ours", Quota::per_minute(3)).by(global());
    let layer = RateLimitLayer::new([ours]).store(store(&clock())).fields(Fields::None);
    let client = layer.layer(http_client());
    let mut told = Vec::new();
    for _ in 0..4 {
        let response = client.clone().oneshot(to(address)).await.unwrap();
        let by_us = response.extensions().get::<Denial>().is_some();
        told.push((response.status().as_u16(), by_us, field(&response, "ratelimit-policy").is_some()));
    }
    assert_eq!(told, [(200, false, true), (200, false, true), (429, false, true), (429, true, false)]);
}

#[tokio::test]
async fn each_host_has_its_own_turn() {
    let ((one, asked_one), (other, asked_other)) = (api().await, api().await);
    let rule = by_host(Policy::new("ours", Quota::per_minute(2)));
    let client = ServiceBuilder::new()
        .layer(RateLimitLayer::new([rule]).store(store(&clock())))
        .timeout(crate::stacks::PATIENCE)
        .service(http_client());
    let mut statuses = Vec::new();
    for address in [one, one, one, other, one, other, other] {
        statuses.push(client.clone().oneshot(to(address)).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 429, 200, 429]);
    assert_eq!((asked_one.load(Relaxed), asked_other.load(Relaxed)), (2, 2));
}

/// No server listens there, so the error is the client's own.
#[tokio::test]
async fn errors_of_the_client_pass_through() {
    let rule = queue(Quota::per_second(1_000), Duration::from_secs(1)).by(global());
    let client = RateLimitLayer::new([rule]).layer(http_client());
    let error = client.oneshot(to("127.0.0.1:1".parse().unwrap())).await.unwrap_err();
    assert!(error.is_connect(), "{error}");
}
