//! Keys that are blocked after many denials.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Request, Response};
use tollgate::extract::header;
use tollgate::store::Source;
use tollgate::{
    Denial, Key, Limiter, ManualClock, MemoryStore, Outcome, Policy, PolicyExt, Quota, RateLimitLayer,
    Reason, StoreExt, Wait,
};
use tollgate_tests::{clock, store};
use tower::{Layer, ServiceExt, service_fn};

const BLOCK: Duration = Duration::from_secs(900);

/// Two in ten seconds, and a block after three refusals.
fn guesses() -> Policy {
    Policy::new("guesses", Quota::new(2, Duration::from_secs(10))).block_after(3, BLOCK)
}

fn limiter(time: &ManualClock) -> Limiter {
    Limiter::new([guesses(), Policy::new("other", Quota::per_day(100))]).store(store(time))
}

async fn refused(limiter: &Limiter) -> Denial {
    limiter.check(&Key::from("ada"), 1).await.unwrap_err()
}

#[tokio::test]
async fn a_key_is_blocked_after_so_many_denials() {
    let time = clock();
    let limiter = limiter(&time);
    for _ in 0..2 {
        drop(limiter.check(&Key::from("ada"), 1).await.unwrap());
    }
    for _ in 0..3 {
        let denial = refused(&limiter).await;
        assert_eq!(
            (denial.reason(), denial.violated().collect::<Vec<_>>()),
            (Reason::QuotaExceeded, vec!["guesses"])
        );
    }
    let denial = refused(&limiter).await;
    assert_eq!((denial.reason(), denial.violated().collect::<Vec<_>>()), (Reason::Blocked, vec!["guesses"]));
    assert_eq!(denial.retry_after(), Some(BLOCK));
    assert_eq!(denial.report().get("guesses").unwrap().1.wait(), Wait::For(BLOCK));
    assert!(limiter.check(&Key::from("bob"), 1).await.is_ok());
    // Its quota is full again, and the block goes on to its end.
    time.advance(BLOCK - Duration::from_micros(1));
    assert_eq!(refused(&limiter).await.retry_after_seconds(), Some(1));
    time.advance(Duration::from_micros(1));
    for n in 0..2 {
        assert!(limiter.check(&Key::from("ada"), 1).await.is_ok(), "{n}");
    }
    // The count has started again.
    for _ in 0..3 {
        assert_eq!(refused(&limiter).await.reason(), Reason::QuotaExceeded);
    }
    assert_eq!(refused(&limiter).await.reason(), Reason::Blocked);
}

