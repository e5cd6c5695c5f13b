//! The outcome of each rule.

use std::time::Duration;

use tollgate::extract::header;
use tollgate::store::Source;
use tollgate::{
    Head, Key, Limiter, MissingKey, Outcome, Policy, PolicyExt, Quota, RateLimitLayer, RequestLimiter,
    StoreExt,
};
use tollgate_tests::{
    Connection, Failing, Fault, Strict, bucket, call, clock, per_minute, per_user, request, store,
};
use tower::Layer;

use crate::observe::{Eye, named};

/// The layer and the limiter show the same, because both use one step.
#[tokio::test]
async fn each_rule_shows_one_decision_for_each_request() {
    let eye = Eye::default();
    let rules = || [per_user("few", 1), per_user("many", 100)];
    let limiter = RequestLimiter::new(rules()).store(store(&clock())).observe(eye.watch());
    let layer = RateLimitLayer::new(rules()).store(store(&clock())).observe(eye.watch());
    let mut service = layer.layer(Strict::default());
    let (passes, refused) = (Outcome::Allowed, Outcome::Denied);
    for expected in [[passes, passes], [refused, Outcome::NotCharged]] {
        let expected = named(&[("few", expected[0], 1), ("many", expected[1], 1)]);
        let _ = limiter.check(&Head::from(&request("ada"))).await;
        assert_eq!(eye.outcomes(), expected);
        call(&mut service, request("ada")).await;
        assert_eq!(eye.outcomes(), expected);
    }
}

#[tokio::test]
async fn a_denial_shows_its_wait_and_an_allowed_request_none() {
    let eye = Eye::default();
    let limiter = Limiter::new([per_minute("p", 60)]).store(store(&clock())).observe(eye.watch());
    let ada = Key::from("ada");
    assert!(limiter.check(&ada, 60).await.is_ok());
    let denial = limiter.check(&ada, 2).await.unwrap_err();
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(2)));
    let seen = eye.take();
    assert_eq!((seen[0].outcome, seen[0].units, seen[0].wait), (Outcome::Allowed, 60, None));
    assert_eq!((seen[1].outcome, seen[1].units, seen[1].wait), (Outcome::Denied, 2, denial.retry_after()));
    assert!(seen.iter().all(|seen| seen.source == Source::Store && seen.latency.is_none()), "{seen:?}");
}

#[tokio::test]
async fn a_cost_beyond_the_quota_is_never_possible_for_that_rule_only() {
    let eye = Eye::default();
    let limiter = Limiter::new([per_minute("few", 2), per_minute("many", 100)]).observe(eye.watch());
    let _ = limiter.check(&Key::from("ada"), 3).await;
    assert_eq!(
        eye.outcomes(),
        named(&[("few", Outcome::NeverPossible, 3), ("many", Outcome::NotCharged, 3)])
    );
}

