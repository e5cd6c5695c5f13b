//! The recipe for tests is this test.

use std::time::Duration;

use axum::body::Body;
use axum::{Router, routing::get};
use http::Request;
use tollgate::extract::header;
use tollgate::store::{NeverFails, Store};
use tollgate::{ManualClock, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Timestamp};
use tower::ServiceExt;

#[test]
fn the_recipe_shows_this_test() {
    crate::guide::shows(
        "recipes/applications.md",
        include_str!("store_of_a_test.rs"),
        &["fn the_second_request"],
    );
}

fn app<S: Store<Error: NeverFails>>(store: S) -> Router {
    let rule = Policy::new("api", Quota::per_minute(1)).by(header("x-api-key"));
    Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(rule).store(store))
}

#[tokio::test]
async fn the_second_request_of_a_minute_is_refused() {
    let time = ManualClock::new(Timestamp::from_micros(1_000_000));
    let app = app(MemoryStore::builder().clock(&time).build());
    let status = async || {
        let request = Request::get("/").header("x-api-key", "a").body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(status().await, 200);
    assert_eq!(status().await, 429);
    time.advance(Duration::from_secs(60));
    assert_eq!(status().await, 200);
}
