//! Quotas that depend on the request.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use tollgate::extract::{global, method};
use tollgate::{
    Algorithm, Denial, Fields, Head, Key, Limiter, MissingKey, Policy, PolicyExt, Quota, RateLimitLayer, Rule,
};
use tollgate_tests::{EVERY_ALGORITHM, Later, Strict, a_minute, call, clock, field, request, store, user};
use tower::{Layer, Service};

use crate::service::layer;

/// The tier that an outer layer found.
#[derive(Clone)]
struct Plan(&'static str);

fn plan(head: &Head<'_>, _: &Key) -> Option<&'static str> {
    head.extensions().get::<Plan>().map(|plan| plan.0)
}

fn on(user: &str, plan: &'static str) -> Request<Body> {
    let mut request = request(user);
    request.extensions_mut().insert(Plan(plan));
    request
}

fn quota(algorithm: Algorithm, limit: u64) -> Quota {
    a_minute("p", algorithm, limit).quota()
}

/// 2 a minute, for pro 4, for enterprise 8.
fn plans(algorithm: Algorithm) -> Rule {
    let tiers = [("pro", quota(algorithm, 4)), ("enterprise", quota(algorithm, 8))];
    a_minute("api", algorithm, 2).by(user()).tiers(tiers, plan)
}

/// How many requests pass before the first one that does not.
async fn passing<S, R>(service: &mut S, request: impl Fn() -> Request<Body>) -> u64
where
    S: Service<Request<Body>, Response = http::Response<R>>,
    S::Error: std::fmt::Debug,
{
    let mut passed = 0;
    while call(service, request()).await.status() == 200 {
        passed += 1;
        assert!(passed < 1_000_000, "nothing is limited");
    }
    passed
}

#[tokio::test]
async fn each_tier_has_its_quota_under_every_algorithm() {
    for algorithm in EVERY_ALGORITHM {
        let at_hand = layer(&clock(), [plans(algorithm)]);
        let mut service = at_hand.clone().layer(Strict::default());
        let mut later = at_hand.store(Later::deciding_first(store(&clock()))).layer(Strict::default());
        for (caller, plan, limit) in [("ada", "pro", 4), ("bob", "enterprise", 8), ("cy", "free", 2)] {
            assert_eq!(passing(&mut service, || on(caller, plan)).await, limit, "{plan}, {algorithm:?}");
            assert_eq!(passing(&mut later, || on(caller, plan)).await, limit, "{plan}, {algorithm:?}");
        }
        assert_eq!(passing(&mut service, || request("di")).await, 2, "without a plan, {algorithm:?}");
    }
}

#[tokio::test]
async fn an_unknown_tier_is_never_unlimited() {
    let mut service = layer(&clock(), [plans(Algorithm::Gcra)]).layer(Strict::default());
    for (n, invented) in
        ["", "Pro", "pro ", "pr", "pros", "zzz", "unlimited", "\u{0}"].into_iter().enumerate()
    {
        assert_eq!(passing(&mut service, || on(&n.to_string(), invented)).await, 2, "{invented:?}");
    }
}

#[tokio::test]
async fn fields_report_the_tiers_quota_under_the_policys_name() {
    let layer = layer(&clock(), [plans(Algorithm::Gcra), a_minute("all", Algorithm::Gcra, 100).by(global())]);
    let x = layer.clone().fields(Fields::XDelta);
    let mut service = layer.layer(Strict::default());
    for (plan, q, r, t) in [("free", 2, 1, 30), ("pro", 4, 3, 15), ("enterprise", 8, 7, 8)] {
        let response = call(&mut service, on(plan, plan)).await;
        let policy = format!("\"api\";q={q};w=60, \"all\";q=100;w=60");
        assert_eq!(field(&response, "ratelimit-policy"), Some(&*policy));
        let told = field(&response, "ratelimit").unwrap();
        assert!(told.starts_with(&format!("\"api\";r={r};t={t}, \"all\";r=")), "{told}");
        assert!(!format!("{:?}", response.headers()).contains(plan), "the tier's name is nobody's business");
    }
    let response = call(&mut x.layer(Strict::default()), on("ed", "pro")).await;
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("4"));
}

#[tokio::test]
async fn tiers_of_a_rule_without_fields_are_left_out_too() {
    let rules =
        || [plans(Algorithm::Gcra).without_fields(), a_minute("all", Algorithm::Gcra, 100).by(global())];
    let at_hand = layer(&clock(), rules());
    let later = layer(&clock(), rules()).store(Later::deciding_last(store(&clock())));
    let (mut at_hand, mut later) = (at_hand.layer(Strict::default()), later.layer(Strict::default()));
    for plan in ["free", "pro"] {
        for response in [call(&mut at_hand, on(plan, plan)).await, call(&mut later, on(plan, plan)).await] {
            assert_eq!(field(&response, "ratelimit-policy"), Some("\"all\";q=100;w=60"));
        }
    }
}

#[tokio::test]
async fn a_denial_names_the_policy_of_the_tier() {
    let mut service = layer(&clock(), [plans(Algorithm::Gcra)]).layer(Strict::default());
    passing(&mut service, || on("ada", "pro")).await;
    let response = call(&mut service, on("ada", "pro")).await;
    let denial = response.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["api"]);
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(15)));
    assert_eq!(denial.report().get("api").map(|(policy, _)| policy.capacity()), Some(4));
    assert_eq!(field(&response, "ratelimit-policy"), Some("\"api\";q=4;w=60"));
    let document = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert!(document.ends_with(b"\"violated-policies\":[\"api\"]}"));
}

