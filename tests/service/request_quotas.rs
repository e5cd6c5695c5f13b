//! Quotas that requests bring along.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use tollgate::extract::header;
use tollgate::{
    Algorithm, Head, Key, MemoryStore, Policy, PolicyExt, Quota, RequestLimiter, Rule, Share, StoreExt,
};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, call, clock, field, store};
use tower::{Layer, service_fn};

use crate::service::layer;

/// The quota that an outer layer found in a token.
#[derive(Clone)]
struct Bought(Quota);

fn bought(head: &Head<'_>, _: &Key) -> Option<Quota> {
    head.extensions().get().map(|Bought(quota)| *quota)
}

fn rule(policy: Policy) -> Rule {
    policy.by(header("x-user")).quota(bought)
}

fn request(quota: Option<Quota>) -> Request<Body> {
    let mut request = Request::get("/").header("x-user", "ada").body(Body::empty()).unwrap();
    if let Some(quota) = quota {
        request.extensions_mut().insert(Bought(quota));
    }
    request
}

/// Capacity and remaining units of a look with this quota.
async fn state<S>(limiter: &RequestLimiter<S>, quota: impl Into<Option<Quota>>) -> (u64, u64)
where
    S: tollgate::store::Store<Error: tollgate::store::NeverFails>,
{
    let report = limiter.look(&Head::from(&request(quota.into()))).await.unwrap();
    let (policy, status) = report.iter().next().unwrap();
    (policy.capacity(), status.remaining())
}

#[tokio::test]
async fn a_request_is_limited_by_the_quota_that_it_brings() {
    for algorithm in EVERY_ALGORITHM {
        let limiter = RequestLimiter::new(rule(a_minute("p", algorithm, 3))).store(store(&clock()));
        let is_leaky = matches!(algorithm, Algorithm::LeakyBucket { .. });
        let quota = |limit| match is_leaky {
            true => Quota::per_minute(limit).burst(limit),
            false => Quota::per_minute(limit),
        };
        let passed = async |quota: Option<Quota>| {
            let mut passed = 0;
            while limiter.check(&Head::from(&request(quota))).await.is_ok() {
                passed += 1;
            }
            passed
        };
        assert_eq!(passed(Some(quota(12))).await, 12, "{algorithm:?}");
        assert_eq!(passed(None).await, 0, "all quotas share the state of the key");
        // A window has 18 more. A bucket that is empty stays so.
        let is_bucket = is_leaky || algorithm == Algorithm::Gcra;
        assert_eq!(passed(Some(quota(30))).await, if is_bucket { 0 } else { 18 }, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_burst_is_part_of_the_quota() {
    let limiter = RequestLimiter::new(rule(a_minute("p", Algorithm::Gcra, 60))).store(store(&clock()));
    assert_eq!(state(&limiter, None).await, (60, 60));
    assert_eq!(state(&limiter, Quota::per_minute(60).burst(7)).await, (7, 7));
    assert_eq!(state(&limiter, Quota::per_minute(60).burst(8)).await, (8, 8));
}

#[tokio::test]
async fn what_is_not_allowed_leaves_the_own_quota() {
    let window = RequestLimiter::new(rule(a_minute("p", Algorithm::FIXED_WINDOW, 3)));
    for quota in
        [Quota::per_hour(50), Quota::new(50, Duration::from_secs(61)), Quota::per_minute(50).burst(9)]
    {
        assert_eq!(state(&window, quota).await, (3, 3), "{quota:?}");
    }
    let log = RequestLimiter::new(rule(a_minute("p", Algorithm::SLIDING_LOG, 3)));
    assert_eq!(state(&log, Quota::per_minute(100_001)).await, (3, 3));
    let halved = MemoryStore::new().fall_back_to(MemoryStore::new(), Share::new(1, 2));
    let limiter = RequestLimiter::new(rule(a_minute("p", Algorithm::Gcra, 3))).store(halved);
    assert_eq!(state(&limiter, Quota::per_minute(2)).await, (2, 2));
    assert_eq!(state(&limiter, Quota::per_minute(1)).await, (3, 3), "its half is less than a unit");
}

#[tokio::test]
async fn it_comes_before_tiers_and_keeps_classes_and_corrections() {
    let class = |head: &Head<'_>, _: &Key| Some(head.headers().get("x-class")?.to_str().ok()?.to_owned());
    let rule = rule(a_minute("p", Algorithm::Gcra, 10))
        .tiers([("pro", Quota::per_minute(20))], |_, _| Some("pro"))
        .leaving([("batch", 4)], class)
        .count_if(|response| response.status() == StatusCode::NOT_FOUND);
    let limiter = RequestLimiter::new(rule).store(store(&clock()));
    assert_eq!(state(&limiter, None).await, (20, 20));
    assert_eq!(state(&limiter, Quota::per_minute(40)).await, (40, 40));
    let batch = |quota| {
        let mut request = request(Some(quota));
        request.headers_mut().insert("x-class", "batch".parse().unwrap());
        request
    };
    let left = async |request: Request<Body>| {
        limiter.look(&Head::from(&request)).await.unwrap().statuses()[0].remaining()
    };
    assert_eq!(left(batch(Quota::per_minute(40))).await, 36);
    assert_eq!(left(batch(Quota::per_minute(4))).await, 1, "a class keeps one unit of a small quota");
    let permit = limiter.check(&Head::from(&request(Some(Quota::per_minute(40))))).await.unwrap();
    let response = http::Response::new(());
    limiter.settle_by(permit, &tollgate::ResponseHead::from(&response));
    assert_eq!(state(&limiter, Quota::per_minute(40)).await, (40, 40), "what did not fail is refunded");
}

#[tokio::test]
async fn slots_keep_the_lease_of_the_policy() {
    let policy = Policy::in_flight("jobs", 1).with_lease(Duration::from_secs(3));
    let limiter = RequestLimiter::new(rule(policy));
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(limiter.check(&Head::from(&request(Some(Quota::in_flight(5))))).await.unwrap());
    }
    assert_eq!(held[4].report().policies().next().unwrap().lease(), Some(Duration::from_secs(3)));
    assert!(limiter.check(&Head::from(&request(Some(Quota::in_flight(5))))).await.is_err());
}

#[tokio::test]
async fn fields_show_the_quota_of_the_request() {
    let ok = async |_: Request<Body>| Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()));
    let rules =
        [rule(a_minute("p", Algorithm::Gcra, 3)), rule(a_minute("q", Algorithm::Gcra, 3)).without_fields()];
    let mut service = layer(&clock(), rules).layer(service_fn(ok));
    for (quota, policy, state) in [
        (Some(Quota::per_minute(120)), "\"p\";q=120;w=60", "\"p\";r=119;t=1"),
        (Some(Quota::per_minute(60).burst(9)), "\"p\";q=9;w=9", "\"p\";r=7;t=2"),
        (None, "\"p\";q=3;w=60", "\"p\";r=1;t=22"),
    ] {
        let response = call(&mut service, request(quota)).await;
        assert_eq!(field(&response, "ratelimit-policy"), Some(policy));
        assert_eq!(field(&response, "ratelimit"), Some(state));
    }
}

