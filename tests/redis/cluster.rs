//! A Cluster: slots that move while they are asked, masters that die, and sets whose keys live apart.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::{Algorithm, Check, FailureExt, Grant, Key, Policy, Quota, Store, StoreError, Times, Wait};
use tollgate_conformance::servers::{Cluster, Kind, Server};
use tollgate_redis::RedisStore;

use crate::calls::calls;
use crate::{Left, acquire, eventually, prefix, try_acquire, used};

pub(crate) fn url(cluster: &Cluster) -> String {
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

pub(crate) async fn store(cluster: &Cluster, prefix: &str) -> OnCluster {
    let store = RedisStore::builder(&url(cluster)).prefix(prefix).connect().await.unwrap();
    OnCluster { store, _left: Left { urls: cluster.urls(), prefix: prefix.to_owned() } }
}

pub(crate) struct OnCluster {
    store: RedisStore,
    _left: Left,
}

impl Deref for OnCluster {
    type Target = RedisStore;

    fn deref(&self) -> &RedisStore {
        &self.store
    }
}

fn a_day(name: &str, limit: u32) -> Policy {
    Policy::new(name, Quota::per_day(limit)).with_algorithm(Algorithm::FIXED_WINDOW)
}

/// The slot of a key's state, and who has it.
fn home<'a>(cluster: &'a Cluster, prefix: &str, key: &str) -> (u16, &'a Server) {
    let slot = cluster.slot_of(&format!("{prefix}:1:{{={key}}}:")).unwrap();
    (slot, cluster.owner_of(slot).unwrap())
}

fn another_master<'a>(cluster: &'a Cluster, than: &Server) -> &'a Server {
    cluster.masters().unwrap().into_iter().find(|master| master.port() != than.port()).unwrap()
}

/// A key whose state is on another node than that of the first.
fn elsewhere(cluster: &Cluster, prefix: &str, key: &str) -> String {
    let of = home(cluster, prefix, key).1.port();
    let keys = (0..).map(|n| format!("{key}{n}"));
    keys.into_iter().find(|other| home(cluster, prefix, other).1.port() != of).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_fails_no_request_and_the_limit_stands() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let cluster = Arc::new(Cluster::start(kind).unwrap());
        let prefix = prefix();
        let store = store(&cluster, &prefix).await;
        let policy = a_day("p", u32::MAX);
        // One key that is there before, and others of its slot that come while it moves: a tag in the key is none.
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        let (granted, is_over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let (store, policy) = (store.clone(), policy.clone());
            let (granted, is_over) = (Arc::clone(&granted), Arc::clone(&is_over));
            callers.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let verdict = try_acquire(&store, &policy, "ada", 1).await.unwrap();
                    granted.fetch_add(verdict.times(), Ordering::Relaxed);
                }
            });
        }
        let more = async || {
            let before = granted.load(Ordering::Relaxed);
            eventually("load", async || {
                assert!(!callers.is_empty());
                granted.load(Ordering::Relaxed) > before + 100
            })
            .await;
        };
        more().await;
        cluster.begin_migration(slot, to).unwrap();
        more().await;
        // A caller who is new to the slot meets ASK. Of another process: those of one share calls, which the next test is of.
        let elsewhere = self::store(&cluster, &prefix).await;
        let names = (0..100_000).map(|n| format!("new{n}"));
        let new: Vec<String> = names.filter(|key| slot_by_crc(key) == slot).take(2).collect();
        for key in &new {
            for taken in 1..=5 {
                acquire(&elsewhere, &policy, key, 1).await;
                assert_eq!(used(&elsewhere, &policy, key).await, taken);
            }
        }
        tokio::task::spawn_blocking({
            let (cluster, to) = (Arc::clone(&cluster), to.port());
            move || {
                let to = cluster.nodes().iter().find(|node| node.port() == to).unwrap();
                cluster.finish_migration(slot, to).unwrap();
            }
        })
        .await
        .unwrap();
        more().await;
        for key in &new {
            assert_eq!(used(&store, &policy, key).await, 5);
        }
        is_over.store(true, Ordering::Relaxed);
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        assert_eq!(used(&store, &policy, "ada").await, granted.load(Ordering::Relaxed), "on {kind}");

        // Who has it now is known by then: nobody asks the old one for ever.
        eventually("the old owner is left alone", async || {
            let calls = || from.command(&["INFO", "commandstats"]).unwrap();
            from.command(&["CONFIG", "RESETSTAT"]).unwrap();
            for _ in 0..10 {
                acquire(&store, &policy, "ada", 1).await;
            }
            !calls().contains("cmdstat_evalsha")
        })
        .await;
    }
}

