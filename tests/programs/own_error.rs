//! An application on Redis that answers every error, also a refusal, with its own type.

use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tollgate::extract::header;
use tollgate::{CircuitBreaker, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Share, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Client, serve};

enum AppError {
    NotFound,
    RateLimited { retry_after: Option<u64> },
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let (status, code, retry_after) = match self {
            AppError::NotFound => (StatusCode::NOT_FOUND, "not_found", None),
            AppError::RateLimited { retry_after } => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limited", retry_after)
            }
        };
        let retry_after = retry_after.map_or_else(|| "null".to_owned(), |seconds| seconds.to_string());
        let json = format!("{{\"error\":\"{code}\",\"retry_after\":{retry_after}}}");
        (status, [(CONTENT_TYPE, "application/json")], json).into_response()
    }
}

async fn app(url: &str) -> Router {
    let store = RedisStore::connect(url)
        .await
        .unwrap()
        .timeout(Duration::from_secs(10))
        .circuit_breaker(CircuitBreaker::default())
        .fall_back_to(MemoryStore::new(), Share::new(1, 2));
    let limit = RateLimitLayer::new(Policy::new("api", Quota::per_hour(2)).by(header("x-api-key")))
        .store(store)
        .answer(|_, denial| AppError::RateLimited { retry_after: denial.retry_after_seconds() });
    Router::new().route("/", get(|| async { "hello" })).fallback(|| async { AppError::NotFound }).layer(limit)
}

#[tokio::test]
async fn a_refusal_is_answered_by_the_type_of_the_application() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let mut client = Client::connect(serve(app(&redis.url()).await).await).await;
    assert_eq!(client.get("/", &["x-api-key: a"]).await.body, "hello");
    let unknown = client.get("/unknown", &["x-api-key: a"]).await;
    assert_eq!(unknown.body, r#"{"error":"not_found","retry_after":null}"#);
    let refused = client.get("/", &["x-api-key: a"]).await;
    assert_eq!((refused.status, refused.field("content-type")), (429, Some("application/json")));
    assert!(refused.body.starts_with(r#"{"error":"rate_limited","retry_after":1"#), "{}", refused.body);
    assert_eq!(
        refused.body.split(':').next_back().unwrap().trim_end_matches('}'),
        refused.field("retry-after").unwrap()
    );

    // Half of two an hour, in memory.
    redis.kill();
    let statuses =
        [client.get("/", &["x-api-key: b"]).await.status, client.get("/", &["x-api-key: b"]).await.status];
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test]
async fn a_body_of_an_answer_keeps_its_frames_and_its_length() {
    let limit = RateLimitLayer::per_ip(Quota::per_hour(1))
        .answer(|_, _| (StatusCode::TOO_MANY_REQUESTS, axum::body::Body::from("x".repeat(100_000))));
    let mut client =
        Client::connect(serve(Router::new().route("/", get(|| async {})).layer(limit)).await).await;
    assert_eq!(client.get("/", &[]).await.status, 200);
    for _ in 0..3 {
        let refused = client.get("/", &[]).await;
        assert_eq!((refused.status, refused.field("content-length")), (429, Some("100000")));
        assert_eq!(refused.body.len(), 100_000);
    }
}
