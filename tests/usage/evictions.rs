//! Limits next to tracked usage in a server whose memory is full.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;
use tollgate::{Limiter, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_tests::Log;

use crate::usage::ask;

/// The victims, each with a limit of [`LIMIT`].
const VICTIMS: u32 = 10;
const LIMIT: u64 = 3;

/// Room for what is invented in about six seconds, and in three with its usage.
const ROOM: u64 = 1 << 20;

fn used_memory(server: &Server) -> u64 {
    let info = server.command(&["INFO", "memory"]).unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok()).unwrap()
}

/// A store in a server with little memory left, which then evicts by this policy.
pub(crate) async fn store(server: &Server, eviction: &str) -> RedisStore {
    let store = RedisStore::builder(&server.url()).response_timeout(Duration::from_secs(30));
    let store = store.connect().await.unwrap();
    for (name, value) in [
        ("maxmemory-policy", eviction),
        ("maxmemory-samples", "10"),
        ("maxmemory", &(used_memory(server) + ROOM).to_string()),
    ] {
        server.command(&["CONFIG", "SET", name, value]).unwrap();
    }
    store
}

/// The most guesses of a victim that pass, while others invent a thousand keys in each second.
/// Redis counts how long a key was idle in seconds.
async fn guesses(eviction: &str, policy: Policy) -> u64 {
    let server = Server::start(Kind::Installed).unwrap();
    let store = store(&server, eviction).await;
    let mut passed = [0; VICTIMS as usize];
    let mut seconds = interval(Duration::from_secs(1));
    for second in 0..12 {
        seconds.tick().await;
        for (victim, passed) in passed.iter_mut().enumerate() {
            for _ in 0..5 {
                *passed += u64::from(ask(&store, &policy, &format!("victim {victim}")).await);
            }
        }
        let mut invented: JoinSet<_> = (0..1_000)
            .map(|n| {
                let (store, policy) = (store.clone(), policy.clone());
                async move { ask(&store, &policy, &format!("invented {second} {n}")).await }
            })
            .collect();
        while let Some(passed) = invented.join_next().await {
            assert!(passed.unwrap());
        }
    }
    let stats = server.command(&["INFO", "stats"]).unwrap();
    assert!(!stats.contains("evicted_keys:0\r"), "the memory was not full");
    passed.into_iter().max().unwrap()
}

/// As the documentation of the crate says under "When memory is full".
#[tokio::test]
async fn limits_hold_in_full_memory_under_the_documented_policies() {
    let policy = || Policy::new("guesses", Quota::per_day(3));
    let (untracked, tracked, unfit) = tokio::join!(
        guesses("volatile-lru", policy()),
        guesses("volatile-lru", policy().track_usage()),
        guesses("volatile-ttl", policy().track_usage()),
    );
    println!(
        "guesses of a victim: {untracked} untracked, {tracked} tracked, {unfit} tracked with volatile-ttl"
    );
    assert_eq!((untracked, tracked), (LIMIT, LIMIT));
    assert!(unfit > LIMIT, "volatile-ttl evicts usage before limits: the documentation is outdated");
}

/// The lines of the log for a layer over this store.
fn warnings(store: RedisStore, policy: Policy) -> Vec<String> {
    let (log, _guard) = Log::of_thread();
    let _limiter = Limiter::new([policy]).store(store.fail_closed());
    log.lines()
}

async fn connect(url: &str) -> RedisStore {
    RedisStore::builder(url).response_timeout(Duration::from_secs(30)).connect().await.unwrap()
}

#[tokio::test]
async fn a_server_that_evicts_limits_in_use_is_logged_with_what_rules_need() {
    let plain = || Policy::new("api", Quota::per_day(3));
    let needs = [
        (plain().track_usage(), "limits before tracked usage"),
        (plain().block_after(3, Duration::from_secs(900)), "blocks"),
        (Policy::in_flight("api", 3), "slots in use"),
    ];
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let cases = [
            ("0", "volatile-ttl", false),
            ("1gb", "volatile-ttl", true),
            ("1gb", "allkeys-random", true),
            ("1gb", "volatile-lru", false),
            ("1gb", "noeviction", false),
        ];
        for (memory, eviction, is_unfit) in cases {
            server.command(&["CONFIG", "SET", "maxmemory", memory]).unwrap();
            server.command(&["CONFIG", "SET", "maxmemory-policy", eviction]).unwrap();
            for query in ["", "?protocol=resp2"] {
                let (log, guard) = Log::of_thread();
                let store = connect(&format!("{}{query}", server.url())).await;
                drop(guard);
                let warns = |lines: &[String], words: &[&str]| {
                    assert_eq!(
                        lines.len(),
                        usize::from(is_unfit),
                        "{eviction}, {memory} on {kind}: {lines:?}"
                    );
                    for line in lines {
                        let has = |word: &&str| line.contains(*word);
                        assert!(words.iter().all(has) && has(&eviction) && has(&"WARN"), "{line}");
                        assert!(line.contains("code=TOLLGATE_E07"), "{line}");
                    }
                };
                warns(&log.lines(), &["limits that are in use"]);
                assert_eq!(warnings(store.clone(), plain()), [""; 0], "it needs no more");
                for (policy, evicted) in &needs {
                    warns(&warnings(store.clone(), policy.clone()), &["api", evicted]);
                    assert_eq!(warnings(store.clone(), policy.clone()), [""; 0], "it was logged before");
                }
            }
        }
    }
}

#[tokio::test]
async fn one_master_of_a_cluster_that_evicts_limits_first_is_logged() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    let url = format!("redis-cluster://{}", nodes.join(","));
    let tracked = || Policy::new("api", Quota::per_day(3)).track_usage();
    assert_eq!(warnings(connect(&url).await, tracked()), [""; 0]);
    let unfit = cluster.owner_of(0).unwrap();
    unfit.command(&["CONFIG", "SET", "maxmemory", "1gb"]).unwrap();
    unfit.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).unwrap();
    assert_eq!(warnings(connect(&url).await, tracked()).len(), 1);
}
