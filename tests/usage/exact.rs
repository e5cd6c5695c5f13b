//! The last use and the total of every key, over each kind of store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redis::cmd;
use tokio::runtime::Builder;
use tollgate::store::{Check, Store, Times};
use tollgate::usage::{KeyTotal, Totals, UsageTotals};
use tollgate::{Key, Lease, MemoryStore, Policy, Quota, Share, StoreExt};
use tollgate_conformance::Suite;
use tollgate_redis::{RedisStore, RedisStoreBuilder, SlidingLogLayout};
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_tests::{Connection, Failing, Fault, clock, within};

use crate::usage::{MINUTE, ample, ask};

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Kind::Redis8_2).expect("a server"))
}

fn builder(url: &str, prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).prefix(prefix).response_timeout(Duration::from_secs(60))
}

fn url_of(cluster: &Cluster) -> String {
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

fn tracked(name: &str) -> Policy {
    ample(name).track_usage()
}

fn keys(rows: &[KeyTotal]) -> Vec<&str> {
    rows.iter().map(|row| &*row.key).collect()
}

fn holds_over(url: &str, layout: SlidingLogLayout) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let cases = AtomicU32::new(0);
    runtime.block_on(Suite::new().run_totals(async |clock| {
        let case = cases.fetch_add(1, Ordering::Relaxed);
        let builder = builder(url, &format!("contract:{layout:?}:{case}"));
        builder.sliding_log(layout).clock(clock).connect().await.unwrap()
    }));
}

#[test]
fn totals_in_memory_keep_the_contract() {
    within(MINUTE, || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Suite::new().run_totals(async |clock| MemoryStore::builder().clock(clock).build()));
    });
}

#[test]
fn totals_in_redis_keep_the_contract() {
    thread::scope(|scope| {
        for &kind in Kind::EVERY {
            scope.spawn(move || {
                let server = Server::start(kind).unwrap();
                holds_over(&server.url(), SlidingLogLayout::List);
            });
        }
        holds_over(&shared().url(), SlidingLogLayout::SortedSet);
    });
}

#[test]
fn totals_in_a_cluster_keep_the_contract() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    holds_over(&url_of(&cluster), SlidingLogLayout::List);
}