/// A call that carries several keys of a slot that moves is refused as long as some of them are here and some there: each
/// alone is decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_a_slot_that_moves_do_not_fail_each_other() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let cluster = Cluster::start(kind).unwrap();
        let prefix = prefix();
        let store = store(&cluster, &prefix).await;
        let policy = a_day("p", 1_000);
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        let names = (0..1_000_000).map(|n| format!("new{n}"));
        let mut keys: Vec<String> = names.filter(|key| slot_by_crc(key) == slot).take(7).collect();
        keys.push("ada".to_owned());
        acquire(&store, &policy, "ada", 1).await;
        acquire(&store, &policy, &keys[0], 1).await;
        cluster.begin_migration(slot, to).unwrap();
        let mut callers = JoinSet::new();
        for key in keys.iter().cycle().take(64) {
            let (store, policy, key) = (store.clone(), policy.clone(), key.clone());
            callers.spawn(async move {
                for _ in 0..5 {
                    assert!(acquire(&store, &policy, &key, 1).await.is_granted());
                }
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        cluster.finish_migration(slot, to).unwrap();
        for (n, key) in keys.iter().enumerate() {
            let before = u32::from(n == 0 || key == "ada");
            assert_eq!(used(&store, &policy, key).await, 8 * 5 + before, "{key} on {kind}");
        }
    }
}

/// Who gives a slot away may say so before who takes it: until then each names the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_name_each_other_are_waited_for() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let cluster = Cluster::start(kind).unwrap();
        let prefix = prefix();
        let store = store(&cluster, &prefix).await;
        let policy = a_day("p", 1_000);
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        acquire(&store, &policy, "bob", 1).await;
        cluster.begin_migration(slot, to).unwrap();
        let id = to.command(&["CLUSTER", "MYID"]).unwrap();
        let is_of = |master: &Server| {
            master.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", id.trim()]).unwrap()
        };
        is_of(from);
        let answered = async { acquire(&store, &policy, "ada", 1).await };
        let late = async {
            sleep(Duration::from_millis(60)).await;
            is_of(to);
        };
        let (verdict, ()) = tokio::join!(answered, late);
        assert!(verdict.is_granted(), "on {kind}");
        assert_eq!(used(&store, &policy, "ada").await, 1);
    }
}

/// Of a set of two keys that are new, who gives the slot away and who takes it refuse in turn, until it has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_for_a_new_caller_waits_until_his_slot_has_moved_and_charges_nobody_who_left() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let cluster = Cluster::start(kind).unwrap();
        let prefix = prefix();
        let store = store(&cluster, &prefix).await;
        let policies = [a_day("p", 1_000), a_day("q", 1_000)];
        let (slot, from) = home(&cluster, &prefix, "ada");
        let to = another_master(&cluster, from);
        acquire(&store, &policies[0], "elsewhere", 1).await;
        let key = Key::from("ada");
        let set = policies.each_ref().map(|policy| Check::new(policy, &key, 1));
        let hasty = store.clone().timeout(Duration::from_millis(20));
        cluster.begin_migration(slot, to).unwrap();
        let patient = async { store.acquire(&set, Times::ONCE).wait().await };
        let hasty = async { hasty.acquire(&set, Times::ONCE).wait().await };
        let moved = async {
            sleep(Duration::from_millis(100)).await;
            cluster.finish_migration(slot, to).unwrap();
        };
        let (patient, hasty, ()) = tokio::join!(patient, hasty, moved);
        assert!(patient.unwrap().is_granted(), "on {kind}");
        assert_eq!(hasty.unwrap_err().kind(), tollgate::ErrorKind::Timeout, "on {kind}");
        for policy in &policies {
            // When it was executed at last, nobody waited for the other one.
            assert_eq!(used(&store, policy, "ada").await, 1, "on {kind}");
        }
    }
}