/// A caller that waits in a queue is answered by the refusal of one policy alone.
#[tokio::test(start_paused = true)]
async fn a_denial_from_a_queue_counts_for_the_rule_that_refused() {
    let ada = Key::from("ada");
    for (blocking, is_blocked) in [("ample", false), ("scant", true)] {
        let policies = ["ample", "scant"].map(|name| {
            let quota = if name == "ample" { Quota::per_second(1_000) } else { Quota::per_hour(1) };
            let policy = Policy::new(name, quota);
            if name == blocking { policy.block_after(1, BLOCK) } else { policy }
        });
        let limiter = Limiter::new(policies).store(store(&clock()));
        drop(limiter.check(&ada, 1).await.unwrap());
        let patient = tokio::spawn({
            let (limiter, ada) = (limiter.clone(), ada.clone());
            async move { limiter.until_ready(&ada, 1, Duration::from_secs(7_200)).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(limiter.until_ready(&ada, 1, Duration::from_secs(1)).await.is_err());
        patient.abort();
        assert_eq!(limiter.blocked(blocking, &ada).await.is_some(), is_blocked, "{blocking}");
    }
}

#[tokio::test]
async fn a_block_charges_nothing_and_stores_nothing_until_it_starts() {
    let memory = store(&clock());
    let limiter = Limiter::new([guesses()]).store(memory.clone());
    drop(limiter.check(&Key::from("ada"), 1).await.unwrap());
    assert_eq!(memory.keys(), 1);
    assert!(limiter.check(&Key::from("ada"), 2).await.is_err());
    assert_eq!(memory.keys(), 1);
    assert_eq!(limiter.blocked("guesses", &Key::from("ada")).await, None);
}

#[tokio::test]
async fn operators_block_and_unblock() {
    let time = clock();
    let (limiter, key) = (limiter(&time), Key::from("ada"));
    limiter.block("guesses", &key).await;
    assert_eq!(refused(&limiter).await.reason(), Reason::Blocked);
    time.advance(BLOCK / 3);
    limiter.block("guesses", &key).await;
    assert_eq!(limiter.blocked("guesses", &key).await, Some(BLOCK / 3 * 2), "it ends when it would have");
    limiter.unblock("guesses", &key).await;
    assert_eq!(limiter.blocked("guesses", &key).await, None);
    assert!(limiter.check(&key, 1).await.is_ok());
    limiter.block("guesses", &key).await;
    limiter.reset(&key).await;
    assert_eq!(limiter.blocked("guesses", &key).await, None, "a reset lifts a block too");
}

#[tokio::test]
#[should_panic(expected = "the policy \"other\" blocks no keys")]
async fn a_policy_without_blocks_cannot_block() {
    limiter(&clock()).block("other", &Key::from("ada")).await;
}

#[tokio::test]
async fn a_blocked_request_is_answered_by_the_block_alone() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let outcomes = Arc::clone(&seen);
    let layer = RateLimitLayer::new([
        Policy::new("other", Quota::per_day(100)).by(header("x-user")),
        Policy::new("guesses", Quota::per_day(2)).by(header("x-user")).block_after(1, BLOCK),
    ])
    .store(store(&clock()))
    .observe(move |decision| {
        outcomes.lock().unwrap().push((decision.policy().name().to_owned(), decision.outcome()));
    });
    let service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    let ask = async || {
        let request = Request::get("/").header("x-user", "ada").body(Body::empty()).unwrap();
        service.clone().oneshot(request).await.unwrap()
    };
    for _ in 0..2 {
        assert_eq!(
            ask().await.headers()["ratelimit-policy"],
            r#""other";q=100;w=86400, "guesses";q=2;w=86400"#
        );
    }
    ask().await;
    seen.lock().unwrap().clear();
    let response = ask().await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"900".parse().unwrap())
    );
    assert_eq!(response.headers()["ratelimit"], r#""other";r=98;t=1728, "guesses";r=0;t=900"#);
    let body = to_bytes(Body::new(response.into_body()), 1_000).await.unwrap();
    let expected = r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"violated-policies":["guesses"]}"#;
    assert_eq!(body, expected);
    let outcomes = seen.lock().unwrap().clone();
    assert_eq!(
        outcomes,
        [("other".to_owned(), Outcome::NotCharged), ("guesses".to_owned(), Outcome::Blocked)]
    );
}

#[tokio::test]
async fn denials_of_the_cache_count_and_a_block_is_remembered_by_it() {
    let sources = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sources);
    let limiter = Limiter::new([guesses()])
        .store(MemoryStore::new().deny_cache(100))
        .observe(move |decision| seen.lock().unwrap().push((decision.outcome(), decision.source())));
    while limiter.check(&Key::from("ada"), 1).await.is_ok() {}
    sources.lock().unwrap().clear();
    for _ in 0..5 {
        limiter.check(&Key::from("ada"), 1).await.unwrap_err();
    }
    let (denied, blocked) = (Outcome::Denied, Outcome::Blocked);
    let expected = [
        (denied, Source::DenyCache),
        (denied, Source::DenyCache),
        (Outcome::BlockStarted, Source::Store),
        (blocked, Source::Store),
        (blocked, Source::DenyCache),
        (blocked, Source::DenyCache),
    ];
    assert_eq!(*sources.lock().unwrap(), expected);
}

#[tokio::test]
async fn many_at_once_pass_beside_a_block() {
    let limiter = Limiter::new([Policy::new("api", Quota::per_day(1_000)).block_after(5, BLOCK)]);
    for _ in 0..1_000 {
        drop(limiter.check(&Key::from("ada"), 1).await.unwrap());
    }
    assert_eq!(limiter.check(&Key::from("ada"), 1).await.unwrap_err().reason(), Reason::QuotaExceeded);
}
