//! The services and programs after their move from other limiters.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Method, Request};
use tokio::time::Instant;
use tollgate::calls::CallLimitLayer;
use tollgate::extract::{ClientIp, PeerAddr, global, header};
use tollgate::{
    Algorithm, CircuitBreaker, Denial, Head, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota,
    RateLimitLayer, Reason, Share, StoreExt,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{clock, store};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::{shows, status};

const THIS_FILE: &str = include_str!("from_others.rs");

mod axum_governor {
    use super::*;

    async fn read() {}
    async fn write() {}

    fn app() -> Router {
        let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).ipv6_prefix(56);
        let is_health = |head: &Head<'_>| head.uri().path() == "/health";
        let limit = RateLimitLayer::new([
            Policy::new("default", Quota::per_minute(60).burst(10))
                .by(client.clone())
                .exempt(move |head: &Head<'_>| head.method() == Method::POST || is_health(head)),
            Policy::new("post", Quota::per_minute(6))
                .by(client)
                .exempt(move |head: &Head<'_>| head.method() != Method::POST || is_health(head)),
        ]);
        Router::new().route("/", get(read).post(write)).layer(limit)
    }

    #[tokio::test]
    async fn writes_and_reads_have_their_own_quota() {
        shows("from_axum_governor.md", THIS_FILE, &["fn app()"]);
        let app = app();
        for (method, passing) in [("POST", 6), ("GET", 10)] {
            for nth in 0..20 {
                let request = Request::builder().method(method).header("x-forwarded-for", "203.0.113.7");
                let request = request.extension(PeerAddr(([10, 0, 0, 1], 4_000).into())).body(Body::empty());
                let expected = if nth < passing { 200 } else { 429 };
                assert_eq!(status(&app, request.unwrap()).await, expected, "{method} {nth}");
            }
        }
    }
}

async fn call_api(calls: &Limiter) -> Result<(), Denial> {
    // Fails if the turn would come later than in a minute.
    let _permit = calls.until_ready(&Key::global(), 1, Duration::from_secs(60)).await?;
    // Call the API here.
    Ok(())
}

async fn mail(mails: &Limiter, user: &str, recipients: u64) -> String {
    match mails.check(&Key::from(user), recipients).await {
        Ok(_permit) => "sent".to_owned(),
        Err(denial) => match denial.retry_after() {
            Some(wait) => format!("later: in {} s", wait.as_secs()),
            None => "never: more recipients than the quota has room for".to_owned(),
        },
    }
}

#[tokio::test]
async fn a_mail_is_sent_now_or_later_or_never() {
    let calls = Limiter::new([Policy::new("calls", Quota::per_second(10).paced())]);
    let mails = Limiter::new([Policy::new("mails", Quota::per_hour(60).burst(10))]);
    let mails = mails.store(store(&clock()));
    assert!(call_api(&calls).await.is_ok());
    assert_eq!(mail(&mails, "ada", 10).await, "sent");
    assert_eq!(mail(&mails, "ada", 1).await, "later: in 60 s");
    assert!(mail(&mails, "bob", 11).await.starts_with("never"));
    assert!(mails.check(&Key::from("ada"), 1).await.is_err());
    let denial = mails.check(&Key::from("bob"), 11).await.unwrap_err();
    assert_eq!((denial.reason(), denial.retry_after()), (Reason::NeverPossible, None));
}

fn accepts(limiter: &Limiter, peer: &Key) -> bool {
    limiter.check_now(peer, 1).is_ok()
}

#[test]
fn a_check_needs_no_executor() {
    let limiter = Limiter::new([Policy::new("one", Quota::per_hour(1))]);
    assert!(accepts(&limiter, &Key::global()) && !accepts(&limiter, &Key::global()));
}

#[test]
fn the_chapter_on_governor_shows_this_code() {
    let text = std::fs::read_to_string(super::guide().join("from_governor.md")).unwrap();
    for part in ["async fn call_api", "async fn mail"] {
        let shown = text.split(part).nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
        assert!(super::without_layout(THIS_FILE).contains(&super::without_layout(shown)), "{shown}");
    }
    shows("from_governor.md", THIS_FILE, &["fn accepts"]);
}

mod redis_script {
    use super::*;

    async fn app(url: &str) -> Result<Router, tollgate_redis::Error> {
        let store = RedisStore::connect(url)
            .await?
            .timeout(Duration::from_millis(250))
            .circuit_breaker(CircuitBreaker::default())
            // While Redis fails, each of 3 servers grants a third of the quota.
            .fall_back_to(MemoryStore::new(), Share::new(1, 3));
        let rule = Policy::new("api", Quota::per_minute(100))
            // For the counter: `Algorithm::FIXED_WINDOW`.
            .with_algorithm(Algorithm::SLIDING_LOG)
            .by(header("x-api-key"));
        Ok(Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(rule).store(store)))
    }

    /// The fallback decides late answers of a busy machine, by another quota.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_service_of_a_script_is_limited() {
        shows("from_redis_script.md", THIS_FILE, &["fn app(url"]);
        let server = Server::start(Kind::Redis8_2).unwrap();
        let app = app(&server.url()).await.unwrap();
        let request = Request::get("/").header("x-api-key", "a").body(Body::empty()).unwrap();
        let response = crate::guide::send(&app, request).await;
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert!(policy.starts_with("\"api\";q="), "{policy}");
    }
}

