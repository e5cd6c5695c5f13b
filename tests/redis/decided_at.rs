//! When a store decided, by its own clock.

use std::time::Duration;

use tollgate::store::{Check, Store, Times};
use tollgate::{Key, Policy, Quota, StoreExt};
use tollgate_test_servers::{Cluster, Kind};
use tollgate_tests::{clock, store};

use crate::redis::{Fresh, builder, prefix, shared};

/// Grants, denials, looks and sets, with a pair twice and with several keys.
async fn says_when<S: Store>(store: &S, clock: &tollgate::ManualClock) {
    let policies = [Policy::new("a", Quota::per_day(3)), Policy::new("b", Quota::per_day(9))];
    let keys = ["ada", "bob", "eve", "joe"].map(Key::from);
    let [one, two] = [0, 1].map(|at| Check::new(&policies[at], &keys[0], 2));
    let spread: Vec<_> = keys.iter().map(|key| Check::new(&policies[0], key, 1)).collect();
    for set in [vec![one], vec![one], vec![one, two], vec![two, two], spread] {
        for times in [Times::ONCE, Times::LOOK] {
            clock.advance(Duration::from_micros(1_234_567));
            let Ok(verdict) = store.acquire(&set, times).wait().await else { panic!("the store answers") };
            assert_eq!(verdict.decided_at(), Some(clock.now()), "{set:?} {times:?}");
        }
    }
}

#[tokio::test]
async fn verdicts_say_when_the_store_decided() {
    let clock = clock();
    says_when(&store(&clock), &clock).await;
    let with_clock = |builder: tollgate_redis::RedisStoreBuilder| builder.clock(&clock);
    let fresh = Fresh::with(shared(Kind::Redis8_2), tollgate_redis::SlidingLogLayout::List, with_clock).await;
    says_when(&fresh.store, &clock).await;
    says_when(&fresh.store.clone().timeout(Duration::from_secs(60)).fail_closed().boxed(), &clock).await;
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let store = builder(&cluster.nodes()[0].url().replace("redis://", "redis-cluster://"));
    says_when(&store.prefix(prefix()).clock(&clock).connect().await.unwrap(), &clock).await;
}
