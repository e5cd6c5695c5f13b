//! Masters that die, hang, or are isolated.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::store::{Check, Store, StoreError, Times};
use tollgate::{Key, Limiter, Policy, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server};

use super::{a_day, elsewhere, home, start, url};
use crate::redis::{acquire, eventually, prefix, try_acquire, used};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_without_a_restart() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    let policy = a_day("p", 1_000_000);
    let other = elsewhere(&cluster, &prefix, "ada");
    acquire(&store, &policy, "ada", 1).await;
    acquire(&store, &policy, &other, 1).await;
    let (slot, old) = home(&cluster, &prefix, "ada");
    old.kill();
    eventually("its keys are errors", async || try_acquire(&store, &policy, "ada", 1).await.is_err()).await;
    eventually("a replica takes over", async || {
        if let Err(error) = try_acquire(&store, &policy, "ada", 1).await {
            // The other nodes name the dead one until they notice.
            assert!(error.is_transient(), "{error}");
        }
        cluster.owner_of(slot).is_ok_and(|new| new.port() != old.port())
    })
    .await;
    eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
    eventually("the others, too", async || try_acquire(&store, &policy, &other, 1).await.is_ok()).await;
    for _ in 0..20 {
        acquire(&store, &policy, "ada", 1).await;
        acquire(&store, &policy, &other, 1).await;
    }
}

/// The kernel of its machine still accepts data, so no connection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_master_is_replaced_by_the_promoted_replica() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let prefix = prefix();
    let builder = RedisStore::builder(&url(&cluster)).prefix(&*prefix);
    let store = builder.response_timeout(Duration::from_millis(500)).connect().await.unwrap();
    let policy = a_day("p", 1_000_000);
    let other = elsewhere(&cluster, &prefix, "ada");
    acquire(&store, &policy, "ada", 1).await;
    let (slot, old) = home(&cluster, &prefix, "ada");
    old.pause().unwrap();
    eventually("a replica takes over", async || {
        // The other nodes answer in between, unless the Cluster calls itself down.
        let _ = try_acquire(&store, &policy, &other, 1).await;
        try_acquire(&store, &policy, "ada", 1).await.is_ok()
            || cluster.owner_of(slot).is_ok_and(|new| new.port() != old.port())
    })
    .await;
    eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
    eventually("the others, too", async || try_acquire(&store, &policy, &other, 1).await.is_ok()).await;
    for _ in 0..20 {
        acquire(&store, &policy, "ada", 1).await;
        acquire(&store, &policy, &other, 1).await;
    }
}

/// The master's machine is gone: its connections stay open, and new ones fail. No replica takes
/// over. Callers of the other masters do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_master_does_not_delay_calls_to_other_masters() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
        node.command(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).unwrap();
    }
    let prefix = prefix();
    let builder = RedisStore::builder(&url(&cluster)).prefix(&*prefix);
    let store = builder.response_timeout(Duration::from_secs(1)).connect().await.unwrap();
    let policy = a_day("p", 1_000_000);
    let other = elsewhere(&cluster, &prefix, "ada");
    let (_, gone) = home(&cluster, &prefix, "ada");
    acquire(&store, &policy, "ada", 1).await;
    acquire(&store, &policy, &other, 1).await;
    gone.pause().unwrap();
    let until = Instant::now() + Duration::from_secs(8);
    let mut callers = JoinSet::new();
    for n in 0..8 {
        let (store, policy, other) = (store.clone(), policy.clone(), other.clone());
        callers.spawn(async move {
            let mut asked = 0;
            while Instant::now() < until {
                if n % 2 == 0 {
                    try_acquire(&store, &policy, "ada", 1).await.unwrap_err();
                } else {
                    // None of these fails, or is late by the timeout of the lost master.
                    acquire(&store, &policy, &other, 1).await;
                    asked += 1;
                }
                sleep(Duration::from_millis(5)).await;
            }
            asked
        });
    }
    for asked in callers.join_all().await {
        assert!(asked == 0 || asked > 20, "asked {asked} times in eight seconds");
    }
    gone.resume().unwrap();
    eventually("it is asked again", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
}

