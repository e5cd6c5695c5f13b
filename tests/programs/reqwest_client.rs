//! A client of another API, which stays within that API's limit for each host.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use reqwest::{Client, Method, Request, Url};
use tokio::time::Instant;
use tollgate::calls::{CallError, CallLimitLayer};
use tollgate::{Algorithm, Key, Limiter, Policy, Quota};
use tollgate_tests::serve;
use tower::{Service, ServiceBuilder, ServiceExt};

fn by_host(request: &Request) -> Option<Key> {
    request.url().host_str().map(Key::from)
}

async fn url() -> Url {
    let address = serve(Router::new().route("/", get(|| async { "hello" }))).await;
    Url::parse(&format!("http://{address}/")).unwrap()
}

#[tokio::test]
async fn a_client_waits_for_its_turn_at_each_host() {
    let url = url().await;
    let spaced = Policy::new("spaced", Quota::per_second(20))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(60) });
    let layer = CallLimitLayer::new(Limiter::new([spaced]), by_host);
    let mut client = ServiceBuilder::new().layer(layer).service(Client::new());
    let start = Instant::now();
    for _ in 0..4 {
        let response = client.ready().await.unwrap().call(Request::new(Method::GET, url.clone())).await;
        assert_eq!(response.unwrap().text().await.unwrap(), "hello");
    }
    assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_refused_call_is_an_error_that_says_when_to_retry() {
    let url = url().await;
    let limiter = Limiter::new([Policy::new("hourly", Quota::per_hour(1))]);
    let client = ServiceBuilder::new().layer(CallLimitLayer::new(limiter, by_host)).service(Client::new());
    let call = || client.clone().oneshot(Request::new(Method::GET, url.clone()));
    call().await.unwrap();
    let error = call().await.unwrap_err();
    let CallError::Denied(denial) = &error else { panic!("{error:?}") };
    assert!(denial.retry_after() > Some(Duration::from_secs(3_500)));
    assert_eq!(error.to_string(), "quota exceeded: hourly");
    // As any error, it goes where `?` takes it.
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert!(boxed.downcast::<CallError<reqwest::Error>>().is_ok());
}