async fn six_calls() {
    let mut client = ServiceBuilder::new()
        // The limit is no `Clone`: clones of the buffer share it.
        .buffer(1_024)
        .rate_limit(5, Duration::from_millis(100))
        .service(service_fn(async |id: u32| Ok::<_, Infallible>(id)));
    for _ in 0..6 {
        client.ready().await.unwrap().call(7).await.unwrap();
    }
}

async fn six_limited_calls() {
    let calls = Policy::new("calls", Quota::new(5, Duration::from_millis(100)))
        .with_algorithm(Algorithm::FIXED_WINDOW);
    let limit = CallLimitLayer::new(Limiter::new([calls]), |_: &u32| Some(Key::global()));
    let mut client = ServiceBuilder::new()
        .layer(limit.wait_at_most(Duration::from_secs(60)))
        .service(service_fn(async |id: u32| Ok::<_, Infallible>(id)));
    for _ in 0..6 {
        client.ready().await.unwrap().call(7).await.unwrap();
    }
}

#[tokio::test]
async fn the_sixth_call_waits_as_it_did_with_tower() {
    let start = Instant::now();
    six_calls().await;
    assert!(start.elapsed() >= Duration::from_millis(90));
    let start = Instant::now();
    six_limited_calls().await;
    assert!(start.elapsed() >= Duration::from_millis(90));
}

fn app() -> Router {
    let all = Policy::new("all", Quota::per_second(5)).by(global());
    Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(all))
}

/// Within 200 ms no unit comes back. A slower machine may be granted one more.
#[tokio::test]
async fn a_server_answers_429_instead() {
    shows("from_tower.md", THIS_FILE, &["six_calls", "six_limited_calls", "fn app()"]);
    let (app, start) = (app(), Instant::now());
    for nth in 0..6 {
        let status = status(&app, Request::get("/").body(Body::empty()).unwrap()).await;
        if start.elapsed() < Duration::from_millis(190) {
            assert_eq!(status, if nth < 5 { 200 } else { 429 });
        }
    }
}

#[tokio::test]
async fn a_quota_of_tower_governor_is_the_same_in_both_spellings() {
    for quota in [Quota::per_minute(30).burst(5), Quota::new(1, Duration::from_secs(2)).burst(5)] {
        let limiter = Limiter::new([Policy::new("default", quota)]).store(store(&clock()));
        for _ in 0..5 {
            assert!(limiter.check(&Key::global(), 1).await.is_ok());
        }
        let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
        assert_eq!(denial.retry_after(), Some(Duration::from_secs(2)));
    }
}
