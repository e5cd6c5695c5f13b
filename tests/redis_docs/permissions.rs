//! The permissions that the documentation lists: they suffice, and the store uses each of them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::jobs::{JobPolicy, Jobs};
use tollgate::store::{Check, Store, Times};
use tollgate::usage::UsageTotals;
use tollgate::usage::top_keys::UsageLog;
use tollgate::{Key, Policy, Quota};
use tollgate_conformance::Suite;
use tollgate_redis::{RedisStore, RedisStoreBuilder, SlidingLogLayout};
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server};

const DOCS: &str = include_str!("../../crates/tollgate-redis/src/lib.rs");
const GUIDE: &str = include_str!("../../crates/tollgate/src/guide/operating.md");

/// Commands for a Cluster and for Sentinels only.
const TOPOLOGY: [&str; 3] = ["asking", "cluster|slots", "role"];

/// The words of `ACL SETUSER …` in the documentation of tollgate-redis.
fn documented() -> Vec<&'static str> {
    documented_in(DOCS)
}

fn documented_in(text: &'static str) -> Vec<&'static str> {
    let (_, text) = text.split_once("ACL SETUSER").expect("the documentation names the command");
    let (text, _) = text.split_once("```").expect("the end of the block");
    ["ACL", "SETUSER"].into_iter().chain(text.split_whitespace().filter(|word| *word != "//!")).collect()
}

/// A store of the documented user, with long timeouts for slow machines.
fn store(url: &str) -> RedisStoreBuilder {
    const PATIENCE: Duration = Duration::from_secs(30);
    let url = url.replacen("://", "://tollgate:password@", 1);
    RedisStore::builder(&url).connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

fn hosts(servers: &[Server]) -> String {
    servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
}

/// Runs the whole contract on stores of the documented user. Returns the commands that the server
/// executed for them.
async fn keeps_the_contract(server: &Server, layout: SlidingLogLayout) -> BTreeSet<String> {
    server.command(&documented()).expect("OK");
    // Forgets the commands that started the server.
    server.command(&["CONFIG", "RESETSTAT"]).expect("OK");
    let stores = AtomicU32::new(0);
    let make = async |clock| {
        let prefix = format!("tollgate:{layout:?}:{}", stores.fetch_add(1, Ordering::Relaxed));
        let store = store(&server.url()).prefix(prefix).sliding_log(layout).clock(clock);
        store.connect().await.expect("a store")
    };
    Suite::new().steps(100).run(&make).await;
    Suite::new().run_usage(&make).await;
    Suite::new().run_totals(&make).await;
    // With the server's clock, in both protocols.
    for query in ["", "?protocol=resp2"] {
        let store = store(&format!("{}{query}", server.url())).connect().await.expect("a store");
        store.write(7, 1, "a page", Duration::from_secs(60)).await.expect("OK");
        let mut pages = Vec::new();
        store.read(7, |page| pages.push(page.to_owned())).await.expect("an answer");
        assert_eq!(pages, ["a page"]);
        store.scan_totals("api", |_| {}).await.expect("an answer");
        let jobs = Jobs::new(JobPolicy::new("exports", 1, Duration::from_secs(60)), store);
        let (key, id) = (Key::from("ada"), "a".try_into().expect("an id"));
        let _ = jobs.take(&key, id, Duration::from_secs(1)).await.expect("an answer");
        assert!(jobs.renew(&key, id, 0, Duration::ZERO).await.expect("an answer").is_none());
        assert_eq!(jobs.holders(&key).await.expect("an answer").len(), 1);
        assert!(jobs.release(&key, id).await.expect("an answer"));
    }

    let stats = server.command(&["INFO", "commandstats"]).expect("a text");
    let names = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    // Every user may run `AUTH` and `HELLO`. `CLIENT SETINFO` may be refused, and Redis 6.2 counts
    // it as `CLIENT SETNAME`. The test itself runs `CONFIG`.
    let others = ["auth", "client", "client|setinfo", "hello"];
    names.filter(|name| !others.contains(name) && !name.starts_with("config")).map(str::to_owned).collect()
}

#[test]
fn the_guide_lists_the_same_permissions() {
    assert_eq!(documented_in(GUIDE), documented());
}

/// The kinds at once: a contract mostly waits for answers.
#[test]
fn the_documented_permissions_are_necessary_and_sufficient() {
    let used_by = |kind, layout| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(keeps_the_contract(&Server::start(kind).expect("a server"), layout))
    };
    let used: BTreeSet<String> = thread::scope(|scope| {
        let kinds = [
            (Kind::Redis6_2, SlidingLogLayout::List),
            (Kind::Redis8_2, SlidingLogLayout::SortedSet),
            (Kind::Valkey9_1, SlidingLogLayout::List),
        ];
        let threads = kinds.map(|(kind, layout)| scope.spawn(move || used_by(kind, layout)));
        threads.into_iter().flat_map(|thread| thread.join().expect("the contract")).collect()
    });
    let allowed = documented().into_iter().filter_map(|word| word.strip_prefix('+'));
    let allowed: BTreeSet<_> = allowed.filter(|name| !TOPOLOGY.contains(name)).map(str::to_owned).collect();
    assert_eq!(allowed, used);
}

/// What the scripts use of Lua, besides its syntax.
#[test]
fn the_documented_functions_of_lua_are_those_of_the_scripts() {
    let (_, documented) = DOCS.split_once("functions of Lua 5.1:").expect("a list");
    let (documented, _) = documented.split_once(". The command").expect("its end");
    let documented: BTreeSet<&str> = documented.split('`').skip(1).step_by(2).collect();
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tollgate-redis/lua");
    let mut used = BTreeSet::new();
    for script in fs::read_dir(scripts).expect("a folder") {
        let text = fs::read_to_string(script.expect("a file").path()).expect("a text");
        for line in text.lines() {
            let code = line.split_once("--").map_or(line, |(code, _)| code);
            let words = code.split(|sign: char| !sign.is_ascii_alphanumeric() && !"._".contains(sign));
            used.extend(words.filter(|word| is_of_lua(word)).map(str::to_owned));
        }
    }
    assert_eq!(documented, used.iter().map(String::as_str).collect());
}

fn is_of_lua(word: &str) -> bool {
    const LIBRARIES: [&str; 8] = ["bit", "cjson", "cmsgpack", "math", "redis", "string", "struct", "table"];
    const GLOBALS: [&str; 17] = [
        "assert",
        "error",
        "getmetatable",
        "ipairs",
        "load",
        "loadstring",
        "next",
        "pairs",
        "pcall",
        "rawequal",
        "rawget",
        "rawset",
        "select",
        "setmetatable",
        "tonumber",
        "tostring",
        "type",
    ];
    word == "unpack"
        || GLOBALS.contains(&word)
        || word.split_once('.').is_some_and(|(library, _)| LIBRARIES.contains(&library))
}

async fn passes(store: &RedisStore) {
    let (policy, key) = (Policy::new("api", Quota::per_minute(100)), Key::from("ada"));
    let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await;
    assert!(verdict.expect("an answer").is_granted());
}

#[tokio::test]
async fn the_documented_permissions_suffice_to_find_a_master() {
    let sentinel = Sentinel::start(Kind::Redis8_2).expect("servers");
    for server in sentinel.servers() {
        server.command(&documented()).expect("OK");
    }
    let url = format!("redis-sentinel://{}/{}", hosts(sentinel.sentinels()), sentinel.master_name());
    passes(&store(&url).connect().await.expect("a store")).await;
}

#[tokio::test]
async fn the_documented_permissions_suffice_to_find_a_slot() {
    let cluster = Cluster::start(Kind::Redis8_2).expect("a cluster");
    for server in cluster.nodes() {
        server.command(&documented()).expect("OK");
    }
    let url = format!("redis-cluster://{}", hosts(cluster.nodes()));
    let store = store(&url).connect().await.expect("a store");
    // A slot that moves to another node. The store must ask for the new owner.
    let slot = cluster.slot_of("{=ada}").expect("a slot");
    let owner = cluster.owner_of(slot).expect("a master");
    let masters = cluster.masters().expect("masters");
    let other = masters.into_iter().find(|master| master.port() != owner.port()).expect("another");
    cluster.begin_migration(slot, other).expect("OK");
    passes(&store).await;
    cluster.finish_migration(slot, other).expect("OK");
    passes(&store).await;
}
