//! Quotas that requests bring along.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use tollgate::extract::header;
use tollgate::store::{Check, End, Grant, NeverFails, Reply, Store, Times, Verdict};
use tollgate::{
    Algorithm, Head, Key, Limit, MemoryStore, Policy, PolicyError, PolicyExt, Quota, Reason, RequestLimiter,
    Rule, Share, StoreExt, TextError,
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
    S: Store<Error: NeverFails>,
{
    let report = limiter.look(&Head::from(&request(quota.into()))).await.unwrap();
    let (policy, status) = report.iter().next().unwrap();
    (policy.capacity(), status.remaining())
}

/// Why a request with this quota is refused.
async fn refusal<S: Store<Error: NeverFails>>(limiter: &RequestLimiter<S>, quota: Quota) -> Reason {
    limiter.check(&Head::from(&request(Some(quota)))).await.unwrap_err().reason()
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
async fn a_quota_that_is_not_allowed_refuses_the_request() {
    let window = RequestLimiter::new(rule(a_minute("p", Algorithm::FIXED_WINDOW, 3)));
    for quota in
        [Quota::per_hour(50), Quota::new(50, Duration::from_secs(61)), Quota::per_minute(50).burst(9)]
    {
        assert_eq!(refusal(&window, quota).await, Reason::InvalidLimit, "{quota:?}");
    }
    assert_eq!(state(&window, None).await, (3, 3));
    let log = RequestLimiter::new(rule(a_minute("p", Algorithm::SLIDING_LOG, 3)));
    assert_eq!(refusal(&log, Quota::per_minute(100_001)).await, Reason::InvalidLimit);
    let halved = MemoryStore::new().fall_back_to(MemoryStore::new(), Share::new(1, 2));
    let limiter = RequestLimiter::new(rule(a_minute("p", Algorithm::Gcra, 3))).store(halved);
    assert_eq!(state(&limiter, Quota::per_minute(1)).await, (1, 1), "its half matters in an outage only");
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
    permit.settle_by(&tollgate::charge::ResponseHead::from(&response));
    assert_eq!(state(&limiter, Quota::per_minute(40)).await, (40, 40), "what did not fail is refunded");
}

#[tokio::test]
async fn slots_keep_the_time_to_live_of_the_policy() {
    let policy = Policy::in_flight("jobs", 1).with_ttl(Duration::from_secs(3));
    let limiter = RequestLimiter::new(rule(policy));
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(limiter.check(&Head::from(&request(Some(Quota::in_flight(5))))).await.unwrap());
    }
    assert_eq!(held[4].report().policies().next().unwrap().ttl(), Some(Duration::from_secs(3)));
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

/// A request of this user with this quota.
fn of(name: &str, quota: Quota) -> Request<Body> {
    let mut request = Request::get("/").header("x-user", name).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Bought(quota));
    request
}

/// Callers choose quotas in turn, and each keeps its own: also that which was chosen first.
#[tokio::test]
async fn ten_thousand_different_quotas_in_turn_each_hold() {
    let limiter = RequestLimiter::new(rule(a_minute("p", Algorithm::FIXED_WINDOW, 3))).store(store(&clock()));
    let check = async |number: u64| {
        let request = of(&number.to_string(), Quota::per_minute(number));
        limiter.check(&Head::from(&request)).await.map(|permit| permit.report().statuses()[0].remaining())
    };
    for round in 1..=3 {
        for number in 1..=10_000 {
            assert_eq!(check(number).await.ok(), number.checked_sub(round), "{number} in round {round}");
        }
    }
}

/// What one rule is brought, allowed or not, pushes out nothing of another.
#[tokio::test]
async fn each_rule_has_a_table_of_its_own() {
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let store = CountsSupports { store: store(&clock()), of: "p", count, least: 0 };
    let other = a_minute("other", Algorithm::SLIDING_LOG, 3).by(header("x-user"));
    let other = other
        .quota(|head, _| Some(Quota::per_minute(head.headers()["x-limit"].to_str().ok()?.parse().ok()?)));
    let limiter = RequestLimiter::new([rule(a_minute("p", Algorithm::Gcra, 3)), other]).store(store);
    let before = made.load(Ordering::Relaxed);
    for number in 0..20_000_u64 {
        let mut request = of("ada", Quota::per_minute(50));
        // Every other one is not allowed in a log.
        let limit = if number % 2 == 0 { number + 1 } else { 100_001 + number };
        request.headers_mut().insert("x-limit", limit.into());
        assert_eq!(limiter.look(&Head::from(&request)).await.is_ok(), number % 2 == 0, "{limit}");
    }
    assert_eq!(made.load(Ordering::Relaxed) - before, 1);
}

/// Counts how often it is asked whether it supports a policy. It supports none of a smaller limit.
#[derive(Clone)]
pub(crate) struct CountsSupports {
    pub(crate) store: MemoryStore,
    pub(crate) of: &'static str,
    pub(crate) count: Arc<AtomicU64>,
    pub(crate) least: u64,
}

impl Store for CountsSupports {
    type Error = Infallible;
    type Acquire = <MemoryStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        self.store.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.store.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.store.reset(key, policies)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.count.fetch_add((policy.name() == self.of).into(), Ordering::Relaxed);
        if policy.quota().limit() < self.least {
            return Err(PolicyError::Unsupported);
        }
        self.store.supports(policy)
    }
}

