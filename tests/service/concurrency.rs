//! The whole service under concurrent callers admits exactly the limit.

use std::time::Duration;

use tollgate::{PolicyExt, RateLimitLayer, StoreExt};
use tollgate_tests::{
    EVERY_ALGORITHM, Later, Strict, a_minute, call, clock, per_user, queue, request, store, user,
};
use tower::{Layer, ServiceExt};

const TASKS: usize = 64;

/// 64 tasks with services of their own. Each asks `each` times.
async fn passed(
    layer: &RateLimitLayer<impl tollgate::store::Store<Error = std::convert::Infallible>>,
    each: usize,
) -> u32 {
    let inner = Strict::default();
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let mut service = layer.layer(inner.clone());
        tasks.push(tokio::spawn(async move {
            let mut passed = 0;
            for n in 0..each {
                passed += u32::from(call(&mut service, request("ada")).await.status() == 200);
                if n % 8 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            passed
        }));
    }
    let mut passed = 0;
    for task in tasks {
        passed += task.await.expect("no panic");
    }
    assert_eq!(inner.calls(), passed, "what was answered is what was served");
    passed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_callers_get_exactly_the_limit_under_every_algorithm() {
    for algorithm in EVERY_ALGORITHM {
        let clock = clock();
        let layer = RateLimitLayer::new([a_minute("p", algorithm, 1_000).by(user())]);
        assert_eq!(passed(&layer.clone().store(store(&clock)), 32).await, 1_000, "{algorithm:?}");
        let later = Later::deciding_last(store(&clock));
        assert_eq!(passed(&layer.store(later), 32).await, 1_000, "{algorithm:?}, awaited");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_callers_of_several_rules_get_the_scarcest_limit_exactly() {
    for store in [store(&clock()).boxed(), Later::deciding_first(store(&clock())).boxed()] {
        let mut rules: Vec<_> = EVERY_ALGORITHM
            .iter()
            .enumerate()
            .map(|(n, algorithm)| a_minute(&format!("p{n}"), *algorithm, 900).by(user()))
            .collect();
        rules.insert(3, per_user("scarcest", 700));
        let layer = RateLimitLayer::new(rules).store(store);
        assert_eq!(passed(&layer, 20).await, 700);
        let left = layer.limiter().look(&tollgate::Head::from(&request("ada"))).await.unwrap();
        for (policy, status) in left.iter().filter(|(policy, _)| policy.name() != "scarcest") {
            assert_eq!(status.remaining(), 200, "{} was charged for what passed only", policy.name());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_of_a_queue_get_one_slot_each() {
    let inner = Strict::default();
    let layer = RateLimitLayer::new([queue("q", Duration::from_secs(5))]).store(store(&clock()));
    let service = layer.layer(inner.clone());
    let calls = (0..200).map(|_| tokio::spawn(service.clone().oneshot(request("ada"))));
    let mut passed = 0;
    for call in calls.collect::<Vec<_>>() {
        passed += u32::from(call.await.unwrap().unwrap().status() == 200);
    }
    assert_eq!((passed, inner.calls()), (51, 51), "one at once and one each 100 ms of 5 s");
}
