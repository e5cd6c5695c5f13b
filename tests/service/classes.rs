//! Classes of requests that leave units to others.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::time::Duration;

use http::Request;
use tollgate::extract::header;
use tollgate::{
    Algorithm, Head, Key, Permit, Policy, PolicyError, PolicyExt, Quota, RequestLimiter, Rule, SetupError,
};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, clock, store};

fn class(head: &Head<'_>, _: &Key) -> Option<String> {
    Some(head.headers().get("x-class")?.to_str().ok()?.to_owned())
}

fn tier(head: &Head<'_>, _: &Key) -> Option<String> {
    Some(head.headers().get("x-tier")?.to_str().ok()?.to_owned())
}

fn rule(policy: Policy) -> Rule {
    policy.by(header("x-user")).leaving([("batch", 4), ("background", 8)], class)
}

async fn ask<S>(limiter: &RequestLimiter<S>, names: &[(&str, &str)]) -> Option<Permit>
where
    S: tollgate::store::Store<Error: tollgate::store::NeverFails>,
{
    let mut request = Request::get("/").header("x-user", "ada");
    for (name, value) in names {
        request = request.header(*name, *value);
    }
    limiter.check(&Head::from(&request.body(()).unwrap())).await.ok()
}

#[tokio::test]
async fn a_class_leaves_its_units_to_others() {
    let in_flight = || Policy::in_flight("p", 10);
    let policies = EVERY_ALGORITHM.into_iter().map(|algorithm| a_minute("p", algorithm, 10));
    for policy in policies.chain([in_flight()]) {
        let limiter = RequestLimiter::new(rule(policy.clone())).store(store(&clock()));
        let mut permits = Vec::new();
        for (class, left) in [("background", 2), ("batch", 4), ("none", 4)] {
            for n in 0..left {
                let permit = ask(&limiter, &[("x-class", class)]).await;
                permits.push(permit.unwrap_or_else(|| panic!("{class} {n} of {:?}", policy.algorithm())));
            }
            assert!(class == "none" || ask(&limiter, &[("x-class", class)]).await.is_none(), "{class}");
        }
        assert!(ask(&limiter, &[]).await.is_none());
    }
}

#[tokio::test]
async fn a_class_of_a_bucket_gets_the_whole_rate_after_its_burst() {
    let time = clock();
    let limiter = RequestLimiter::new(rule(a_minute("p", Algorithm::Gcra, 10))).store(store(&time));
    let mut passed = 0;
    for _ in 0..60 {
        passed += u32::from(ask(&limiter, &[("x-class", "batch")]).await.is_some());
        time.advance(Duration::from_secs(1));
    }
    assert_eq!(passed, 6 + 9, "at once, and one for each 6 s");
}

#[tokio::test]
async fn a_class_leaves_as_many_units_of_each_tier() {
    let rule = rule(a_minute("p", Algorithm::FIXED_WINDOW, 10)).tiers([("pro", Quota::per_minute(20))], tier);
    let limiter = RequestLimiter::new(rule).store(store(&clock()));
    let batch = [("x-class", "batch"), ("x-tier", "pro")];
    let mut passed = 0;
    while ask(&limiter, &batch).await.is_some() {
        passed += 1;
    }
    assert_eq!(passed, 16);
    assert!(ask(&limiter, &[("x-class", "background"), ("x-tier", "pro")]).await.is_none());
    assert!(ask(&limiter, &[("x-tier", "pro")]).await.is_some());
    assert!(ask(&limiter, &[]).await.is_none(), "the rule's own quota is used up");
}

#[test]
fn invalid_classes_are_refused_at_construction() {
    let rule = || Policy::new("p", Quota::per_minute(10)).by(header("x-user"));
    let leaving = |classes: &[(&str, u64)]| rule().try_leaving(classes.iter().copied(), class).map(drop);
    assert_eq!(leaving(&[("batch", 9)]), Ok(()));
    assert_eq!(leaving(&[]), Err(SetupError::NoClasses));
    assert_eq!(leaving(&[("", 1)]), Err(SetupError::UnnamedClass));
    assert_eq!(leaving(&[("a", 1), ("b", 1), ("a", 2)]), Err(SetupError::ClassTwice("a".to_owned())));
    let nothing = SetupError::ClassQuota("a".to_owned(), PolicyError::NothingLeft);
    assert_eq!(leaving(&[("a", 10)]), Err(nothing.clone()));
    let later = rule().leaving([("a", 5)], class).try_tiers([("small", Quota::per_minute(5))], tier);
    assert_eq!(later.map(drop), Err(nothing));
}