#[tokio::test]
async fn each_store_says_itself_which_quotas_it_supports() {
    let layer = tollgate::RateLimitLayer::new(rule(a_minute("p", Algorithm::Gcra, 10)));
    let picky = CountsSupports { store: MemoryStore::new(), of: "p", count: Arc::default(), least: 2 };
    let (picky, whole) = (layer.clone().store(picky), layer.store(MemoryStore::new()));
    for _ in 0..2 {
        assert_eq!(refusal(&picky.limiter(), Quota::per_minute(1)).await, Reason::InvalidLimit);
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

/// A layer under whose rule `"p"` a request is limited as its header says.
fn of_header(limit: Option<&str>) -> Request<Body> {
    let mut request = request(None);
    if let Some(limit) = limit {
        request.headers_mut().insert("x-limit", limit.parse().unwrap());
    }
    request
}

fn read(head: &Head<'_>, _: &Key) -> Option<Result<Limit, TextError>> {
    head.headers().get("x-limit").map(|limit| limit.to_str().unwrap().parse())
}

#[tokio::test]
async fn a_request_may_be_unlimited_or_be_allowed_nothing() {
    let rules = [
        a_minute("other", Algorithm::FIXED_WINDOW, 9).by(header("x-user")),
        a_minute("p", Algorithm::FIXED_WINDOW, 2).by(header("x-user")).quota(read),
    ];
    let layer = layer(&clock(), rules);
    let mut service = layer
        .layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(http::Response::new(Body::empty()))));
    for _ in 0..3 {
        let response = call(&mut service, of_header(Some("unlimited"))).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"other\";q=9;w=60"));
    }
    let response = call(&mut service, of_header(Some("none"))).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!((field(&response, "retry-after"), field(&response, "ratelimit-policy")), (None, None));
    let body = axum::body::to_bytes(Body::new(response.into_body()), 1_000).await.unwrap();
    assert_eq!(body, r#"{"title":"Forbidden","status":403,"detail":"The policy \"p\" allows nothing"}"#);
    // Only those that passed were charged to the other rule.
    let response = call(&mut service, of_header(None)).await;
    assert_eq!(field(&response, "ratelimit"), Some("\"other\";r=5;t=60, \"p\";r=1;t=60"));

    let response = call(&mut service, of_header(Some("many"))).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!((field(&response, "retry-after"), field(&response, "ratelimit-policy")), (None, None));
    let body = axum::body::to_bytes(Body::new(response.into_body()), 1_000).await.unwrap();
    let detail = r#""detail":"The policy \"p\" has no valid limit for this caller""#;
    assert_eq!(body, format!(r#"{{"title":"Internal Server Error","status":500,{detail}}}"#));
    let response = call(&mut service, of_header(None)).await;
    assert_eq!(
        field(&response, "ratelimit"),
        Some("\"other\";r=4;t=60, \"p\";r=0;t=60"),
        "nothing was charged"
    );

    for (limit, status) in [("none", "7"), ("many", "13")] {
        let mut grpc = of_header(Some(limit));
        *grpc.method_mut() = http::Method::POST;
        grpc.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        let response = call(&mut service, grpc).await;
        assert_eq!(
            (field(&response, "grpc-status"), field(&response, "grpc-retry-pushback-ms")),
            (Some(status), Some("-1"))
        );
    }
}
