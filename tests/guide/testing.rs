//! The tests of the chapter on testing are these tests.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::future::{Ready, ready};
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response};
use tokio::time::timeout;
use tollgate::extract::{PeerAddr, PeerIp, global};
use tollgate::store::{Check, End, ErrorKind, Grant, NeverFails, Reply, Store, StoreError, Times, Verdict};
use tollgate::{
    Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Reason,
    Share, StoreExt, Timestamp,
};
use tower::{ServiceBuilder, ServiceExt};

#[test]
fn the_chapter_shows_these_tests() {
    let marks =
        ["a_denied_request", "the_third_page", "the_second_request", "struct Broken", "an_outage_leaves"];
    super::shows("testing.md", include_str!("testing.rs"), &marks);
}

#[tokio::test]
async fn a_denied_request_passes_after_a_minute() {
    let time = ManualClock::new(Timestamp::from_micros(1_000_000));
    let limiter = Limiter::new([Policy::new("one", Quota::per_minute(1))])
        .store(MemoryStore::builder().clock(&time).build());

    assert!(limiter.check(&Key::global(), 1).await.is_ok());
    let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(60)));

    time.advance(Duration::from_micros(59_999_999));
    assert!(limiter.check(&Key::global(), 1).await.is_err());
    time.advance(Duration::from_micros(1));
    assert!(limiter.check(&Key::global(), 1).await.is_ok());
}

// `main` passes the store of production: any store with a failure policy.
fn app<S: Store<Error: NeverFails>>(store: S) -> Router {
    let rule = Policy::new("pages", Quota::per_minute(60).burst(2)).by(PeerIp::new());
    Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new([rule]).store(store))
}

#[tokio::test]
async fn the_third_page_is_refused() {
    let time = ManualClock::new(Timestamp::from_micros(1_000_000));
    let app = app(MemoryStore::builder().clock(&time).build());
    let get = async |last: u8| {
        let peer = PeerAddr(([192, 0, 2, last], 4_000).into());
        let request = Request::get("/").extension(peer).body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap()
    };

    assert_eq!(get(1).await.status(), 200);
    assert_eq!(get(1).await.headers()["ratelimit"], "\"pages\";r=0;t=2");
    let refused = get(1).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(get(2).await.status(), 200, "another address");

    time.advance(Duration::from_secs(1));
    assert_eq!(get(1).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_second_request_waits_for_a_minute() {
    let even = Policy::new("even", Quota::per_minute(1))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(60) });
    let time = ManualClock::new(Timestamp::from_micros(1_000_000));
    let layer = RateLimitLayer::new([even.by(global())]).store(MemoryStore::builder().clock(&time).build());
    let service = ServiceBuilder::new()
        .layer(layer)
        .service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));

    let first = service.clone().oneshot(Request::default());
    timeout(Duration::from_millis(1), first).await.expect("no wait").unwrap();
    let mut second = pin!(service.oneshot(Request::default()));
    timeout(Duration::from_secs(59), second.as_mut()).await.expect_err("it waits for its slot");
    timeout(Duration::from_secs(2), second).await.expect("its slot has come").unwrap();
}

#[derive(Debug)]
struct Away;

impl Display for Away {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("away")
    }
}

impl Error for Away {}

impl StoreError for Away {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}

#[derive(Clone)]
struct Broken;

impl Store for Broken {
    type Error = Away;
    type Acquire = Ready<Result<Verdict, Away>>;

    fn acquire(&self, _: &[Check<'_>], _: Times) -> Reply<Result<Verdict, Away>, Self::Acquire> {
        Reply::Later(ready(Err(Away)))
    }

    fn refund(&self, _: &[Grant<'_>]) -> impl End<(), Away> + use<> {
        ready(Err(Away))
    }

    fn reset(&self, _: &Key, _: &[&Policy]) -> impl End<(), Away> + use<> {
        ready(Err(Away))
    }
}

#[tokio::test]
async fn an_outage_leaves_half_of_the_quota() {
    let policy = || Policy::new("two", Quota::per_minute(2));
    let half = Limiter::new([policy()]).store(Broken.fall_back_to(MemoryStore::new(), Share::new(1, 2)));
    assert!(half.check(&Key::global(), 1).await.is_ok());
    assert!(half.check(&Key::global(), 1).await.is_err());

    let closed = Limiter::new([policy()]).store(Broken.fail_closed());
    let denial = closed.check(&Key::global(), 1).await.unwrap_err();
    assert_eq!(denial.reason(), Reason::Unavailable);
}