#[tokio::test]
async fn ever_new_quotas_use_bounded_memory_and_none_is_unlimited() {
    let limiter = RequestLimiter::new(rule(a_minute("p", Algorithm::Gcra, 3))).store(store(&clock()));
    let mut own = 0;
    for limit in 1..20_000 {
        let (capacity, _) = state(&limiter, Quota::per_minute(limit)).await;
        assert!(capacity == limit || capacity == 3, "{capacity} of {limit}");
        own += u32::from(capacity != limit);
    }
    assert!((15_900..16_500).contains(&own), "{own}");
    assert_eq!(state(&limiter, Quota::per_minute(1_000)).await, (1_000, 1_000), "the first are kept");
}

#[tokio::test]
async fn each_store_says_itself_which_quotas_it_supports() {
    let layer = tollgate::RateLimitLayer::new(rule(a_minute("p", Algorithm::Gcra, 10)));
    let halved = MemoryStore::new().fall_back_to(MemoryStore::new(), Share::new(1, 2));
    let (halved, whole) = (layer.clone().store(halved), layer.store(MemoryStore::new()));
    for _ in 0..2 {
        assert_eq!(state(&halved.limiter(), Quota::per_minute(1)).await, (10, 10));
        assert_eq!(state(&whole.limiter(), Quota::per_minute(1)).await, (1, 1));
    }
}

#[tokio::test]
async fn no_class_escapes_a_small_quota() {
    for algorithm in EVERY_ALGORITHM {
        let rule = rule(a_minute("p", algorithm, 1_000)).leaving([("batch", 200)], |_, _| Some("batch"));
        let limiter = RequestLimiter::new(rule).store(store(&clock()));
        let is_leaky = matches!(algorithm, Algorithm::LeakyBucket { .. });
        let quota = if is_leaky { Quota::per_minute(100).burst(100) } else { Quota::per_minute(100) };
        let mut passed = 0;
        while limiter.check(&Head::from(&request(Some(quota)))).await.is_ok() {
            passed += 1;
        }
        assert_eq!(passed, 1, "{algorithm:?}");
    }
}
