//! Handlers that name a rule, while a file renames it, puts it in shadow, or takes its block away.

use std::time::Duration;

use tollgate::{Head, Key, Limiter, Policy, RateLimitLayer, Reason, Rule, SetupError};
use tollgate_tests::{clock, per_minute, per_user, request, store};

fn blocks() -> Rule {
    per_user("api", 5).block_after(3, Duration::from_secs(600))
}

#[tokio::test]
async fn a_rule_that_is_renamed_or_unblocked_is_an_error_and_no_panic() {
    let layer = RateLimitLayer::new(blocks()).store(store(&clock()));
    let (ada, key) = (request("ada"), Key::from("ada"));
    assert_eq!(layer.limiter().try_blocked("api", &key).await, Ok(None));
    layer.limiter().try_block("api", &key).await.unwrap();
    assert!(layer.limiter().try_blocked("api", &key).await.unwrap().is_some());
    layer.limiter().try_unblock("api", &key).await.unwrap();
    let mut permit = layer.limiter().check(&Head::from(&ada)).await.unwrap();

    let unknown = SetupError::UnknownPolicy("api".to_owned(), vec!["renamed".to_owned()]);
    let none = SetupError::NoBlocks("api".to_owned());
    for (rule, error) in [(per_user("renamed", 5), unknown.clone()), (per_user("api", 5), none)] {
        layer.replace(rule).unwrap();
        let limiter = layer.limiter();
        assert_eq!(limiter.try_block("api", &key).await, Err(error.clone()));
        assert_eq!(limiter.try_unblock("api", &key).await, Err(error.clone()));
        assert_eq!(limiter.try_blocked("api", &key).await, Err(error));
    }
    layer.replace(per_user("renamed", 5)).unwrap();
    let mut newer = layer.limiter().check(&Head::from(&ada)).await.unwrap();
    assert_eq!(newer.try_charge("api").unwrap_err(), unknown);
    let charge = permit.try_charge("api").unwrap();
    assert_eq!((charge.policy(), charge.reserved()), ("api", 1), "the permit is of the rule's own time");
}

/// An operator's command reaches the processes that enforce the rule.
#[tokio::test]
async fn blocks_of_a_rule_in_shadow_are_those_of_its_enforced_namesake() {
    let store = store(&clock());
    let enforced = RateLimitLayer::new(blocks()).store(store.clone()).limiter();
    let canary = RateLimitLayer::new(blocks().shadow()).store(store).limiter();
    let (ada, key) = (request("ada"), Key::from("ada"));
    canary.block("api", &key).await;
    assert!(canary.blocked("api", &key).await.is_some());
    let refused = enforced.check(&Head::from(&ada)).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Blocked);
    let mut permit = canary.check(&Head::from(&ada)).await.unwrap();
    let charge = permit.charge("api");
    assert_eq!((charge.policy(), charge.reserved()), ("api", 0), "in shadow a request is charged nothing");
    canary.unblock("api", &key).await;
    assert_eq!(enforced.blocked("api", &key).await, None);
    assert!(enforced.check(&Head::from(&ada)).await.is_ok());
}

#[tokio::test]
async fn a_limiter_reports_names_that_it_does_not_have() {
    let limiter = Limiter::new([per_minute("a", 5), per_minute("b", 5)]).store(store(&clock()));
    let key = Key::from("ada");
    let names = vec!["a".to_owned(), "b".to_owned()];
    let unknown = SetupError::UnknownPolicy("c".to_owned(), names);
    let twice = SetupError::AskedTwice("a".to_owned());
    for (each, error) in [([("a", &key), ("c", &key)], &unknown), ([("a", &key), ("a", &key)], &twice)] {
        let costs = each.map(|(name, key)| (name, key, 1));
        assert_eq!(&limiter.try_check_each(&costs).await.unwrap_err(), error);
        assert_eq!(&limiter.try_look_each(&each).await.unwrap_err(), error);
        assert_eq!(&limiter.try_until_ready_each(&costs, Duration::ZERO).await.unwrap_err(), error);
    }
    let mut permit = limiter.try_check_each(&[("b", &key, 2), ("a", &key, 1)]).await.unwrap().unwrap();
    assert_eq!(permit.try_charge("c").unwrap_err(), unknown);
    assert_eq!(permit.try_charge("b").unwrap().reserved(), 2);
    let report = limiter.try_look_each(&[("a", &key)]).await.unwrap().unwrap();
    assert_eq!(report.policies().map(Policy::name).collect::<Vec<_>>(), ["a"]);
    let no_key = limiter.try_check_each(&[("a", &Key::from(""), 1)]).await.unwrap().unwrap_err();
    assert_eq!(no_key.reason(), Reason::NoKey);
}
