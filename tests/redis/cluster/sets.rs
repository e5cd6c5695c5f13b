//! Sets whose keys are in different slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{Check, ErrorKind, Grant, Store, StoreError, Times};
use tollgate::{Algorithm, Key, Policy, Quota, StoreExt, Wait};
use tollgate_test_servers::{Cluster, Kind};
use tollgate_tests::{Proxy, Way};

use super::{a_day, elsewhere, home, start, store};
use crate::redis::{acquire, builder, eventually, prefix, used};

/// One of the slots refuses, so the grants of the others are refunded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_over_several_slots_charges_no_key_when_one_refuses() {
    let (cluster, prefix, store) = start(Kind::Redis6_2).await;
    let other = elsewhere(&cluster, &prefix, "ada");
    for algorithm in [Algorithm::FIXED_WINDOW, Algorithm::Gcra, Algorithm::SLIDING_LOG] {
        let of = |limit| Policy::new("p", Quota::per_day(limit)).with_algorithm(algorithm);
        let (wide, scarce) = (of(100), Policy::new("scarce", Quota::per_day(3)).with_algorithm(algorithm));
        let (ada, bob) = (Key::from("ada"), Key::from(&*other));
        for set in [
            [Check::new(&wide, &ada, 1), Check::new(&scarce, &bob, 1)],
            [Check::new(&scarce, &bob, 1), Check::new(&wide, &ada, 1)],
        ] {
            let mut replies = JoinSet::new();
            for _ in 0..20 {
                replies.spawn(store.acquire(&set, Times::ONCE).wait());
            }
            let granted: u64 =
                replies.join_all().await.into_iter().map(|reply| u64::from(reply.unwrap().times())).sum();
            // Some are refused units that come back a moment later.
            assert!(granted <= 3, "{granted}");
            assert_eq!(used(&store, &scarce, &other).await, granted);
            assert_eq!(used(&store, &wide, "ada").await, granted, "{algorithm:?}");
            store.reset(&ada, &[&wide]).await.unwrap();
            store.reset(&bob, &[&scarce]).await.unwrap();
        }
    }
}

/// A circuit breaker counts it once. The sets were only looked at, so nothing is charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_of_a_node_is_one_failure_of_all_sets_that_wait_for_it() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let other = elsewhere(&cluster, &prefix, "ada");
    let (policy, keys) = (a_day("p", 100), [Key::from("ada"), Key::from(&*other)]);
    let set = keys.each_ref().map(|key| Check::new(&policy, key, 1));
    assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
    let hasty = store.clone().timeout(Duration::from_secs(2));
    let (_, node) = home(&cluster, &prefix, "ada");
    node.pause().unwrap();
    let asked: Vec<_> = (0..20).map(|_| hasty.acquire(&set, Times::ONCE).wait()).collect();
    let mut failures = Vec::new();
    for answer in asked {
        let error = answer.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        failures.push(error.call());
    }
    node.resume().unwrap();
    assert!(failures[0].is_some() && failures.iter().all(|call| *call == failures[0]), "{failures:?}");
    for key in ["ada", &other] {
        assert_eq!(used(&store, &policy, key).await, 1);
    }
}

/// All hash slots had room, and then a node stalls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_while_sets_are_charged_is_one_failure_too() {
    let (cluster, prefix) = (Cluster::start(Kind::Redis8_2).unwrap(), prefix());
    let other = elsewhere(&cluster, &prefix, "ada");
    let nodes = ["ada", &other].map(|key| home(&cluster, &prefix, key).1.address());
    let proxies = [Proxy::before(nodes[0]).await, Proxy::before(nodes[1]).await];
    let ports = [0, 1].map(|n| (nodes[n].port(), proxies[n].address().port()));
    // Not one of the addresses that nodes announce: those are replaced.
    let url = format!("redis-cluster://{}", proxies[0].address());
    let builder = builder(&url).prefix(&*prefix).node_addresses(move |host, port| {
        let reached = ports.iter().find(|(node, _)| *node == port).map_or(port, |(_, proxy)| *proxy);
        (host.to_owned(), reached)
    });
    let store = builder.connect().await.unwrap();
    let (policy, keys) = (a_day("p", 100), [Key::from("ada"), Key::from(&*other)]);
    let set = keys.each_ref().map(|key| Check::new(&policy, key, 1));
    assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
    // The looks are answered by one node, and on their way from the other.
    proxies[1].set(Way::IsSlow(Duration::from_secs(1)));
    let hasty = store.timeout(Duration::from_secs(5));
    let asked: Vec<_> = (0..20).map(|_| hasty.acquire(&set, Times::ONCE).wait()).collect();
    sleep(Duration::from_millis(300)).await;
    proxies[0].set(Way::HoldsAnswersBack);
    let mut failures = Vec::new();
    for answer in asked {
        let error = answer.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        failures.push(error.call());
    }
    assert!(failures[0].is_some() && failures.iter().all(|call| *call == failures[0]), "{failures:?}");
}

