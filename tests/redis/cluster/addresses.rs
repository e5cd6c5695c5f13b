//! Nodes that announce addresses where they cannot be reached, and servers that name no nodes.

use tokio::runtime::Builder;
use tollgate::{Policy, Quota};
use tollgate_conformance::Suite;
use tollgate_redis::RedisStoreBuilder;
use tollgate_test_servers::{Cluster, Kind, Server, short_or_long};

use super::url;
use crate::redis::contract::{holds_of, whole_or_short};
use crate::redis::proxies::passes_after_connections_were_cut;
use crate::redis::{builder, eventually, prefix, try_acquire};

/// What nodes announce. They listen at 127.0.0.1 only.
const INNER: &str = "127.7.7.7";

/// A Cluster as it is seen from outside of its network: all nodes announce an inner address.
async fn behind_nat(kind: Kind) -> Cluster {
    let cluster = Cluster::start(kind).unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-announce-hostname", INNER]).unwrap();
        node.command(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"]).unwrap();
    }
    eventually("all nodes know the inner addresses", async || {
        cluster.nodes().iter().all(|node| {
            let answer = node.command(&["CLUSTER", "SLOTS"]).unwrap();
            answer.lines().filter(|line| *line == INNER).count() == cluster.nodes().len()
        })
    })
    .await;
    cluster
}

fn through_nat(cluster: &Cluster) -> RedisStoreBuilder {
    builder(&url(cluster)).node_addresses(|host, port| {
        let reached = if host == INNER { "127.0.0.1" } else { host };
        (reached.to_owned(), port)
    })
}

/// A server as Redis Enterprise shows itself: it wants the keys of a call in one hash slot, and has
/// no `CLUSTER`. Also without these commands.
async fn without_names(kind: Kind, nor: &[&str]) -> Server {
    let mut arguments = vec!["--cluster-enabled", "yes", "--rename-command", "CLUSTER", "hidden"];
    arguments.extend(nor.iter().flat_map(|command| ["--rename-command", command, "unknown"]));
    let server = Server::start_with(kind, &arguments).unwrap();
    let hash_slots: Vec<String> = (0..16_384).map(|hash_slot| hash_slot.to_string()).collect();
    let add = ["hidden", "ADDSLOTS"].into_iter().chain(hash_slots.iter().map(String::as_str));
    server.command(&add.collect::<Vec<_>>()).unwrap();
    eventually("it serves", async || {
        server.command(&["hidden", "INFO"]).unwrap().contains("cluster_state:ok")
    })
    .await;
    server
}

fn wait_for<T>(what: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}

/// With `TOLLGATE_LONG=1` each case of the contract. Its random steps are about decisions, which do
/// not depend on addresses, so they are few.
fn each_case() -> Suite {
    whole_or_short().steps(short_or_long(200, 50))
}

#[test]
fn a_cluster_behind_nat_keeps_the_contract() {
    let cluster = wait_for(behind_nat(Kind::Valkey9_1));
    holds_of(each_case().without_atomic_sets_across_keys(), || through_nat(&cluster));
}

#[tokio::test]
async fn an_address_that_cannot_be_reached_is_named_when_connecting() {
    let cluster = behind_nat(Kind::Redis8_2).await;
    let Err(error) = builder(&url(&cluster)).connect().await else { panic!("it connects") };
    assert!(error.is_configuration(), "{error}");
    let first = cluster.nodes()[0].address();
    let announced = format!("the node at {first} announces {INNER}:{}, where", first.port());
    assert!(error.to_string().contains(&announced), "{error}");
    assert!(error.to_string().contains("set node_addresses"), "{error}");
}

/// The inner addresses are in redirections, too.
#[tokio::test]
async fn a_hash_slot_that_moves_behind_nat_is_followed() {
    let cluster = behind_nat(Kind::Redis8_2).await;
    let prefix = prefix();
    let store = through_nat(&cluster).prefix(&prefix).connect().await.unwrap();
    let policy = Policy::new("p", Quota::per_day(100));
    assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap().is_granted());
    let (hash_slot, home) = super::home(&cluster, &prefix, "ada");
    let other = super::another_master(&cluster, home);
    cluster.begin_migration(hash_slot, other).unwrap();
    cluster.finish_migration(hash_slot, other).unwrap();
    assert!(try_acquire(&store, &policy, "ada", 99).await.unwrap().is_granted());
    assert!(!try_acquire(&store, &policy, "ada", 1).await.unwrap().is_granted());
}

#[test]
fn a_server_that_names_no_nodes_keeps_the_contract() {
    let server = wait_for(without_names(Kind::Redis8_2, &[]));
    let url = format!("redis-cluster://{}", server.address());
    holds_of(each_case().without_atomic_sets_across_keys(), || builder(&url));
}

#[tokio::test]
async fn the_url_of_a_server_that_names_no_nodes_must_be_that_of_a_cluster() {
    let server = without_names(Kind::Installed, &[]).await;
    let Err(error) = builder(&server.url()).connect().await else { panic!("it connects") };
    assert!(error.is_configuration(), "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

/// Nothing reports the end of a connection in RESP2, also of one to a node of a Cluster.
#[tokio::test]
async fn the_first_request_to_a_node_in_resp2_after_connections_were_cut_passes() {
    let server = without_names(Kind::Redis8_2, &["HELLO"]).await;
    let store = builder(&format!("redis-cluster://{}", server.address())).connect().await.unwrap();
    passes_after_connections_were_cut(&server, &store).await;
}

#[tokio::test]
async fn addresses_of_nodes_need_the_url_of_a_cluster() {
    let mapped = builder("redis://127.0.0.1/").node_addresses(|host, port| (host.to_owned(), port));
    let Err(error) = mapped.connect().await else { panic!("it connects") };
    assert!(error.is_configuration(), "{error}");
}
