//! What a limit covers, and where it stands among other layers.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::routing::get;
use http::{HeaderName, Request, StatusCode};
use tokio::sync::Semaphore;
use tollgate::extract::global;
use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
use tower::buffer::BufferLayer;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_http::cors::{Any, CorsLayer};

use super::{send, shows};

const THIS_FILE: &str = include_str!("layers.rs");

fn readable_by_scripts() -> Router {
    let fields = ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static);
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(fields);
    let limit = RateLimitLayer::new([Policy::new("one", Quota::per_minute(1)).by(global())]);
    let layers = ServiceBuilder::new().layer(cors).layer(limit);
    Router::new().route("/", get(|| async { "hello" })).layer(layers)
}

fn unreadable_by_scripts() -> Router {
    let cors = CorsLayer::new().allow_origin(Any);
    let limit = RateLimitLayer::new([Policy::new("one", Quota::per_minute(1)).by(global())]);
    Router::new().route("/", get(|| async { "hello" })).layer(ServiceBuilder::new().layer(limit).layer(cors))
}

#[tokio::test]
async fn scripts_can_read_a_refusal_only_inside_of_the_cors_layer() {
    shows("layers.md", THIS_FILE, &["fn readable_by_scripts"]);
    for (app, readable) in [(readable_by_scripts(), true), (unreadable_by_scripts(), false)] {
        let request =
            || Request::get("/").header("origin", "https://app.example").body(Body::empty()).unwrap();
        send(&app, request()).await;
        let refused = send(&app, request()).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers().contains_key("access-control-allow-origin"), readable);
    }
}

async fn is_limited(app: &Router, method: &str, path: &str) -> bool {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    send(app, request).await.headers().contains_key("ratelimit")
}

#[tokio::test]
async fn a_layer_covers_what_was_there_when_it_was_added() {
    let limit = RateLimitLayer::new([Policy::new("all", Quota::per_minute(100)).by(global())]);
    let routes = Router::<()>::new().route("/log-in", get(|| async { "limited" }));
    let health = Router::new().route("/health", get(|| async { "not limited" }));

    // A part of an app.
    let app = health.clone().merge(routes.clone().route_layer(limit.clone()));
    assert!(is_limited(&app, "GET", "/log-in").await);
    assert!(is_limited(&app, "POST", "/log-in").await, "405, and charged");
    assert!(!is_limited(&app, "GET", "/health").await);
    assert!(!is_limited(&app, "GET", "/favicon.ico").await);

    // The mistake.
    let app = health.merge(routes.clone().layer(limit.clone()));
    assert!(is_limited(&app, "GET", "/favicon.ico").await);

    // A layer around a whole app. What is added below it is not limited.
    let app = routes.clone().layer(limit.clone()).route("/health", get(|| async { "not limited" }));
    assert!(is_limited(&app, "GET", "/log-in").await);
    assert!(is_limited(&app, "GET", "/favicon.ico").await);
    assert!(!is_limited(&app, "GET", "/health").await);

    let app = routes.layer(limit).fallback(|| async { "set below" });
    assert!(!is_limited(&app, "GET", "/favicon.ico").await);
}

fn limited(routes: Router, places: GlobalConcurrencyLimitLayer, limit: RateLimitLayer) -> Router {
    routes.layer(places).layer(limit)
}

/// How many of three places a request takes while a leaky bucket delays it.
async fn places_taken_by_a_sleeper(
    app: impl Fn(Router, GlobalConcurrencyLimitLayer, RateLimitLayer) -> Router,
) -> usize {
    let an_hour = Algorithm::LeakyBucket { max_wait: Duration::from_secs(3_600) };
    let even = Policy::new("even", Quota::per_minute(1)).with_algorithm(an_hour).by(global());
    let places = Arc::new(Semaphore::new(3));
    let routes = Router::new().route("/", get(|| async { "hello" }));
    let place = GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(&places));
    let app = app(routes, place, RateLimitLayer::new([even]));
    let request = || Request::get("/").body(Body::empty()).unwrap();
    send(&app, request()).await;
    let mut asleep = Box::pin(app.oneshot(request()));
    assert!(std::future::poll_fn(|cx| Poll::Ready(asleep.as_mut().poll(cx).is_pending())).await);
    3 - places.available_permits()
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_takes_no_place_behind_a_buffer_or_in_a_layer_apart() {
    shows("layers.md", THIS_FILE, &["fn limited"]);
    let outside =
        |routes: Router, places, even| routes.layer(ServiceBuilder::new().layer(places).layer(even));
    assert_eq!(places_taken_by_a_sleeper(outside).await, 1);
    let inside = |routes: Router, places, even| routes.layer(ServiceBuilder::new().layer(even).layer(places));
    assert_eq!(places_taken_by_a_sleeper(inside).await, 1);
    let buffered = |routes: Router, places, even| {
        let error = HandleErrorLayer::new(async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE);
        routes.layer(ServiceBuilder::new().layer(error).layer(even).layer(BufferLayer::new(8)).layer(places))
    };
    assert_eq!(places_taken_by_a_sleeper(buffered).await, 0);
    assert_eq!(places_taken_by_a_sleeper(limited).await, 0);
}