#[tokio::test]
async fn a_cost_above_one_tiers_quota_can_pass_in_another() {
    let rule = plans(Algorithm::Gcra).cost(|_: &Head<'_>| 5);
    let mut service = layer(&clock(), [rule]).layer(Strict::default());
    for (plan, status) in [("free", 422), ("pro", 422), ("enterprise", 200)] {
        assert_eq!(call(&mut service, on("ada", plan)).await.status(), status, "{plan}");
    }
}

/// A key has one count for all of its tiers.
#[tokio::test]
async fn a_change_of_tier_keeps_past_usage() {
    for algorithm in EVERY_ALGORITHM {
        let mut service = layer(&clock(), [plans(algorithm)]).layer(Strict::default());
        assert_eq!(passing(&mut service, || on("ada", "free")).await, 2);
        let counts = !matches!(algorithm, Algorithm::Gcra | Algorithm::LeakyBucket { .. });
        // A bucket stores debt as time, so a whole quota of one tier is a whole quota of another.
        assert_eq!(
            passing(&mut service, || on("ada", "pro")).await,
            if counts { 2 } else { 0 },
            "{algorithm:?}"
        );
        for plan in ["free", "pro", "free", "nonsense"] {
            assert_eq!(passing(&mut service, || on("ada", plan)).await, 0, "{plan}, {algorithm:?}");
        }
    }
}

/// A debt that is larger than the policy allows counts as that of a clock that ran ahead, and is
/// forgiven. A debt of another tier is not.
///
/// Otherwise a caller could switch between a slow tier with a large burst and a fast one, and pay
/// nothing.
#[tokio::test]
async fn a_tier_of_a_smaller_burst_forgives_no_debt_of_a_larger() {
    let leaky = Algorithm::LeakyBucket { max_wait: Duration::ZERO };
    for algorithm in [Algorithm::Gcra, leaky] {
        for (own, tier) in [(large(), small()), (small(), large())] {
            let rule = Policy::try_from_parts("api", own, algorithm)
                .unwrap()
                .by(user())
                .tiers([("tier", tier)], plan);
            let time = clock();
            let mut service = layer(&time, [rule]).layer(Strict::default());
            let [mut passed, mut refused] = [0, 0];
            for _ in 0..300 {
                for plan in ["none", "tier"] {
                    match call(&mut service, on("ada", plan)).await.status().as_u16() {
                        200 => passed += 1,
                        _ => refused += 1,
                    }
                }
            }
            assert!((100..=110).contains(&passed) && refused > 400, "{passed} passed, {algorithm:?}");
            // One of the ten minutes of debt passes.
            time.advance(Duration::from_secs(60));
            assert_eq!(
                passing(&mut service, || on("ada", if own == large() { "none" } else { "tier" })).await,
                10
            );
        }
    }
}

/// A unit each 6 s, and 100 at once.
fn large() -> Quota {
    Quota::per_minute(10).burst(100)
}

/// A unit each second, and 10 at once.
fn small() -> Quota {
    Quota::per_minute(60).burst(10)
}

#[tokio::test]
async fn a_tier_with_another_window_counts_separately() {
    let tiers = [("daily", Quota::per_day(3))];
    let rule = a_minute("api", Algorithm::FIXED_WINDOW, 2).by(user()).tiers(tiers, plan);
    let limiter = layer(&clock(), [rule]);
    let mut service = limiter.layer(Strict::default());
    assert_eq!(passing(&mut service, || on("ada", "none")).await, 2);
    assert_eq!(passing(&mut service, || on("ada", "daily")).await, 3);
    limiter.limiter().reset(&Key::from("ada")).await;
    assert_eq!(
        passing(&mut service, || on("ada", "daily")).await,
        3,
        "a reset forgets what is counted under tiers"
    );
    assert_eq!(passing(&mut service, || on("ada", "none")).await, 2, "and what is not");
}

#[tokio::test]
async fn methods_and_routes_may_be_tiers() {
    let by_method = Policy::new("api", Quota::per_minute(5)).by((user(), method())).tiers(
        [("POST", Quota::per_minute(1)), ("PUT", Quota::per_minute(2))],
        |head: &Head<'_>, _: &Key| Some(head.method().clone()),
    );
    let mut service = layer(&clock(), [by_method]).layer(Strict::default());
    for (method, limit) in [(Method::GET, 5), (Method::POST, 1), (Method::PUT, 2), (Method::DELETE, 5)] {
        let asking = || {
            let mut request = request("ada");
            *request.method_mut() = method.clone();
            request
        };
        assert_eq!(passing(&mut service, asking).await, limit, "{method}");
    }
}

#[tokio::test]
async fn the_tier_closure_gets_the_counted_key_and_runs_once() {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let vip = |_: &Head<'_>, key: &Key| {
        ASKED.fetch_add(1, Relaxed);
        (*key == Key::from("vip") || *key == Key::global()).then_some("vip")
    };
    let tiers = || [("vip", Quota::per_minute(3))];
    let rule = || Policy::new("api", Quota::per_minute(1)).by(user());
    let mut service = layer(&clock(), [rule().tiers(tiers(), vip)]).layer(Strict::default());
    assert_eq!(passing(&mut service, || request("vip")).await, 3);
    assert_eq!(passing(&mut service, || request("ada")).await, 1);
    assert_eq!(ASKED.load(Relaxed), 4 + 2);
    let nobody = || Request::new(Body::empty());
    assert_eq!(call(&mut service, nobody()).await.status(), 400);
    assert_eq!(ASKED.load(Relaxed), 6, "without a key nobody is asked");
    let sharing = rule().tiers(tiers(), vip).on_missing_key(MissingKey::OneKey);
    let mut service = layer(&clock(), [sharing]).layer(Strict::default());
    assert_eq!(passing(&mut service, nobody).await, 3, "those who share a key are in its tier");
}

