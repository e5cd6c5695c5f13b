//! Answers that the user wrote, and the head of an answer as it is sent.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tollgate::extract::global;
use tollgate::{Denial, Head, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, clock, per_minute, per_user, store};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::grpc::{client, code, pushback, refused};

fn one(name: &str) -> RateLimitLayer {
    RateLimitLayer::new([Policy::new(name, Quota::per_minute(1)).by(global())]).store(store(&clock()))
}

/// The answer to a second request of that content type, over HTTP/1.1.
async fn second(layer: RateLimitLayer, content_type: &str) -> tollgate_tests::Answer {
    let app = Router::new().fallback(|| async { "hello" }).layer(layer);
    let mut client = Client::connect(tollgate_tests::serve(app).await).await;
    let lines = [&format!("content-type: {content_type}")[..], "content-length: 0"];
    assert_eq!(client.request("POST", "/a.B/C", &lines).await.body, "hello");
    client.request("POST", "/a.B/C", &lines).await
}

#[tokio::test]
async fn grpc_and_grpc_web_denials_have_the_requests_content_type() {
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "application/grpc-web-text+proto",
    ] {
        let answer = second(one("100%"), content_type).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{content_type}");
        assert_eq!(answer.field("content-type"), Some(content_type));
        assert_eq!(answer.field("content-length"), Some("0"));
        assert_eq!(answer.field("grpc-status"), Some("8"));
        assert_eq!(answer.field("grpc-message"), Some("quota exceeded: 100%25"));
        assert_eq!(answer.field("grpc-retry-pushback-ms"), Some("60000"));
        assert_eq!(answer.field("retry-after"), None);
        assert_eq!(answer.field("ratelimit"), Some("\"100%\";r=0;t=60"));
        let details = answer.field("grpc-status-details-bin").unwrap();
        assert!(!details.ends_with('='), "base64 without padding: {details}");
    }
}

#[tokio::test]
async fn other_content_types_get_a_problem_document() {
    for content_type in ["application/grpcfoo", "application/json", "text/plain", "application/x-grpc", ""] {
        let answer = second(one("p"), content_type).await;
        assert_eq!((answer.status, answer.field("retry-after")), (429, Some("60")), "{content_type}");
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        assert_eq!(answer.field("grpc-status"), None);
    }
}

fn changed_for_http(head: &Head<'_>, denial: &Denial) -> Response<Full<Bytes>> {
    let mut response = denial.response_to(head);
    if !response.headers().contains_key("grpc-status") {
        *response.body_mut() = "slow down, please".into();
    }
    response
}

#[tokio::test]
async fn a_closure_that_changes_http_answers_leaves_grpc_answers_alone() {
    let answer = second(one("p").answer(changed_for_http), "application/json").await;
    assert_eq!((answer.status, answer.body.as_str()), (429, "slow down, please"));
    assert_eq!(answer.field("retry-after"), Some("60"));

    let layer = RateLimitLayer::new([per_user("p", 1)]).store(store(&clock())).answer(changed_for_http);
    let mut client = client(layer).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    let status = refused(&mut client, "ada").await;
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "quota exceeded: p"));
    assert_eq!(pushback(&status), 60_000);
    assert!(status.get_details_quota_failure().is_some() && status.metadata().get("retry-after").is_none());
}

#[tokio::test]
async fn a_closure_can_answer_grpc_and_the_wait_is_added() {
    let answer = |_: &Head<'_>, _: &Denial| Status::aborted("not now").into_http::<Body>();
    let layer = RateLimitLayer::new([per_user("p", 1)]).store(store(&clock())).answer(answer);
    let mut client = client(layer).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    let status = refused(&mut client, "ada").await;
    assert_eq!((status.code(), status.message()), (Code::Aborted, "not now"));
    assert_eq!(pushback(&status), 60_000);
    assert_eq!(status.metadata().get("ratelimit").unwrap(), "\"p\";r=0;t=60");
}

#[tokio::test]
async fn a_pushback_set_by_a_closure_is_kept() {
    let answer = |head: &Head<'_>, denial: &Denial| {
        let mut response = denial.response_to(head);
        response.headers_mut().insert("grpc-retry-pushback-ms", 7.into());
        response
    };
    let answer = second(one("p").answer(answer), "application/grpc").await;
    assert_eq!(answer.headers.get_all("grpc-retry-pushback-ms").iter().collect::<Vec<_>>(), ["7"]);
}

/// For handlers that ask a limiter themselves and refuse with `?`.
#[tokio::test]
async fn a_denial_of_a_limiter_is_a_status() {
    async fn charge(limiter: &Limiter, cost: u64) -> Result<(), Status> {
        let _permit = limiter.check(&Key::from("ada"), cost).await?;
        Ok(())
    }
    let limiter = Limiter::new([per_minute("p", 2)]).store(store(&clock()));
    assert!(charge(&limiter, 2).await.is_ok());
    let status = charge(&limiter, 1).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "quota exceeded: p"));
    assert_eq!(pushback(&status), 30_000);
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].subject, "p");
    assert!(status.get_details_retry_info().is_some());
    let status = charge(&limiter, 3).await.unwrap_err();
    assert_eq!((status.code(), pushback(&status)), (Code::ResourceExhausted, -1));
    assert!(status.get_details_retry_info().is_none());
    let status = Status::from(limiter.check(&Key::from(""), 1).await.unwrap_err());
    assert_eq!((status.code(), pushback(&status)), (Code::InvalidArgument, -1));
}

/// Otherwise a caller could make refusals of pages look like successes to logs and caches.
#[tokio::test]
async fn a_request_that_is_not_a_post_is_not_answered_as_grpc() {
    let app = Router::new().fallback(|| async { "hello" }).layer(one("p"));
    let mut client = Client::connect(tollgate_tests::serve(app).await).await;
    let lines = ["content-type: application/grpc"];
    assert_eq!(client.request("GET", "/", &lines).await.status, 200);
    for method in ["GET", "PUT", "DELETE"] {
        let answer = client.request(method, "/", &lines).await;
        assert_eq!((answer.status, answer.field("retry-after")), (429, Some("60")), "{method}");
        assert_eq!(answer.field("grpc-status"), None);
    }
}