/// The first slot moves to a master that has none yet: a caller hears of it by the redirection only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_a_master_that_is_new() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
    let policy = a_day("p", 1_000);
    let (slot, _) = home(&cluster, &prefix, "ada");
    let arguments = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
    let new = Server::start_with(Kind::Redis8_2, &arguments).unwrap();
    new.command(&["CLUSTER", "MEET", "127.0.0.1", &cluster.nodes()[0].port().to_string()]).unwrap();
    eventually("it knows all", async || {
        new.command(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok")
    })
    .await;
    eventually("it is known to all", async || cluster.begin_migration(slot, &new).is_ok()).await;
    for n in 1..=3 {
        acquire(&store, &policy, "ada", 1).await;
        assert_eq!(used(&store, &policy, "ada").await, n);
    }
}

/// Managed clusters have their nodes go by names, which their certificates are for, or tell ports alone where they do not know
/// what leads to them from outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_found_by_their_names_and_by_their_ports_alone() {
    for kind in [Kind::Installed, Kind::Valkey9_1] {
        let cluster = Cluster::start(kind).unwrap();
        for endpoint in ["hostname", "unknown-endpoint"] {
            for node in cluster.nodes() {
                node.command(&["CONFIG", "SET", "cluster-announce-hostname", "localhost"]).unwrap();
                node.command(&["CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint]).unwrap();
            }
            let prefix = prefix();
            let (slot, from) = home(&cluster, &prefix, "ada");
            // Asked for a key of another, it tells where that is as it tells of all.
            let stranger = another_master(&cluster, from);
            let host = if endpoint == "hostname" { "localhost" } else { "" };
            let moved = format!("MOVED {slot} {host}:{}", from.port());
            eventually("that is how they call each other", async || {
                let told = stranger.command(&["GET", &format!("{prefix}:1:{{=ada}}:")]);
                told.is_err_and(|error| error.to_string().contains(&moved))
            })
            .await;

            let one = format!("redis-cluster://{}", stranger.address());
            let store = RedisStore::builder(&one).prefix(&*prefix).connect().await.unwrap();
            let policy = a_day("p", 1_000);
            for n in 0..100 {
                assert!(acquire(&store, &policy, &format!("user{n}"), 1).await.is_granted());
            }
            acquire(&store, &policy, "ada", 1).await;
            cluster.begin_migration(slot, stranger).unwrap();
            acquire(&store, &policy, "ada", 1).await;
            cluster.finish_migration(slot, stranger).unwrap();
            acquire(&store, &policy, "ada", 1).await;
            assert_eq!(used(&store, &policy, "ada").await, 3, "by {endpoint} on {kind}");
        }
    }
}

/// The slot of a key, without asking: CRC-16/XMODEM over what stands in braces.
fn slot_by_crc(key: &str) -> u16 {
    let crc = format!("={key}").bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_without_a_restart() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
    let policy = a_day("p", 1_000_000);
    let other = elsewhere(&cluster, &prefix, "ada");
    acquire(&store, &policy, "ada", 1).await;
    acquire(&store, &policy, &other, 1).await;
    let (slot, old) = home(&cluster, &prefix, "ada");
    old.kill();
    eventually("its keys are errors", async || try_acquire(&store, &policy, "ada", 1).await.is_err()).await;
    eventually("a replica takes over", async || {
        if let Err(error) = try_acquire(&store, &policy, "ada", 1).await {
            // The other nodes go on naming the dead one, for as long as they believe in it.
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

/// Its machine goes on to take up what is sent to it, so that no connection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_left_for_the_next() {
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
        // Those of other nodes are answered in between, unless the cluster calls itself down.
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

/// Its machine is gone: no connection to it ends, and none is made any more. Nobody takes its place; the others go on, and
/// nobody who asks them waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_gone_holds_up_nobody_who_asks_another() {
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
                    // None of these fails, nor comes late by as much as others wait for the one that is gone.
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

/// One of the nodes of the URL, which the others still count among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_does_not_keep_a_store_from_the_others() {
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

/// A master that has lost the others goes on to answer: that the cluster is down, and by a map of its own who has what. It is the
/// only one that was ever asked, and not the one to believe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_has_lost_the_others_is_not_believed() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    // The key that a store tries itself out with.
    let (policy, key) = (a_day("p", 1_000_000), "connect");
    let (slot, lost) = home(&cluster, &prefix, key);
    let builder = RedisStore::builder(&format!("redis-cluster://{}", lost.address())).prefix(&*prefix);
    let store = builder.connect().await.unwrap();
    acquire(&store, &policy, key, 1).await;
    let masters: Vec<&Server> =
        cluster.masters().unwrap().into_iter().filter(|master| master.port() != lost.port()).collect();
    let id = |node: &Server| node.command(&["CLUSTER", "MYID"]).unwrap();
    for other in cluster.nodes().iter().filter(|node| node.port() != lost.port()) {
        lost.command(&["CLUSTER", "FORGET", &id(other)]).unwrap();
    }
    eventually("it calls the cluster down", async || {
        lost.command(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:fail")
    })
    .await;
    for master in &masters {
        master.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id(masters[0])]).unwrap();
    }
    eventually("requests pass", async || try_acquire(&store, &policy, key, 1).await.is_ok()).await;
}

/// An answer that never came: what was asked may have been done, and is not asked of anybody again.
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

/// Their keys are in different slots, of which one refuses: what the others granted comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_over_several_slots_charges_nobody_when_one_refuses() {
    let cluster = Cluster::start(Kind::Redis6_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
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
            let granted: u32 = replies.join_all().await.into_iter().map(|reply| reply.unwrap().times()).sum();
            // Some are refused what comes back a moment later.
            assert!(granted <= 3, "{granted}");
            assert_eq!(used(&store, &scarce, &other).await, granted);
            assert_eq!(used(&store, &wide, "ada").await, granted, "{algorithm:?}");
            store.reset(&ada, &[&wide]).wait().await.unwrap();
            store.reset(&bob, &[&scarce]).wait().await.unwrap();
        }
    }
}

/// Whether a slot is asked or only looked at, since another has refused: there is room for one more, and two were wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slot_of_a_denied_set_tells_the_wait_of_the_least_that_was_asked_for() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
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
            store.reset(key, &[&policy]).wait().await.unwrap();
        }
    }
}

