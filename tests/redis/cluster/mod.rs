//! A Cluster, whose nodes are found and called.

mod addresses;
mod masters;
mod moves;
mod sets;

use std::ops::Deref;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server};

use crate::redis::calls::calls;
use crate::redis::{Left, acquire, builder, eventually, prefix, used};

pub(crate) fn url(cluster: &Cluster) -> String {
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

/// A new Cluster, a prefix, and a store with both.
async fn start(kind: Kind) -> (Cluster, String, OnCluster) {
    let (cluster, prefix) = (Cluster::start(kind).unwrap(), prefix());
    let store = store(&cluster, &prefix).await;
    (cluster, prefix, store)
}

pub(crate) async fn store(cluster: &Cluster, prefix: &str) -> OnCluster {
    let store = builder(&url(cluster)).prefix(prefix).connect().await.unwrap();
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

fn a_day(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_day(limit)).with_algorithm(Algorithm::FIXED_WINDOW)
}

/// The slot of a key's state, and the node that has it.
pub(crate) fn home<'a>(cluster: &'a Cluster, prefix: &str, key: &str) -> (u16, &'a Server) {
    let slot = cluster.slot_of(&format!("{prefix}:2:{{={key}}}:")).unwrap();
    (slot, cluster.owner_of(slot).unwrap())
}

fn another_master<'a>(cluster: &'a Cluster, than: &Server) -> &'a Server {
    cluster.masters().unwrap().into_iter().find(|master| master.port() != than.port()).unwrap()
}

/// A key whose state is on another node than that of the first.
pub(crate) fn elsewhere(cluster: &Cluster, prefix: &str, key: &str) -> String {
    let of = home(cluster, prefix, key).1.port();
    let keys = (0..).map(|n| format!("{key}{n}"));
    keys.into_iter().find(|other| home(cluster, prefix, other).1.port() != of).unwrap()
}

/// The nodes of managed Clusters announce host names, because their certificates need them. Or they
/// announce a port alone if they do not know their outer address.
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
            // A redirection names a node in the same form as the map of slots.
            let stranger = another_master(&cluster, from);
            let host = if endpoint == "hostname" { "localhost" } else { "" };
            let moved = format!("MOVED {slot} {host}:{}", from.port());
            eventually("that is how they call each other", async || {
                let told = stranger.command(&["GET", &format!("{prefix}:2:{{=ada}}:")]);
                told.is_err_and(|error| error.to_string().contains(&moved))
            })
            .await;

            let one = format!("redis-cluster://{}", stranger.address());
            let store = builder(&one).prefix(&*prefix).connect().await.unwrap();
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

/// While a call to a slot is in flight, the callers of that slot gather, and one more call carries
/// them all. Meanwhile other slots of the same node are asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_slot_has_one_call_in_flight() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let prefix = prefix();
    let store = builder(&url(&cluster)).prefix(&*prefix).connect().await.unwrap();
    let policy = a_day("p", 1_000);
    let (_, node) = home(&cluster, &prefix, "ada");
    let names = (0..).map(|n| format!("other{n}"));
    let there = |name: &String| home(&cluster, &prefix, name).1.port() == node.port();
    let other = names.into_iter().find(there).unwrap();
    acquire(&store, &policy, "ada", 1).await;
    acquire(&store, &policy, &other, 1).await;
    node.command(&["CONFIG", "RESETSTAT"]).unwrap();
    node.pause().unwrap();
    let keys = ["ada", &*other].map(Key::from);
    let mut replies = Vec::new();
    for key in keys.iter().flat_map(|key| [key; 10]) {
        replies.push(store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE));
        // So that calls that can be sent are sent.
        sleep(Duration::from_millis(10)).await;
    }
    node.resume().unwrap();
    for reply in replies {
        assert!(reply.wait().await.unwrap().is_granted());
    }
    assert_eq!(calls(node, "evalsha"), 4);
}

/// The store's runtime makes the connections, even if a caller of another runtime needs them first.
/// Otherwise they would end with that runtime.
#[test]
fn a_reset_from_a_runtime_that_ends_leaves_no_dead_connections() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let (theirs, prefix, policy) = (runtime(), prefix(), a_day("p", 10));
    // No node answers while the store starts.
    cluster.nodes().iter().for_each(|node| node.pause().unwrap());
    let builder = RedisStore::builder(&url(&cluster)).prefix(prefix);
    let store = theirs.block_on(builder.connect_timeout(Duration::from_millis(50)).connect()).unwrap();
    cluster.nodes().iter().for_each(|node| node.resume().unwrap());
    let ours = runtime();
    ours.block_on(eventually("it is reset", async || {
        store.reset(&Key::from("ada"), &[&policy]).await.is_ok()
    }));
    drop(ours);
    for _ in 0..10 {
        theirs.block_on(acquire(&store, &policy, "ada", 1));
    }
}

/// One node decides all policies of a caller in one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_policies_of_a_key_share_a_slot() {
    let (cluster, prefix, store) = start(Kind::Redis8_2).await;
    for key in ["ada", "}", "{", "{}", "}{x}", "{a}{b}", "a{b", "\0\r\n", "é"] {
        let policies = crate::redis::every_policy(3, Duration::from_secs(600));
        let key = Key::from(key);
        let set: Vec<Check<'_>> =
            policies[..8].iter().map(|(policy, _)| Check::new(policy, &key, 1)).collect();
        for _ in 0..3 {
            assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted(), "{key:?}");
        }
        assert!(!store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted(), "{key:?}");
    }
    // The names of a key are on one node, in one slot.
    let mut slots_of = std::collections::BTreeMap::<String, std::collections::BTreeSet<u16>>::new();
    for node in cluster.masters().unwrap() {
        for name in node.command(&["KEYS", &format!("{prefix}:*")]).unwrap().lines() {
            let tag = name[..name.rfind("}:").unwrap()].to_owned();
            slots_of.entry(tag).or_default().insert(cluster.slot_of(name).unwrap());
        }
    }
    assert_eq!(slots_of.len(), 9, "{slots_of:?}");
    assert!(slots_of.values().all(|slots| slots.len() == 1), "{slots_of:?}");
}
