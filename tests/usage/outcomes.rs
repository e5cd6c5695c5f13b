//! What counts, and for which key.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::store::{Check, Reply, Store, Times};
use tollgate::usage::top_keys::{KeyUsage, Recording, UsageOf};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, Later, keeps_the_contract};

use crate::usage::{HOUR, ample, ask, counts, in_memory};

#[test]
fn a_counted_store_keeps_the_contract() {
    let counted = |one_in| Recording::default().one_in(one_in);
    keeps_the_contract(move |clock| {
        MemoryStore::builder().clock(clock).build().count_usage(&in_memory(counted(2)).1)
    });
    keeps_the_contract(move |clock| {
        let store = Later::deciding_last(MemoryStore::builder().clock(clock).build());
        store.count_usage(&in_memory(counted(1)).1)
    });
}

async fn counts_each_outcome(store: impl Store<Error = Infallible>) {
    let (usage, recorder, _) = in_memory(Recording::default());
    let store = store.count_usage(&recorder);
    let (few, many, keys) =
        (Policy::new("few", Quota::per_day(2)), ample("many"), ["ada", "bob"].map(Key::from));
    let set = [Check::new(&few, &keys[0], 1), Check::new(&many, &keys[1], 1)];
    for _ in 0..5 {
        store.acquire(&set, Times::ONCE).wait().await.unwrap();
        // None of these counts.
        store.acquire(&set, Times::LOOK).wait().await.unwrap();
        store.acquire(&[Check::new(&many, &keys[0], 0)], Times::ONCE).wait().await.unwrap();
    }
    recorder.flush().await.unwrap();
    let allowed = usage.top_allowed(10, HOUR).await.unwrap();
    let names: Vec<_> = allowed.iter().map(|of| (&*of.policy, &*of.key, of.count)).collect();
    assert_eq!(names, [("few", "=ada", 2), ("many", "=bob", 2)]);
    let denied = usage.top_denied(10, HOUR).await.unwrap();
    let names: Vec<_> = denied.iter().map(|of| (&*of.policy, &*of.key, of.count)).collect();
    assert_eq!(names, [("few", "=ada", 3)], "only the rule that refused");
    for (of, due) in [
        (UsageOf::Policy("few"), (2, 3)),
        (UsageOf::Policy("many"), (2, 0)),
        (UsageOf::Policy("other"), (0, 0)),
        (UsageOf::Key(&keys[0]), (2, 3)),
    ] {
        let series = usage.series(of, HOUR).await.unwrap();
        let last = series.last().unwrap();
        assert_eq!((series.len(), last.allowed, last.denied), (60, due.0, due.1), "{of:?}");
    }
}

#[tokio::test]
async fn a_denial_counts_for_the_rules_that_refused() {
    counts_each_outcome(MemoryStore::new()).await;
    counts_each_outcome(Later::deciding_first(MemoryStore::new())).await;
}

#[tokio::test]
async fn a_request_counts_once_for_a_rule_that_blocks() {
    let (usage, recorder, _) = in_memory(Recording::default());
    let few = Policy::new("few", Quota::per_day(2)).block_after(3, Duration::from_secs(900));
    let limiter = Limiter::new([few, ample("many")]).store(MemoryStore::new().count_usage(&recorder));
    // Two are allowed, three denied, and four blocked. The quota has no room for these either.
    for _ in 0..9 {
        let _ = limiter.check(&Key::from("ada"), 1).await;
    }
    recorder.flush().await.unwrap();
    let of = |keys: Vec<KeyUsage>| -> Vec<_> { keys.into_iter().map(|of| (of.policy, of.count)).collect() };
    let allowed = of(usage.top_allowed(5, HOUR).await.unwrap());
    assert_eq!(allowed, [("few".to_owned(), 2), ("many".to_owned(), 2)]);
    assert_eq!(of(usage.top_denied(5, HOUR).await.unwrap()), [("few".to_owned(), 7)]);
}

#[tokio::test]
async fn keys_of_rules_in_shadow_push_out_no_others() {
    let (usage, recorder, _) = in_memory(Recording::default().keys(1));
    let store = MemoryStore::new().count_usage(&recorder);
    for _ in 0..3 {
        assert!(ask(&store, &ample("api"), "ada").await);
    }
    for number in 0..10_000 {
        ask(&store.in_shadow(), &ample("planned"), &format!("{}", number % 5_000)).await;
    }
    recorder.flush().await.unwrap();
    let top = usage.top_allowed(10, HOUR).await.unwrap();
    let ada = top.iter().find(|of| of.policy == "api").map(|of| (&*of.key, of.count));
    assert_eq!(ada, Some(("=ada", 3)));
    assert!(top.iter().any(|of| of.policy == "planned"), "they have places of their own");
}

#[tokio::test]
async fn a_request_that_a_failure_policy_refuses_is_no_denial_of_its_key() {
    for (passes, due) in [(true, vec![("=ada", 1)]), (false, vec![])] {
        let (usage, recorder, _) = in_memory(Recording::default());
        let failing = Failing::new(MemoryStore::new(), Connection::Fails(Fault::Unreachable));
        let store = if passes { failing.fail_open() } else { failing.fail_closed() };
        assert_eq!(ask(&store.count_usage(&recorder), &ample("api"), "ada").await, passes);
        recorder.flush().await.unwrap();
        assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), due);
        assert!(usage.top_denied(5, HOUR).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_decision_whose_caller_left_is_not_counted() {
    let (usage, recorder, _) = in_memory(Recording::default());
    let store = Later::deciding_last(MemoryStore::new()).count_usage(&recorder);
    let (policy, key) = (ample("api"), Key::from("ada"));
    let Reply::Later(left) = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE) else {
        panic!("an answer at once")
    };
    drop(left);
    assert!(ask(&store, &policy, "bob").await);
    recorder.flush().await.unwrap();
    assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=bob", 1)]);
}