/// With this order of rules the attacker used to reserve the shared quota first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_always_refused_holds_no_quota_of_others() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let attacker = elsewhere(&cluster, &prefix, "all");
    let (shared, own) = (a_day("shared", 50), a_day("own", 1));
    acquire(&store, &own, &attacker, 1).await;
    let (mut attack, refused) = (JoinSet::new(), Arc::new(AtomicU32::new(0)));
    for _ in 0..100 {
        let (store, shared, own, key) = (store.clone(), shared.clone(), own.clone(), Key::from(&*attacker));
        let refused = Arc::clone(&refused);
        attack.spawn(async move {
            let all = Key::from("all");
            loop {
                let set = [Check::new(&shared, &all, 1), Check::new(&own, &key, 1)];
                assert!(!store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
                refused.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    eventually("it is attacked", async || refused.load(Ordering::Relaxed) >= 200).await;
    for n in 0..48_u32 {
        let (all, caller) = (Key::from("all"), Key::from(n));
        let set = [Check::new(&shared, &all, 1), Check::new(&own, &caller, 1)];
        let verdict = store.acquire(&set, Times::ONCE).wait().await.unwrap();
        assert!(verdict.is_granted(), "caller {n} was refused: {verdict:?}");
    }
    assert!(attack.try_join_next().is_none(), "an attacker has ended");
    attack.abort_all();
    assert_eq!(used(&store, &shared, "all").await, 48);
}

/// There is room for one more, and two were wanted. It does not matter whether a slot is asked, or
/// only looked at because another has refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_set_reports_the_wait_for_the_least_number_asked_for() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let other = elsewhere(&cluster, &prefix, "ada");
    let keys = [Key::from("ada"), Key::from(&*other)];
    for algorithm in [Algorithm::FIXED_WINDOW, Algorithm::Gcra, Algorithm::SLIDING_LOG] {
        let policy = Policy::new("p", Quota::per_day(3)).with_algorithm(algorithm);
        let set = keys.each_ref().map(|key| Check::new(&policy, key, 1));
        assert_eq!(store.acquire(&set, Times::between(2, 2)).wait().await.unwrap().times(), 2);
        let verdict = store.acquire(&set, Times::between(2, 2)).wait().await.unwrap();
        assert!(!verdict.is_granted());
        for status in verdict.each() {
            assert!(matches!(status.wait(), Wait::For(_)) && status.remaining() == 1, "{verdict:?}");
        }
        assert_eq!(store.acquire(&set, Times::ONCE).wait().await.unwrap().times(), 1);
        for key in &keys {
            store.reset(key, &[&policy]).await.unwrap();
        }
    }
}

/// Two processes take each other's last unit between their looks and their charges, and give it
/// back. A denial without a wait would be answered 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_loses_a_race_is_denied_with_a_wait() {
    let (cluster, prefix, here) = start(Kind::Redis8_2).await;
    let there = store(&cluster, &prefix).await;
    let (ada, bob) = (Key::from("ada"), Key::from(&*elsewhere(&cluster, &prefix, "ada")));
    let policy = a_day("p", 1);
    let mut lost = 0;
    for round in 0.. {
        assert!(round < 5_000, "no race was lost by both");
        let set = [Check::new(&policy, &ada, 1), Check::new(&policy, &bob, 1)];
        let opposed = [set[1], set[0]];
        let (one, other) =
            tokio::join!(here.acquire(&set, Times::ONCE).wait(), there.acquire(&opposed, Times::ONCE).wait());
        let verdicts = [one.unwrap(), other.unwrap()];
        for denied in verdicts.iter().filter(|verdict| !verdict.is_granted()) {
            let waits = denied.each().iter().filter(|status| matches!(status.wait(), Wait::For(_)));
            assert!(waits.count() > 0, "{denied:?}");
        }
        lost += usize::from(verdicts.iter().all(|verdict| !verdict.is_granted()));
        if lost == 20 {
            break;
        }
        for key in [&ada, &bob] {
            here.reset(key, &[&policy]).await.unwrap();
        }
    }
}

/// One node refuses, and the node of the other rule is down. The denial stands; an error would let
/// `fail_open` admit a request over the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_stays_one_while_another_node_is_down() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let other = elsewhere(&cluster, &prefix, "ada");
    let (scarce, wide) = (a_day("scarce", 1), a_day("wide", 1_000));
    acquire(&store, &scarce, "ada", 1).await;
    acquire(&store, &wide, &other, 1).await;
    let (ada, bob) = (Key::from("ada"), Key::from(&*other));
    let set = [Check::new(&scarce, &ada, 1), Check::new(&wide, &bob, 1)];
    let before = store.acquire(&set, Times::ONCE).wait().await.unwrap();
    assert!(!before.is_granted());
    home(&cluster, &prefix, &other).1.kill();
    let verdict = store.acquire(&set, Times::ONCE).wait().await.unwrap();
    assert!(!verdict.is_granted());
    assert_eq!(verdict.each().len(), 2);
    assert!(matches!(verdict.each()[0].wait(), Wait::For(_)), "{verdict:?}");
    assert_eq!((verdict.each()[1].wait(), verdict.each()[1].remaining()), (Wait::None, 0), "{verdict:?}");
}

/// One node granted, and the next cannot decide. The caller gets an error and is charged nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_one_node_is_refunded_when_another_is_down() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
        node.command(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).unwrap();
    }
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
    let other = elsewhere(&cluster, &prefix, "ada");
    let (first, second) = (a_day("first", 1_000), a_day("second", 1_000));
    acquire(&store, &first, "ada", 1).await;
    acquire(&store, &second, &other, 1).await;
    home(&cluster, &prefix, &other).1.kill();
    let (ada, bob) = (Key::from("ada"), Key::from(&*other));
    let set = [Check::new(&first, &ada, 1), Check::new(&second, &bob, 1)];
    for times in [Times::ONCE, Times::up_to(5)] {
        let error = store.acquire(&set, times).wait().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert_eq!(used(&store, &first, "ada").await, 1);
    }
}