#[tokio::test]
async fn several_rules_have_tiers_of_their_own() {
    let rules = [
        Policy::new("a", Quota::per_minute(2)).by(user()).tiers([("pro", Quota::per_minute(7))], plan),
        Policy::new("b", Quota::per_minute(3)).by(user()),
        Policy::new("c", Quota::per_minute(4))
            .by(user())
            .tiers([("free", Quota::per_minute(1)), ("pro", Quota::per_minute(6))], plan),
    ];
    let mut service = layer(&clock(), rules).layer(Strict::default());
    for (plan, told) in [
        ("pro", "\"a\";q=7;w=60, \"b\";q=3;w=60, \"c\";q=6;w=60"),
        ("free", "\"a\";q=2;w=60, \"b\";q=3;w=60, \"c\";q=1;w=60"),
        ("none", "\"a\";q=2;w=60, \"b\";q=3;w=60, \"c\";q=4;w=60"),
    ] {
        let response = call(&mut service, on(plan, plan)).await;
        assert_eq!(field(&response, "ratelimit-policy"), Some(told));
    }
}

#[tokio::test]
async fn ten_thousand_tenants_each_have_their_quota() {
    let quota = |n: u64| Quota::per_minute(1 + n % 7);
    let tenants = (0..10_000).map(|n| (format!("tenant-{n}"), quota(n)));
    let tenant =
        |head: &Head<'_>, _: &Key| Some(format!("tenant-{}", head.headers()["x-user"].to_str().unwrap()));
    let rule = Policy::new("tenant", Quota::per_minute(50)).by(user()).try_tiers(tenants, tenant).unwrap();
    let mut service = layer(&clock(), [rule]).layer(Strict::default());
    for n in (0..10_000).step_by(997).chain([9_999]) {
        let limit = quota(n).limit();
        assert_eq!(passing(&mut service, || request(&n.to_string())).await, limit, "tenant {n}");
    }
    assert_eq!(passing(&mut service, || request("10000")).await, 50, "who is not among them");
}

