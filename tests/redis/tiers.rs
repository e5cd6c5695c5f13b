//! Quotas that depend on the request: policies of one name and window with different limits share
//! state.

use http::Request;
use tollgate::extract::header;
use tollgate::store::Settled;
use tollgate::store::{Check, Store, Times, Verdict};
use tollgate::{
    Algorithm, Head, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RequestLimiter, StoreExt,
};
use tollgate_redis::SlidingLogLayout;
use tollgate_test_servers::Kind;
use tollgate_tests::EVERY_ALGORITHM;

use crate::redis::{BothLayouts, Fresh, crowd, shared};

/// Every algorithm without a queue of its own, and the log in both layouts.
fn algorithms() -> impl Iterator<Item = (Algorithm, SlidingLogLayout)> {
    EVERY_ALGORITHM
        .into_iter()
        .filter(|algorithm| !matches!(algorithm, Algorithm::LeakyBucket { .. }))
        .map(|algorithm| (algorithm, SlidingLogLayout::List))
        .chain([(Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet)])
}

/// Callers of different tiers travel in one call under one name. Each is decided by its own limit.
#[tokio::test]
async fn concurrent_tiers_of_one_key_are_not_confused() {
    for &kind in Kind::EVERY {
        let stores = BothLayouts::on(shared(kind)).await;
        for (algorithm, layout) in algorithms() {
            let fresh = stores.of(layout);
            // Almost nothing comes back meanwhile, and no window of a year ends.
            let of = |limit| {
                let quota = Quota::new(limit, 365 * std::time::Duration::from_secs(86_400));
                Policy::new("api", quota).with_algorithm(algorithm)
            };
            let (key, free, pro) = (Key::from("ada"), of(20), of(60));
            crowd(&fresh.store).await;
            let replies: Vec<_> = (0..256)
                .map(|n| if n % 2 == 0 { &free } else { &pro })
                .map(|policy| fresh.store.acquire(&[Check::new(policy, &key, 1)], Times::ONCE))
                .collect();
            let mut verdicts: Vec<Verdict> = Vec::new();
            for reply in replies {
                verdicts.push(reply.wait().await.unwrap());
            }
            let granted = |tier: usize| -> u32 {
                verdicts.iter().skip(tier).step_by(2).map(|verdict| u32::from(verdict.is_granted())).sum()
            };
            let (of_free, of_pro) = (granted(0), granted(1));
            assert!((1..=20).contains(&of_free), "{of_free} of the smaller tier, {algorithm:?} on {kind}");
            // A bucket stores debt as time. A unit of the smaller tier takes three times as much.
            let worth = if algorithm == Algorithm::Gcra { 3 } else { 1 };
            assert_eq!(of_free * worth + of_pro, 60, "{of_free} and {of_pro}, {algorithm:?} on {kind}");
            fresh.store.reset(&key, &[&free]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_limiter_charges_refunds_and_resets_the_tier_of_a_request() {
    let tier = |head: &Head<'_>, _: &Key| Some(head.headers().get("x-plan")?.to_str().ok()?.to_owned());
    let rule = Policy::new("api", Quota::per_day(2))
        .with_algorithm(Algorithm::FIXED_WINDOW)
        .by(header("x-user"))
        .tiers([("pro", Quota::per_day(4)), ("hourly", Quota::per_hour(3))], tier);
    let fresh = Fresh::on(shared(Kind::Redis6_2)).await;
    let limiter = RequestLimiter::new([rule]).store(fresh.store.clone().fail_closed());
    let [free, pro, hourly] = ["free", "pro", "hourly"]
        .map(|plan| Request::builder().header("x-user", "ada").header("x-plan", plan).body(()).unwrap());
    let left = async || {
        let mut left = Vec::new();
        for request in [&free, &pro, &hourly] {
            left.push(limiter.look(&Head::from(request)).await.unwrap().get("api").unwrap().1.remaining());
        }
        left
    };
    let _kept = limiter.check(&Head::from(&free)).await.unwrap();
    let given_back = limiter.check(&Head::from(&hourly)).await.unwrap();
    assert_eq!(left().await, [1, 3, 2], "those of one window share a state");
    given_back.refund().await;
    assert_eq!(left().await, [1, 3, 3]);
    let (_second, _third) =
        (limiter.check(&Head::from(&pro)).await.unwrap(), limiter.check(&Head::from(&hourly)).await.unwrap());
    assert!(limiter.check(&Head::from(&free)).await.is_err());
    assert_eq!(left().await, [0, 2, 2]);
    limiter.reset(&Key::from("ada")).await;
    assert_eq!(left().await, [2, 4, 3]);
}

/// Each tier has a bucket of its own, and what one has used is not forgiven by the other.
#[tokio::test]
async fn a_tier_of_a_smaller_burst_forgives_no_debt_of_a_larger() {
    let tier = |head: &Head<'_>, _: &Key| head.headers().contains_key("x-small").then_some("small");
    for &kind in Kind::EVERY {
        // All is back after 12 days, or after 24 minutes. So almost nothing comes back meanwhile.
        let rule = Policy::new("api", Quota::per_day(10).burst(120))
            .by(header("x-user"))
            .tiers([("small", Quota::per_day(600).burst(10))], tier);
        let fresh = Fresh::on(shared(kind)).await;
        let limiter = RequestLimiter::new([rule]).store(fresh.store.clone().fail_closed());
        let request = |name: &str| {
            let request = Request::builder().header("x-user", "ada").header(name, "");
            request.body(()).unwrap()
        };
        let (large, small) = (request("x-large"), request("x-small"));
        let mut passed = 0;
        for _ in 0..200 {
            for request in [&large, &small] {
                passed += u32::from(limiter.check(&Head::from(request)).await.is_ok());
            }
        }
        assert!((120..=131).contains(&passed), "{passed} on {kind}");
        let denial = limiter.check(&Head::from(&small)).await.unwrap_err();
        assert!(denial.retry_after().unwrap() <= std::time::Duration::from_secs(144), "{denial:?}");
        let denial = limiter.check(&Head::from(&large)).await.unwrap_err();
        assert!(denial.retry_after().unwrap() > std::time::Duration::from_secs(7_200), "{denial:?}");
    }
}

/// Classes of a rule, whose policy may be of a class itself.
#[tokio::test]
async fn what_a_class_used_beyond_its_estimate_is_charged_by_the_whole_quota() {
    let fresh = Fresh::on(shared(Kind::Redis6_2)).await;
    let class = |_: &Head<'_>, _: &Key| Some("batch");
    for store in [MemoryStore::new().boxed(), fresh.store.clone().fail_closed().boxed()] {
        for (algorithm, _) in algorithms() {
            let quota = Quota::new(10, 365 * std::time::Duration::from_secs(86_400));
            let whole = Policy::new("tokens", quota).with_algorithm(algorithm);
            for policy in [whole.clone(), whole.leaving(1).unwrap()] {
                let batch = policy.by(header("x-user")).reserve(|_| 1).leaving([("batch", 8)], class);
                let batch = RequestLimiter::new(batch).store(store.clone());
                let all = Limiter::new([whole.clone()]).store(store.clone());
                let key = Key::from("ada");
                let request = Request::builder().header("x-user", "ada").body(()).unwrap();
                let mut permit = batch.check(&Head::from(&request)).await.unwrap();
                let charge = permit.charge("tokens");
                let settled = charge.settle(9).await;
                assert_eq!(
                    settled,
                    Settled { charged: 9, debt: 0, forgiven: 0, ..Settled::default() },
                    "{algorithm:?}"
                );
                assert!(batch.check(&Head::from(&request)).await.is_err());
                assert!(all.check(&key, 1).await.is_ok() && all.check(&key, 1).await.is_err());
                all.reset(&key).await;
            }
        }
    }
}
