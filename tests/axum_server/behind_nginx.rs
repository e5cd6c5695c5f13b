//! nginx as a reverse proxy with two upstreams and its default `max_fails`: a lost refusal would be
//! a failed upstream.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use tollgate::extract::header;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_test_servers::Nginx;
use tollgate_tests::{Client, serve};

/// One request a day for each user, by one layer on two servers behind one nginx.
async fn nginx(location: &str) -> Nginx {
    let layer = RateLimitLayer::new([Policy::new("one", Quota::per_day(1)).by(header("x-user"))]);
    let mut upstream = String::new();
    for _ in 0..2 {
        let app = Router::new()
            .route("/", get(|| async { "hello" }).post(|body: String| async move { body.len().to_string() }))
            .layer(DefaultBodyLimit::disable())
            .layer(layer.clone());
        upstream += &format!("server {};", serve(app).await);
    }
    let location = format!("client_max_body_size 0; location / {{ proxy_pass http://app; {location} }}");
    let start = move || Nginx::start(&upstream, &location).expect("nginx starts");
    tokio::task::spawn_blocking(start).await.expect("nginx starts")
}

/// The statuses of 100 uploads by a denied user, and of as many requests by other users in between.
async fn statuses(nginx: &Nginx, length: usize, round: &str) -> (Vec<u16>, Vec<u16>) {
    let body = "x".repeat(length);
    let (mut denied, mut others) = (Vec::new(), Vec::new());
    for n in 0..100 {
        let mut client = Client::connect(nginx.address()).await;
        client
            .send(format!(
                "POST / HTTP/1.1\r\nhost: test\r\nx-user: denied\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        denied.push(client.answer_to("POST").await.status);
        let other = format!("x-user: {round} {n}");
        others.push(Client::connect(nginx.address()).await.get("/", &[&other]).await.status);
    }
    (denied, others)
}

async fn each_upload_is_answered(location: &str) {
    let nginx = nginx(location).await;
    let mut client = Client::connect(nginx.address()).await;
    assert_eq!(client.get("/", &["x-user: denied"]).await.status, 200);
    for length in [10, 60_000, 300_000] {
        let (denied, others) = statuses(&nginx, length, &length.to_string()).await;
        let of = |statuses: &[u16], status| statuses.iter().filter(|other| **other == status).count();
        let (answered, passed) = (of(&denied, 429), of(&others, 200));
        assert_eq!((answered, passed), (100, 100), "of {length} bytes: {denied:?}, other users {others:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_passes_on_each_refusal_and_fails_no_upstream() {
    each_upload_is_answered("").await;
}

/// Sends bodies while they are produced, over connections that stay open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_that_streams_uploads_passes_on_each_refusal() {
    each_upload_is_answered("proxy_request_buffering off; proxy_http_version 1.1;").await;
}