/// Its renewals are not answered for more than a time to live, and those of the others are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stalls_costs_no_slot_of_other_masters() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
        node.command(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).unwrap();
    }
    let prefix = prefix();
    let patient = Duration::from_secs(60);
    let builder = RedisStore::builder(&url(&cluster)).prefix(&*prefix).response_timeout(patient);
    let store = builder.connect().await.unwrap();
    let slots = Policy::in_flight("slots", 1).with_ttl(Duration::from_secs(9));
    let limiter = Limiter::new([slots.clone()]).store(store.clone().timeout(patient).fail_closed());
    let other = elsewhere(&cluster, &prefix, "ada");
    let (_, stalled) = home(&cluster, &prefix, "ada");
    let [of_stalled, of_other] = [
        limiter.check(&"ada".into(), 1).await.unwrap(),
        limiter.check(&other.as_str().into(), 1).await.unwrap(),
    ];
    stalled.pause().unwrap();
    of_stalled.slot().lost().await;
    // Renewed together, they would end together.
    sleep(Duration::from_secs(1)).await;
    assert!(!of_other.slot().is_lost());
    assert!(!acquire(&store, &slots, &other, 1).await.is_granted(), "no other has the slot");
    stalled.resume().unwrap();
    drop((of_stalled, of_other));
    for key in ["ada", &other] {
        eventually("the slot is free", async || {
            try_acquire(&store, &slots, key, 1).await.is_ok_and(|verdict| verdict.is_granted())
        })
        .await;
    }
}

/// One node of the URL hangs, and the Cluster still lists it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_node_does_not_prevent_connecting_to_the_others() {
    let cluster = Cluster::start(Kind::Installed).unwrap();
    let prefix = prefix();
    let (_, hangs) = home(&cluster, &prefix, "ada");
    let other = elsewhere(&cluster, &prefix, "ada");
    hangs.pause().unwrap();
    let builder = RedisStore::builder(&url(&cluster)).prefix(&*prefix);
    let store = builder.connect_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let passed = try_acquire(&store, &a_day("p", 10), &other, 1).await;
    hangs.resume().unwrap();
    passed.unwrap();
}

/// A master that has lost the others still answers: that the Cluster is down, and with its own map
/// of slots. The store has asked only this master before, and must not believe it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_master_is_not_believed() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    // The key of the check that `connect` makes.
    let (policy, key) = (a_day("p", 1_000_000), "connect");
    let (slot, lost) = home(&cluster, &prefix, key);
    let builder = RedisStore::builder(&format!("redis-cluster://{}", lost.address())).prefix(&*prefix);
    let store = builder.connect().await.unwrap();
    acquire(&store, &policy, key, 1).await;
    let masters: Vec<&Server> =
        cluster.masters().unwrap().into_iter().filter(|master| master.port() != lost.port()).collect();
    for master in &masters {
        // They go on without the slots of the lost one.
        master.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
    }
    let id = |node: &Server| node.command(&["CLUSTER", "MYID"]).unwrap();
    for other in cluster.nodes().iter().filter(|node| node.port() != lost.port()) {
        lost.command(&["CLUSTER", "FORGET", &id(other)]).unwrap();
    }
    eventually("it calls the cluster down", async || {
        lost.command(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:fail")
    })
    .await;
    // Otherwise the lost one claims the slot back, with its next pong.
    masters[0].command(&["CLUSTER", "BUMPEPOCH"]).unwrap();
    for master in &masters {
        let owner = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id(masters[0])];
        eventually("it knows the new owner", async || master.command(&owner).is_ok()).await;
    }
    eventually("requests pass", async || try_acquire(&store, &policy, key, 1).await.is_ok()).await;
}

/// The answer never came, so the charge may have been made. The store does not send it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_answers_too_late_charges_once() {
    let cluster = Cluster::start(Kind::Installed).unwrap();
    let prefix = prefix();
    let builder = RedisStore::builder(&url(&cluster)).prefix(&*prefix);
    let store = builder.response_timeout(Duration::from_millis(200)).connect().await.unwrap();
    let policy = a_day("p", 1_000);
    let (_, node) = home(&cluster, &prefix, "ada");
    for n in 1..=3 {
        acquire(&store, &policy, "ada", 1).await;
        node.pause().unwrap();
        let asked = try_acquire(&store, &policy, "ada", 1).await;
        node.resume().unwrap();
        asked.unwrap_err();
        eventually("it answers", async || {
            store.acquire(&[Check::new(&policy, &Key::from("ada"), 1)], Times::LOOK).wait().await.is_ok()
        })
        .await;
        assert_eq!(used(&store, &policy, "ada").await, 2 * n);
    }
}
