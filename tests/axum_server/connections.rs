//! Denials leave HTTP connections as they are.

use axum::extract::DefaultBodyLimit;
use tollgate::extract::global;
use tollgate::{Fields, RateLimitLayer};
use tollgate_tests::{Client, serve};

use crate::axum_server::{hello, two, two_a_day};

const GET: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

#[tokio::test]
async fn each_peer_is_limited_and_gets_the_fields() {
    let address = serve(hello().layer(RateLimitLayer::per_ip(two()))).await;
    let mut client = Client::connect(address).await;
    for left in ["1", "0"] {
        let answer = client.get("/", &[]).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
        assert_eq!(answer.field("ratelimit-policy"), Some("\"default\";q=2;w=86400"));
        let told = answer.field("ratelimit").unwrap();
        assert!(told.starts_with(&format!("\"default\";r={left};t=")), "{told}");
    }
    // Another connection from the same address.
    let answer = Client::connect(address).await.get("/", &[]).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    assert_eq!(
        answer.body,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Quota Exceeded\",\"status\":429,\"violated-policies\":[\"default\"]}"
    );
    let seconds: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((43_000..=43_200).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_connection_is_kept_alive_through_denials() {
    let key = tollgate::extract::header("x-user");
    let mut client = Client::connect(serve(hello().layer(two_a_day(key))).await).await;
    let mut statuses = Vec::new();
    for user in ["ada", "ada", "ada", "bob", "ada", "bob", "bob", "cy"] {
        statuses.push(client.get("/", &[&format!("x-user: {user}")]).await.status);
    }
    statuses.push(client.get("/", &[]).await.status);
    statuses.push(client.get("/", &["x-user: cy"]).await.status);
    assert_eq!(statuses, [200, 200, 429, 200, 429, 200, 429, 200, 400, 200]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let mut client = Client::connect(serve(hello().layer(two_a_day(global()))).await).await;
    client.send(GET.repeat(6)).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(client.answer_to("GET").await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
}

#[tokio::test]
async fn a_denied_head_request_has_no_body_and_keeps_the_connection_usable() {
    let mut client = Client::connect(serve(hello().layer(two_a_day(global()))).await).await;
    assert_eq!(client.request("HEAD", "/", &[]).await.status, 200);
    assert_eq!(client.request("HEAD", "/", &[]).await.status, 200);
    for _ in 0..3 {
        let answer = client.request("HEAD", "/", &[]).await;
        assert_eq!((answer.status, answer.body.as_str()), (429, ""));
        assert!(answer.field("retry-after").is_some());
        // If bytes of a document had been sent, they would stand where this answer begins.
        assert_eq!(client.get("/", &[]).await.status, 429);
    }
}

#[tokio::test]
async fn a_denied_request_with_a_large_body_is_answered() {
    const LENGTH: usize = 8 << 20;
    let app = hello().layer(DefaultBodyLimit::disable()).layer(two_a_day(global()));
    let address = serve(app).await;
    for expected in [200, 200, 429, 429] {
        let mut client = Client::connect(address).await;
        let mut bytes =
            format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {LENGTH}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + LENGTH, b'x');
        client.send_meanwhile(bytes);
        let answer = client.answer_to("POST").await;
        assert_eq!(answer.status, expected);
        assert_eq!(answer.body.len() == LENGTH, expected == 200, "those that pass are echoed");
    }
    assert_eq!(Client::connect(address).await.get("/", &[]).await.status, 429, "the server goes on");
}

#[tokio::test]
async fn a_denied_request_with_a_small_body_keeps_the_connection_usable() {
    let mut client = Client::connect(serve(hello().layer(two_a_day(global()))).await).await;
    for expected in [200, 200, 429, 429] {
        let body = "x".repeat(1_000);
        client.send(format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000\r\n\r\n{body}")).await;
        assert_eq!(client.answer_to("POST").await.status, expected);
    }
    assert_eq!(client.get("/", &[]).await.status, 429);
}

#[tokio::test]
async fn a_denied_client_that_waits_for_100_need_not_send_its_body() {
    let mut client = Client::connect(serve(hello().layer(two_a_day(global()))).await).await;
    let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    for _ in 0..2 {
        client.send(head).await;
        assert_eq!(client.answer_to("POST").await.status, 100);
        client.send("body").await;
        assert_eq!(client.answer_to("POST").await.status, 200);
    }
    client.send(head).await;
    assert_eq!(client.answer_to("POST").await.status, 429, "without a 100 before");
}

#[tokio::test]
async fn a_denial_without_fields_still_has_retry_after() {
    let layer = two_a_day(global()).fields(Fields::None);
    let mut client = Client::connect(serve(hello().layer(layer)).await).await;
    for expected in [200, 200, 429] {
        let answer = client.get("/", &[]).await;
        assert_eq!(answer.status, expected);
        assert_eq!(answer.field("ratelimit"), None);
        assert_eq!(answer.field("retry-after").is_some(), expected == 429);
    }
}