/// Uses 25 keys, one each minute, and each once more than the one before it.
async fn pages_of<S: Store<Error: std::fmt::Debug> + UsageTotals>(store: S, step: impl Fn()) {
    let policy = tracked("api");
    for n in 0..25 {
        let key = Key::from(format!("user {n:02}"));
        let check = [Check::new(&policy, &key, n + 1)];
        assert!(store.acquire(&check, Times::ONCE).wait().await.unwrap().is_granted());
        assert!(ask(&store, &tracked("other"), &format!("user {n:02}")).await);
        step();
    }
    let totals = Totals::new(store);
    let [mut oldest, mut newest, mut highest] = [const { Vec::new() }; 3];
    for _ in 0..3 {
        oldest.extend(totals.oldest("api", 10, oldest.last()).await.unwrap());
        newest.extend(totals.newest("api", 10, newest.last()).await.unwrap());
        highest.extend(totals.by_total("api", 10, highest.last()).await.unwrap());
    }
    let names: Vec<String> = (0..25).map(|n| format!("=user%20{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let backwards: Vec<&str> = names.iter().rev().copied().collect();
    assert_eq!(keys(&oldest), names);
    assert_eq!((keys(&newest), keys(&highest)), (backwards.clone(), backwards));
    assert!(oldest.iter().map(|row| row.total).eq(1..=25));
    assert!(totals.oldest("api", 10, oldest.last()).await.unwrap().is_empty());
    assert!(totals.oldest("api", 0, None).await.unwrap().is_empty());
    assert!(totals.oldest("ap", 10, None).await.unwrap().is_empty());
    let one = totals.of("api", &Key::from("user 07")).await.unwrap();
    assert_eq!(one.as_ref(), Some(&oldest[7]));
    assert_eq!(totals.of("api", &Key::from("user 99")).await, Ok(None));
}

#[tokio::test]
async fn pages_continue_behind_their_last_row() {
    let time = clock();
    pages_of(MemoryStore::builder().clock(&time).build(), || time.advance(MINUTE)).await;
    let store = builder(&shared().url(), "pages").clock(&time).connect().await.unwrap();
    pages_of(store, || time.advance(MINUTE)).await;
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let store = builder(&url_of(&cluster), "pages").clock(&time).connect().await.unwrap();
    pages_of(store, || time.advance(MINUTE)).await;
}

/// Identical checks are merged, and different costs of a key are in different groups of a call.
#[tokio::test]
async fn concurrent_uses_are_all_counted() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let server = Server::start(kind).unwrap();
        let store = builder(&server.url(), "crowd").connections(1).connect().await.unwrap();
        let few = Policy::new("few", Quota::per_day(50)).track_usage();
        let (many, key) = (tracked("many"), Key::from("ada"));
        let mut replies = Vec::new();
        for n in 0..600 {
            let cost = n % 3 + 1;
            replies.push(store.acquire(&[Check::new(&many, &key, cost)], Times::ONCE));
            let set = [Check::new(&few, &key, 1), Check::new(&many, &key, cost)];
            replies.push(store.acquire(&set, Times::ONCE));
        }
        let mut due = [0, 0];
        for (n, reply) in replies.into_iter().enumerate() {
            if reply.wait().await.unwrap().is_granted() {
                due[0] += u64::try_from(n / 2 % 3 + 1).unwrap();
                due[1] += u64::try_from(n % 2).unwrap();
            }
        }
        assert_eq!(due[1], 50);
        let totals = Totals::new(store);
        for (policy, due) in [("many", due[0]), ("few", due[1])] {
            assert_eq!(totals.of(policy, &key).await.unwrap().unwrap().total, due, "{policy} on {kind}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_no_longer_used_is_forgotten() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).keep_usage_for(DAY).build();
    let totals = Totals::new(store.clone());
    for _ in 0..3 {
        ask(&store, &tracked("api"), "ada").await;
        time.advance(DAY - Duration::from_micros(1));
    }
    assert_eq!(totals.of("api", &Key::from("ada")).await.unwrap().unwrap().total, 3);
    time.advance(Duration::from_micros(1));
    assert_eq!(totals.of("api", &Key::from("ada")).await, Ok(None));
    assert!(totals.oldest("api", 5, None).await.unwrap().is_empty());
    ask(&store, &tracked("api"), "ada").await;
    assert_eq!(totals.of("api", &Key::from("ada")).await.unwrap().unwrap().total, 1);

    let store = builder(&shared().url(), "life").keep_usage_for(DAY).connect().await.unwrap();
    let mut server = redis::Client::open(shared().url()).unwrap().get_connection().unwrap();
    let name = "life:2:{=ada}:api~usage";
    let mut life = || -> i64 { cmd("PTTL").arg(name).query(&mut server).unwrap() };
    ask(&store, &tracked("api"), "ada").await;
    assert!((86_340_000..=86_400_000).contains(&life()));
    let mut again = redis::Client::open(shared().url()).unwrap().get_connection().unwrap();
    let _: i64 = cmd("PEXPIRE").arg(name).arg(60_000).query(&mut again).unwrap();
    let (policy, key) = (tracked("api"), Key::from("ada"));
    let verdict = store.acquire(&[Check::new(&policy, &key, 5)], Times::ONCE).wait().await.unwrap();
    assert!(life() > 60_000, "a use renews the life");
    let _: i64 = cmd("PEXPIRE").arg(name).arg(60_000).query(&mut again).unwrap();
    let stamp = verdict.each()[0].stamp();
    let grant = tollgate::store::Grant { policy: &policy, key: &key, units: 5, stamp, share: None };
    store.refund(&[grant]).await.unwrap();
    assert!(life() <= 60_000, "a refund does not");
    assert_eq!(Totals::new(store).of("api", &key).await.unwrap().unwrap().total, 1);
}

/// In memory a cap bounds the keys. In Redis each has a life, and only granted keys are stored.
#[tokio::test]
async fn invented_keys_do_not_grow_the_usage_without_bound() {
    const CAP: usize = 1_000;
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_tracked_keys(CAP).build();
    let policy = tracked("api");
    for n in 0..1_000_000_u64 {
        let key = Key::from(n);
        let check = [Check::new(&policy, &key, 1)];
        assert!(store.acquire(&check, Times::ONCE).wait().await.unwrap().is_granted());
        if n % 10 == 0 {
            // Used all the time, so it stays. The oldest of eight neighbours is evicted, and most
            // have been there for hundreds of requests.
            ask(&store, &policy, "ada").await;
        }
        time.advance(Duration::from_millis(1));
    }
    ask(&store, &policy, &"x".repeat(10_000)).await;
    let totals = Totals::new(store);
    let rows = totals.by_total("api", 2 * CAP, None).await.unwrap();
    assert!(rows.len() <= CAP, "{}", rows.len());
    assert_eq!((&*rows[0].key, rows[0].total), ("=ada", 100_000));
    assert!(rows.iter().all(|row| row.key.len() <= 128));

    let store = builder(&shared().url(), "invented").connect().await.unwrap();
    let one = Policy::new("one", Quota::per_day(1)).track_usage();
    for n in 0..500 {
        let (address, invented) = (Key::from("192.0.2.1"), Key::from(format!("invented {n}")));
        let set = [Check::new(&one, &address, 1), Check::new(&policy, &invented, 1)];
        store.acquire(&set, Times::ONCE).wait().await.unwrap();
    }
    let mut server = redis::Client::open(shared().url()).unwrap().get_connection().unwrap();
    let names: Vec<String> = cmd("KEYS").arg("invented:2:*~usage").query(&mut server).unwrap();
    assert_eq!(names.len(), 2, "what is refused is not recorded: {names:?}");
    for name in names {
        let life: i64 = cmd("TTL").arg(&name).query(&mut server).unwrap();
        assert!((29 * 86_400..=30 * 86_400).contains(&life), "{name} lives for {life} s");
    }
}

#[tokio::test]
async fn with_a_secret_rows_hold_digests_and_a_key_finds_its_own() {
    let store = builder(&shared().url(), "secret").secret("hidden").connect().await.unwrap();
    ask(&store, &tracked("api"), "ada@example.com").await;
    let totals = Totals::new(store);
    let rows = totals.newest("api", 5, None).await.unwrap();
    assert!(rows.len() == 1 && rows[0].key.starts_with('~') && !rows[0].key.contains("ada"), "{rows:?}");
    assert_eq!(totals.of("api", &Key::from("ada@example.com")).await, Ok(Some(rows[0].clone())));
}

#[tokio::test]
async fn foreign_values_are_skipped_and_replaced() {
    let mut server = redis::Client::open(shared().url()).unwrap().get_connection().unwrap();
    let store = builder(&shared().url(), "foreign").connect().await.unwrap();
    for (key, value) in [("a", "nan0000000000000000"), ("b", "-1"), ("c", ""), ("d", &*"9".repeat(60))] {
        let name = format!("foreign:2:{{={key}}}:api~usage");
        let _: () = cmd("SET").arg(name).arg(value).arg("EX").arg(600).query(&mut server).unwrap();
    }
    let _: i64 = cmd("RPUSH").arg("foreign:2:{=e}:api~usage").arg("x").query(&mut server).unwrap();
    // Another policy, whose name looks like the end of a key.
    ask(&store, &tracked("x}:api"), "f").await;
    let totals = Totals::new(store.clone());
    assert!(totals.oldest("api", 9, None).await.unwrap().is_empty());
    for key in ["a", "b", "c", "d", "e"] {
        assert!(ask(&store, &tracked("api"), key).await);
    }
    let rows: Vec<_> = totals.by_total("api", 9, None).await.unwrap();
    assert_eq!(keys(&rows), ["=d", "=a", "=b", "=c", "=e"]);
    assert_eq!(rows.iter().map(|row| row.total).collect::<Vec<_>>(), [1 << 53, 1, 1, 1, 1]);
}

/// A name with characters that have a meaning in patterns.
#[tokio::test]
async fn policies_with_similar_names_are_kept_apart() {
    let store = builder(&shared().url(), "similar[1]*").connect().await.unwrap();
    let names = ["a*", "ab", "a?", "[ab]", "a\\*", "a"];
    for name in names {
        ask(&store, &tracked(name), name).await;
    }
    let totals = Totals::new(store);
    for name in names {
        assert_eq!(totals.oldest(name, 9, None).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn leases_and_denial_caches_leave_each_use_to_the_store() {
    let memory = MemoryStore::new();
    let store = memory.clone().leased(Lease::default()).deny_cache(100);
    let policy = Policy::new("api", Quota::per_day(1_000)).track_usage();
    for n in 1..=1_200 {
        assert_eq!(ask(&store, &policy, "ada").await, n <= 1_000);
        let total = Totals::new(memory.clone()).of("api", &Key::from("ada")).await.unwrap().unwrap().total;
        assert_eq!(total, n.min(1_000));
    }
}

#[tokio::test]
async fn what_a_fallback_decides_is_recorded_there() {
    let (main, spare) = (MemoryStore::new(), MemoryStore::new());
    let failing = Failing::new(main.clone(), Connection::Fails(Fault::Unreachable));
    let store = failing.fall_back_to(spare.clone(), Share::new(1, 3));
    let policy = Policy::new("api", Quota::per_day(30)).track_usage();
    for _ in 0..20 {
        ask(&store, &policy, "ada").await;
    }
    let total = async |store| Totals::new(store).of("api", &Key::from("ada")).await.unwrap();
    assert_eq!(total(main).await, None);
    assert_eq!(total(spare).await.unwrap().total, 10);
}

#[tokio::test]
async fn a_question_to_a_stopped_server_is_an_error() {
    let server = Server::start(Kind::Installed).unwrap();
    let store = builder(&server.url(), "stopped").connect().await.unwrap();
    ask(&store, &tracked("api"), "ada").await;
    drop(server);
    let totals = Totals::new(store);
    assert!(totals.oldest("api", 5, None).await.is_err());
    assert!(totals.of("api", &Key::from("ada")).await.is_err());
}
