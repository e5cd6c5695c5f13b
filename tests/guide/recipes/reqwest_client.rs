//! A reqwest client that stays within the limit of another API.

use std::time::Duration;

use axum::{Router, routing::get};
use reqwest::{Client, Method, Request, Response, Url};
use tokio::task::JoinSet;
use tollgate::calls::{CallError, CallLimitLayer};
use tollgate::{Algorithm, Key, Limiter, Policy, Quota};
use tollgate_tests::{clock, serve, store};
use tower::{ServiceBuilder, ServiceExt};

use crate::guide::shows;

fn spaced() -> Policy {
    Policy::new("spaced", Quota::per_second(50).paced())
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_millis(30) })
}

async fn get_all(limiter: Limiter, urls: Vec<Url>) -> Vec<Result<Response, CallError<reqwest::Error>>> {
    let by_host = |request: &Request| request.url().host_str().map(Key::from);
    let client = ServiceBuilder::new().layer(CallLimitLayer::new(limiter, by_host)).service(Client::new());
    let mut calls = JoinSet::new();
    for url in urls {
        calls.spawn(client.clone().oneshot(Request::new(Method::GET, url)));
    }
    calls.join_all().await
}

/// The clock stands still. The turns of the first two are 0 and 22 ms away, and the third is 44.
#[tokio::test]
async fn requests_that_would_wait_too_long_are_not_sent() {
    shows("recipes/applications.md", include_str!("reqwest_client.rs"), &["fn spaced"]);
    let address = serve(Router::new().route("/", get(|| async { "hello" }))).await;
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    let limiter = Limiter::new([spaced()]).store(store(&clock()));
    let (mut answered, mut refused) = (0, 0);
    for call in get_all(limiter, vec![url; 9]).await {
        match call {
            Ok(response) => answered += u32::from(response.text().await.unwrap() == "hello"),
            Err(CallError::Denied(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((answered, refused), (2, 7));
}
