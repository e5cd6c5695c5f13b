//! An axum server whose store fails.

use std::convert::Infallible;

use axum::Router;
use axum::routing::get;
use tollgate::extract::global;
use tollgate::store::Store;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, Connection, serve};

use crate::failure::{FAILURES, closed, failing, open};

/// A client of a server that grants two requests a day.
async fn client(store: impl Store<Error = Infallible>) -> Client {
    let layer = RateLimitLayer::new([Policy::new("two", Quota::per_day(2)).by(global())]).store(store);
    Client::connect(serve(Router::new().route("/", get(|| async { "hello" })).layer(layer)).await).await
}

#[tokio::test]
async fn fail_closed_answers_503_and_keeps_the_connection() {
    let store = failing(Connection::Works);
    let mut client = client(closed(&store)).await;
    for failure in FAILURES {
        store.set(failure);
        for _ in 0..2 {
            let answer = client.get("/", &[]).await;
            assert_eq!(answer.status, 503);
            assert_eq!(answer.field("content-type"), Some("application/problem+json"));
            assert_eq!(answer.field("retry-after"), Some("1"));
            assert_eq!(answer.field("ratelimit"), None);
            assert_eq!(answer.field("ratelimit-policy"), None);
            assert_eq!(
                answer.body,
                "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
                 \"title\":\"Temporary Reduced Capacity\",\"status\":503}"
            );
        }
    }
    store.set(Connection::Works);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(client.get("/", &[]).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn fail_open_serves_without_fields_until_the_store_recovers() {
    let store = failing(Connection::Works);
    let mut client = client(open(&store)).await;
    for failure in FAILURES {
        store.set(failure);
        for _ in 0..2 {
            let answer = client.get("/", &[]).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
            let names: Vec<_> = answer.headers.keys().map(http::HeaderName::as_str).collect();
            assert!(!names.iter().any(|name| name.contains("ratelimit")), "{names:?}");
        }
    }
    store.set(Connection::Works);
    for (status, left) in
        [(200, "\"two\";r=1;t=43200"), (200, "\"two\";r=0;t=86400"), (429, "\"two\";r=0;t=43200")]
    {
        let answer = client.get("/", &[]).await;
        assert_eq!((answer.status, answer.field("ratelimit")), (status, Some(left)));
        assert_eq!(answer.field("ratelimit-policy"), Some("\"two\";q=2;w=86400"));
    }
}