/// One slot grants more often than another. The surplus of the first comes back, and of the rest
/// each part comes back once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_grants_of_several_slots_are_refunded_once() {
    let (cluster, prefix, store) = start(Kind::Redis6_2).await;
    let other = elsewhere(&cluster, &prefix, "ada");
    let (ada, bob) = (Key::from("ada"), Key::from(&*other));
    for algorithm in [Algorithm::Gcra, Algorithm::FIXED_WINDOW, Algorithm::SLIDING_LOG] {
        let of = |name, limit| Policy::new(name, Quota::per_day(limit)).with_algorithm(algorithm);
        let (wide, scarce) = (of("wide", 100), of("scarce", 3));
        acquire(&store, &wide, "ada", 50).await;
        let set = [Check::new(&wide, &ada, 1), Check::new(&scarce, &bob, 1)];
        let verdict = store.acquire(&set, Times::up_to(10)).wait().await.unwrap();
        assert_eq!(verdict.times(), 3);
        assert_eq!(verdict.each()[0].remaining(), 47, "{algorithm:?}");
        assert_eq!(used(&store, &wide, "ada").await, 53);
        // The set's own record says so. No more than that may come back.
        let stamp = verdict.each()[0].stamp();
        let grant = Grant { policy: &wide, key: &ada, units: 3, stamp, share: None };
        store.refund(&[grant]).await.unwrap();
        assert_eq!(used(&store, &wide, "ada").await, 50, "{algorithm:?}");
        store.reset(&ada, &[&wide]).await.unwrap();
        store.reset(&bob, &[&scarce]).await.unwrap();
    }
}

/// A caller leaves between two nodes: the set is charged whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_between_two_slots_leaves_no_half_of_a_set() {
    let (cluster, prefix, store) = start(Kind::Valkey9_1).await;
    let (policy, other) = (a_day("p", 1_000), elsewhere(&cluster, &prefix, "ada"));
    acquire(&store, &policy, "ada", 1).await;
    acquire(&store, &policy, &other, 1).await;
    let (ada, bob) = (Key::from("ada"), Key::from(&*other));
    let set = [Check::new(&policy, &ada, 1), Check::new(&policy, &bob, 1)];
    for key in ["ada", &other] {
        let (_, node) = home(&cluster, &prefix, key);
        for _ in 0..5 {
            node.pause().unwrap();
            let caller = tokio::spawn(store.acquire(&set, Times::ONCE).wait());
            // By then the call was sent to the node that does not answer.
            tokio::time::sleep(Duration::from_millis(50)).await;
            caller.abort();
            caller.await.unwrap_err();
            node.resume().unwrap();
            eventually("both are charged, or none is", async || {
                used(&store, &policy, "ada").await == used(&store, &policy, &other).await
            })
            .await;
        }
    }
    assert!(used(&store, &policy, "ada").await > 1, "nothing was ever sent");
}