#[tokio::test]
async fn a_rule_that_does_not_apply_is_not_seen() {
    let eye = Eye::default();
    let exempt = per_user("exempt", 1).exempt(|_: &Head<'_>| true);
    let skips = Policy::new("skips", Quota::per_minute(1)).by(header("x-absent"));
    let rules = [exempt, skips.on_missing_key(MissingKey::Skip), per_user("applies", 1)];
    let limiter = RequestLimiter::new(rules).observe(eye.watch());
    let _ = limiter.check(&Head::from(&request("ada"))).await;
    assert_eq!(eye.outcomes(), named(&[("applies", Outcome::Allowed, 1)]));
}

#[tokio::test]
async fn a_layer_that_is_switched_off_shows_nothing() {
    let eye = Eye::default();
    let layer = RateLimitLayer::new([per_user("p", 1)]).observe(eye.watch());
    layer.set_enabled(false);
    call(&mut layer.layer(Strict::default()), request("ada")).await;
    assert_eq!(eye.outcomes(), []);
}

#[tokio::test]
async fn a_request_without_a_key_is_shown_with_the_rule_that_needs_it() {
    let eye = Eye::default();
    let needs = || Policy::new("needs", Quota::per_minute(1)).by(header("x-absent"));
    let rules = || [per_user("p", 1), needs()];
    let expected = named(&[("needs", Outcome::NoKey, 0)]);
    let limiter = RequestLimiter::new(rules()).observe(eye.watch());
    let _ = limiter.check(&Head::from(&request("ada"))).await;
    assert_eq!(eye.outcomes(), expected);
    let layer = RateLimitLayer::new(rules()).observe(eye.watch());
    call(&mut layer.layer(Strict::default()), request("ada")).await;
    assert_eq!(eye.outcomes(), expected);
}

#[tokio::test(start_paused = true)]
async fn only_a_leaky_bucket_delays() {
    let eye = Eye::default();
    let policies = [bucket("queue", Duration::from_secs(1)), per_minute("p", 100)];
    let limiter = Limiter::new(policies).store(store(&clock())).observe(eye.watch());
    let ada = Key::from("ada");
    let _ = limiter.check(&ada, 1).await;
    assert_eq!(eye.outcomes(), named(&[("queue", Outcome::Allowed, 1), ("p", Outcome::Allowed, 1)]));
    let _ = limiter.check(&ada, 1).await;
    let seen = eye.take();
    assert_eq!(seen[0].outcome, Outcome::Delayed);
    assert_eq!(seen[0].wait, Some(Duration::from_millis(100)));
    assert_eq!((seen[1].outcome, seen[1].wait), (Outcome::Allowed, None));
}

#[tokio::test]
async fn a_tier_shows_its_own_policy() {
    let limits = Eye::default();
    let tier = |_: &Head<'_>, key: &Key| (*key == Key::from("eve")).then_some("pro");
    let tiered = per_user("tiered", 1).tiers([("pro", Quota::per_minute(600))], tier);
    let quota = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let copy = quota.clone();
    let limiter = RequestLimiter::new([per_user("p", 10), tiered, per_user("q", 10)])
        .observe(limits.watch())
        .observe(move |decision| copy.lock().unwrap().push(decision.policy().quota().limit()));
    let _ = limiter.check(&Head::from(&request("eve"))).await;
    assert_eq!(*quota.lock().unwrap(), [10, 600, 10], "the second observer is called too");
    let all = ["p", "tiered", "q"].map(|name| (name, Outcome::Allowed, 1));
    assert_eq!(limits.outcomes(), named(&all));
}

#[tokio::test]
async fn looks_refunds_and_resets_show_nothing() {
    let eye = Eye::default();
    let limiter = Limiter::new([per_minute("p", 1)]).observe(eye.watch());
    let ada = Key::from("ada");
    let permit = limiter.check(&ada, 1).await.unwrap();
    eye.take();
    let _ = limiter.look(&ada).await;
    let _ = limiter.look(&Key::from("")).await;
    permit.refund().await;
    limiter.reset(&ada).await;
    assert_eq!(eye.take(), []);
}

#[tokio::test]
async fn a_charge_shows_extensions_and_its_end_for_its_policy_only() {
    let eye = Eye::default();
    let policies = [per_minute("calls", 5), per_minute("p", 100)];
    let limiter = Limiter::new(policies).store(store(&clock())).observe(eye.watch());
    let mut permit = limiter.check(&Key::from("ada"), 1).await.unwrap();
    eye.take();
    let charge = permit.charge("p");
    charge.extend(40).await.unwrap();
    charge.extend(60).await.unwrap_err();
    assert_eq!(eye.outcomes(), named(&[("p", Outcome::Allowed, 40), ("p", Outcome::Denied, 60)]));
    charge.settle(250).await;
    assert_eq!(eye.outcomes(), named(&[("p", Outcome::Settled, 200), ("p", Outcome::Forgiven, 50)]));
    charge.settle(0).await;
    assert_eq!(eye.take(), []);
}

#[tokio::test]
async fn a_layer_and_its_limiter_share_their_observers() {
    let eye = Eye::default();
    let layer = RateLimitLayer::new([per_user("p", 1)]).observe(eye.watch()).store(store(&clock()));
    let _ = layer.limiter().check(&Head::from(&request("ada"))).await;
    assert_eq!(eye.outcomes(), named(&[("p", Outcome::Allowed, 1)]));
}

#[tokio::test]
async fn a_block_that_starts_is_shown_once_after_its_denial() {
    let (one, other) = (Eye::default(), Eye::default());
    let policy = per_minute("p", 1).block_after(2, Duration::from_secs(900));
    let shared = store(&clock());
    let limiter = |eye: &Eye| Limiter::new([policy.clone()]).store(shared.clone()).observe(eye.watch());
    let (first, second) = (limiter(&one), limiter(&other));
    let ada = Key::from("ada");
    for _ in 0..4 {
        let _ = first.check(&ada, 1).await;
    }
    let (denied, started) = (("p", Outcome::Denied, 1), ("p", Outcome::BlockStarted, 0));
    let expected = [("p", Outcome::Allowed, 1), denied, denied, started, ("p", Outcome::Blocked, 1)];
    // The block starts before the caller has its denial.
    assert_eq!(one.outcomes(), named(&expected));
    // Neither a second process nor an operator starts it again.
    let _ = second.check(&ada, 1).await;
    second.block("p", &ada).await;
    assert_eq!(other.outcomes(), named(&[("p", Outcome::Blocked, 1)]));
    second.unblock("p", &ada).await;
    second.block("p", &ada).await;
    assert_eq!(other.outcomes(), named(&[started]));
}

#[tokio::test]
async fn a_block_that_the_store_fails_to_start_is_shown_as_dropped() {
    let eye = Eye::default();
    let failing = Failing::new(store(&clock()), Connection::Fails(Fault::Unreachable));
    let policy = per_minute("p", 1).block_after(2, Duration::from_secs(900));
    let limiter = Limiter::new([policy]).store(failing.fail_closed()).observe(eye.watch());
    limiter.block("p", &Key::from("ada")).await;
    assert_eq!(eye.outcomes(), named(&[("p", Outcome::BlockDropped, 0)]));
}

/// Otherwise the second panic would abort the process, and this test with it.
#[tokio::test]
async fn an_observer_may_panic_while_a_handler_panics() {
    let limiter = Limiter::new([Policy::in_flight("slots", 1)])
        .observe(|decision| assert_ne!(decision.outcome(), Outcome::Released, "the observer panics"));
    let (key, of_handler) = (Key::from("ada"), limiter.clone());
    let handler = tokio::spawn(async move {
        let _permit = of_handler.check(&Key::from("ada"), 1).await.unwrap();
        panic!("the handler panics");
    });
    assert!(handler.await.unwrap_err().is_panic());
    assert_eq!(limiter.look(&key).await.unwrap().statuses()[0].remaining(), 1);
}