/// What one node refuses is refused, though another, whose rule is only looked at, cannot be asked: an outage must not let
/// pass by `fail_open` what is over a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_stays_one_while_another_node_is_down() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
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

/// Who was granted by one node, and cannot be decided by the next, is told an error and charged nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_granted_comes_back_when_another_is_down() {
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

/// While a call to a slot is under way, those who come one after another gather, and one more call carries them all. Meanwhile
/// other slots of the same node are asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_slot_one_call_goes_at_a_time() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
    let policy = a_day("p", 1_000);
    let (_, node) = home(&cluster, &prefix, "ada");
    let names = (0..).map(|n| format!("other{n}"));
    let there = |name: &String| home(&cluster, &prefix, name).1.port() == node.port();
    let other = names.into_iter().find(there).unwrap();
    acquire(&store, &policy, "ada", 1).await;
    acquire(&store, &policy, &other, 1).await;
    node.command(&["CONFIG", "RESETSTAT"]).unwrap();
    node.pause().unwrap();
    let mut callers = JoinSet::new();
    for key in ["ada"; 10].into_iter().chain([&*other; 10]) {
        let (store, policy, key) = (store.clone(), policy.clone(), key.to_owned());
        callers.spawn(async move { acquire(&store, &policy, &key, 1).await.is_granted() });
        sleep(Duration::from_millis(10)).await;
    }
    node.resume().unwrap();
    assert!(callers.join_all().await.into_iter().all(|granted| granted));
    assert_eq!(calls(node, "evalsha"), 4);
}

