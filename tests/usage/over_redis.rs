//! Usage in Redis, which all processes share.

use std::array::from_fn;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use redis::cmd;
use tollgate::store::{Check, Reply, Store, Times};
use tollgate::usage::top_keys::{Recording, TopKeys, UsageLog, UsageOf};
use tollgate::{Key, MemoryStore, StoreExt};
use tollgate_redis::{RedisStore, RedisStoreBuilder};
use tollgate_test_servers::{Cluster, Kind, Server, short_or_long};
use tollgate_tests::clock;

use crate::usage::{HOUR, MINUTE, ample, ask, counts};

fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Kind::Redis8_2).expect("a server"))
}

fn builder(prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder(&shared().url()).prefix(prefix).response_timeout(Duration::from_secs(30))
}

fn pages(prefix: &str) -> Vec<String> {
    let mut server = redis::Client::open(shared().url()).unwrap().get_connection().unwrap();
    let names: Vec<String> = cmd("KEYS").arg(format!("{prefix}:2:{{usage}}:*")).query(&mut server).unwrap();
    let mut pages = Vec::new();
    for name in names {
        let life: i64 = cmd("PTTL").arg(&name).query(&mut server).unwrap();
        assert!((1..=3_600_000).contains(&life), "{name} lives for {life} ms");
        pages.extend(cmd("HVALS").arg(&name).query::<Vec<String>>(&mut server).unwrap());
    }
    pages
}

async fn counts_over(store: RedisStore) {
    let usage = TopKeys::new(store.clone());
    let recorder = usage.record(Recording::default());
    let counted = store.fail_closed().count_usage(&recorder);
    for key in ["ada", "bob", "ada"] {
        assert!(ask(&counted, &ample("api"), key).await);
    }
    recorder.flush().await.unwrap();
    assert_eq!(counts(&usage.top_allowed(5, 2 * MINUTE).await.unwrap()), [("=ada", 2), ("=bob", 1)]);
    let minutes = usage.series(UsageOf::Key(&Key::from("ada")), 2 * MINUTE).await.unwrap();
    assert_eq!(minutes.iter().map(|minute| minute.allowed).sum::<u64>(), 2);
}

#[tokio::test]
async fn usage_is_counted_on_a_server() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        counts_over(RedisStore::connect(&server.url()).await.unwrap()).await;
    }
}

#[tokio::test]
async fn usage_is_counted_in_a_cluster() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    counts_over(RedisStore::connect(&format!("redis-cluster://{}", nodes.join(","))).await.unwrap()).await;
}

#[tokio::test]
async fn with_a_secret_pages_hold_no_key() {
    let store = builder("secret").secret("hidden").connect().await.unwrap();
    let usage = TopKeys::new(store.clone());
    let recorder = usage.record(Recording::default());
    let counted = MemoryStore::new().count_usage(&recorder);
    ask(&counted, &ample("api"), "ada@example.com").await;
    recorder.flush().await.unwrap();
    let pages = pages("secret");
    assert!(pages.len() == 1 && !pages[0].contains("ada"), "{pages:?}");
    let top = usage.top_allowed(1, 2 * MINUTE).await.unwrap();
    let key = Key::from("ada@example.com");
    assert_eq!(counts(&top), [(&*store.name(&key), 1)]);
    let minutes = usage.series(UsageOf::Key(&key), 2 * MINUTE).await.unwrap();
    assert_eq!(minutes.iter().map(|minute| minute.allowed).sum::<u64>(), 1);
}

/// Ten million keys that are used once each, over five minutes.
#[tokio::test]
async fn invented_keys_do_not_add_entries_beyond_the_stated_number() {
    const MINUTES: usize = 5;
    // The keys of a request, of which all are counted.
    const SET: usize = 20;
    let invented: u64 = short_or_long(1_000_000, 10_000_000);
    let time = clock();
    let usage = TopKeys::new(builder("invented").connect().await.unwrap()).clock(&time);
    let recorder = usage.record(Recording::default().clock(&time));
    let store = MemoryStore::builder().max_keys(1_000).build().count_usage(&recorder);
    let policy = ample("api");
    for n in (0..invented).step_by(SET) {
        let keys: [Key; SET] = from_fn(|at| Key::from(n + at as u64));
        let reply = store.acquire(&keys.each_ref().map(|key| Check::new(&policy, key, 1)), Times::ONCE);
        assert!(matches!(reply, Reply::Now(Ok(verdict)) if verdict.is_granted()));
        if n % (invented / 20) == 0 {
            recorder.flush().await.unwrap();
        }
        if (n + SET as u64).is_multiple_of(invented / 5) {
            recorder.flush().await.unwrap();
            time.advance(MINUTE);
        }
    }
    let pages = pages("invented");
    assert_eq!(pages.len(), MINUTES);
    for page in &pages {
        let entries = page.lines().filter(|line| line.starts_with("allowed") || line.starts_with("denied"));
        assert_eq!(entries.count(), 100, "{page}");
        assert!(page.len() <= 10_000, "{} bytes", page.len());
    }
}

/// A second process follows the first one, and is killed too.
#[tokio::test]
async fn a_killed_process_loses_what_it_counted_since_its_last_flush() {
    let usage = TopKeys::new(builder("killed").connect().await.unwrap());
    for stored in [50, 100] {
        let mut process = crate::process_of("usage");
        process.args([&*shared().url(), "killed"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.take(2).collect::<Vec<_>>(), ["flushed 50", "counted 57"]);
        // By SIGKILL.
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(counts(&usage.top_allowed(5, HOUR).await.unwrap()), [("=ada", stored)]);
    }
}

/// A scan returns fields again if their hash becomes smaller meanwhile.
#[tokio::test]
async fn the_pages_of_many_processes_are_read_in_parts_and_each_once() {
    const NAME: &str = "tollgate:2:{usage}:7";
    const PROCESSES: u64 = 5_000;
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let store = RedisStore::builder(&server.url()).response_timeout(MINUTE).connect().await.unwrap();
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let mut pages = redis::pipe();
        for process in 0..PROCESSES {
            pages.cmd("HSET").arg(NAME).arg(process).arg(format!("{process}{:100}", "")).ignore();
        }
        pages.query::<()>(&mut connection).unwrap();
        let mut read = Vec::new();
        let each = |page: &str| {
            read.push(page.trim_end().parse::<u64>().unwrap());
            if read.len() == 200 {
                // Without the others, so that it is smaller.
                let mut hash = redis::pipe();
                hash.cmd("DEL").arg(NAME).ignore();
                for process in &read {
                    hash.cmd("HSET").arg(NAME).arg(process).arg(format!("{process}{:100}", "")).ignore();
                }
                hash.query::<()>(&mut connection).unwrap();
            }
        };
        store.read(7, each).await.unwrap();
        let passed = read.len();
        assert!((200..400).contains(&passed), "{passed} pages on {kind}: they are not read in parts");
        read.sort_unstable();
        read.dedup();
        assert_eq!(read.len(), passed, "pages were passed again on {kind}");
    }
}