#[tokio::test]
async fn a_permit_is_refunded_to_the_tier_that_it_charged() {
    for algorithm in EVERY_ALGORITHM {
        let tiers = [("daily", a_day(algorithm, 4))];
        let rule = a_minute("api", algorithm, 4).by(user()).tiers(tiers, plan);
        let limiter = RateLimitLayer::new([rule]).store(store(&clock())).limiter();
        let [daily, own] = ["daily", "none"].map(|plan| on("ada", plan));
        let left = async |request| {
            limiter.look(&Head::from(request)).await.unwrap().get("api").unwrap().1.remaining()
        };
        let permit = limiter.check(&Head::from(&daily)).await.unwrap();
        assert_eq!((left(&daily).await, left(&own).await), (3, 4), "{algorithm:?}");
        permit.refund().await;
        assert_eq!((left(&daily).await, left(&own).await), (4, 4), "{algorithm:?}");
    }
}

fn a_day(algorithm: Algorithm, limit: u64) -> Quota {
    let quota = Quota::per_day(limit);
    if matches!(algorithm, Algorithm::LeakyBucket { .. }) { quota.burst(limit) } else { quota }
}

#[tokio::test]
async fn a_limiter_of_keys_shares_the_state_of_a_rule_with_tiers() {
    let shared = store(&clock());
    let rule = plans(Algorithm::FIXED_WINDOW);
    let by_key = Limiter::new([rule.policy().clone()]).store(shared.clone());
    let limiter = RateLimitLayer::new([rule]).store(shared).limiter();
    let (asks, ada) = (on("ada", "enterprise"), Key::from("ada"));
    let head = Head::from(&asks);
    assert_eq!(limiter.check(&head).await.unwrap().report().get("api").unwrap().1.remaining(), 7);
    let left = by_key.look(&ada).await.unwrap().get("api").unwrap().1.remaining();
    assert_eq!(left, 1, "of 2, and one is used");
    assert!(by_key.check(&ada, 2).await.is_err());
    assert!(by_key.check(&ada, 1).await.is_ok());
    assert_eq!(limiter.look(&head).await.unwrap().get("api").unwrap().1.remaining(), 6);
}

/// One tier has a longer queue than the others. The delay is that of the caller's tier.
#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_delays_by_the_tiers_rate() {
    let policy = Policy::new("q", Quota::per_second(10));
    let policy = policy.with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) });
    let rule = policy.by(user()).tiers([("slow", Quota::per_second(2))], plan);
    let mut service = layer(&clock(), [rule]).layer(Strict::default());
    for (plan, interval) in [("slow", 500), ("fast", 100)] {
        for n in 0..3 {
            let (response, elapsed) = tollgate_tests::timed(call(&mut service, on(plan, plan))).await;
            assert_eq!(response.status(), 200);
            // The store's clock stands still, so each slot is one interval after the one before.
            assert_eq!(elapsed, Duration::from_millis(n * interval));
        }
    }
    let denied = call(&mut service, on("slow", "slow")).await;
    assert_eq!((denied.status().as_u16(), field(&denied, "retry-after")), (429, Some("1")));
}