/// One slot grants as often as it can, another less often: what the first granted too often comes back, and of the rest each
/// part once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_several_slots_grant_in_part_comes_back_once() {
    let cluster = Cluster::start(Kind::Redis6_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
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
        // As the bookkeeping of the set says; more than that must not come back.
        let stamp = verdict.each()[0].stamp();
        let grant = Grant { policy: &wide, key: &ada, units: 3, stamp, share: None };
        store.refund(&[grant]).wait().await.unwrap();
        assert_eq!(used(&store, &wide, "ada").await, 50, "{algorithm:?}");
        store.reset(&ada, &[&wide]).wait().await.unwrap();
        store.reset(&bob, &[&scarce]).wait().await.unwrap();
    }
}

/// Connections are made by the runtime of the store, whoever is the first to need them: those that another made would end with
/// it.
#[test]
fn a_reset_from_a_runtime_that_ends_leaves_no_dead_connections() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let (theirs, prefix, policy) = (runtime(), prefix(), a_day("p", 10));
    // Nobody answers while it starts.
    cluster.nodes().iter().for_each(|node| node.pause().unwrap());
    let builder = RedisStore::builder(&url(&cluster)).prefix(prefix);
    let store = theirs.block_on(builder.connect_timeout(Duration::from_millis(50)).connect()).unwrap();
    cluster.nodes().iter().for_each(|node| node.resume().unwrap());
    let ours = runtime();
    ours.block_on(eventually("it is reset", async || {
        store.reset(&Key::from("ada"), &[&policy]).wait().await.is_ok()
    }));
    drop(ours);
    for _ in 0..10 {
        theirs.block_on(acquire(&store, &policy, "ada", 1));
    }
}

/// A caller who gives up between two nodes: a set is charged whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_leaves_between_two_slots_leaves_no_half_of_a_set() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
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
            // By then it was sent to the node that does not answer. Were it not, this would find nothing.
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

/// All policies of a caller are decided by one node in one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_policies_of_a_key_share_a_slot() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let prefix = prefix();
    let store = store(&cluster, &prefix).await;
    for key in ["ada", "}", "{", "{}", "}{x}", "{a}{b}", "a{b", "\0\r\n", "é"] {
        let policies = crate::every_policy(3, Duration::from_secs(600));
        let key = Key::from(key);
        let set: Vec<Check<'_>> =
            policies[..8].iter().map(|(policy, _)| Check::new(policy, &key, 1)).collect();
        for _ in 0..3 {
            assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted(), "{key:?}");
        }
        assert!(!store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted(), "{key:?}");
    }
    // Each key's names are on one node, and all of them are in one slot there.
    let mut slots_of = std::collections::BTreeMap::<String, std::collections::BTreeSet<u16>>::new();
    for node in cluster.masters().unwrap() {
        for name in node.command(&["KEYS", &format!("{prefix}:*")]).unwrap().lines() {
            let tag = name[..name.rfind("}:").unwrap()].to_owned();
            slots_of.entry(tag).or_default().insert(cluster.slot_of(name).unwrap());
        }
    }
    assert_eq!(slots_of.len(), 9 + usize::from(slots_of.keys().any(|tag| tag.contains("connect"))));
    assert!(slots_of.values().all(|slots| slots.len() == 1), "{slots_of:?}");
}
