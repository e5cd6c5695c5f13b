//! Names of keys, and what a key keeps when a limit changes.

use std::collections::BTreeSet;

use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, Policy, Quota, Wait};
use tollgate_redis::SlidingLogLayout;
use tollgate_test_servers::{Cluster, Kind, Server};

use crate::redis::{Fresh, acquire, builder, every_policy, look, prefix, shared, used};

fn names(server: &Server) -> BTreeSet<String> {
    let told = server.command(&["KEYS", "*"]).unwrap();
    told.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn key_names_show_the_caller_and_the_policy() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = builder(&server.url()).connect().await.unwrap();
    let burst = Policy::new("burst", Quota::per_second(1_000_000).burst(2));
    let daily = Policy::new("daily", Quota::per_day(5)).with_algorithm(Algorithm::FIXED_WINDOW);
    let address = Key::network("192.0.2.1".parse().unwrap(), 64);
    store.acquire(&[Check::new(&daily, &address, 1)], Times::ONCE).wait().await.unwrap();
    acquire(&store, &daily, "ada", 1).await;
    assert_eq!(
        names(&server).into_iter().collect::<Vec<_>>(),
        ["tollgate:2:{=ada}:daily~fixed-window~1d", "tollgate:2:{@192.0.2.1}:daily~fixed-window~1d"]
    );
    acquire(&store, &burst, "ada", 1).await;
}

#[tokio::test]
async fn a_secret_keeps_keys_off_the_server() {
    let server = Server::start(Kind::Installed).unwrap();
    let with = async |secret: &str| builder(&server.url()).secret(secret).connect().await.unwrap();
    let (one, same, other) = (with("a").await, with("a").await, with("b").await);
    let policy = Policy::new("p", Quota::per_day(10));
    for store in [&one, &same, &other] {
        acquire(store, &policy, "ada@example.com", 1).await;
    }
    assert_eq!(used(&one, &policy, "ada@example.com").await, 2);
    assert_eq!(used(&other, &policy, "ada@example.com").await, 1);
    let names = names(&server);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("tollgate:2:{~") && !name.contains("ada")), "{names:?}");
}

#[tokio::test]
async fn hostile_keys_neither_collide_nor_fail() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let fresh = Fresh::on(&server).await;
    let policy = Policy::new("p", Quota::per_day(1)).with_algorithm(Algorithm::FIXED_WINDOW);
    let megabyte = "x".repeat(1 << 20);
    let mut other_megabyte = megabyte.clone();
    other_megabyte.replace_range(1 << 19..=1 << 19, "y");
    let texts = [
        "a",
        "a}",
        "a}:p~fixed-window~1d",
        "{a}",
        "}{",
        "{",
        "}",
        "%7D",
        "%",
        "%%",
        "a:b",
        "a\r\nDEL *\r\n",
        "a\n",
        "\r",
        "\0",
        "a\0",
        "\0a",
        " ",
        "a ",
        " a",
        "A",
        "é",
        "e\u{301}",
        "*",
        "?",
        "[a]",
        "\\",
        "\"",
        "'",
        "=a",
        "~",
        "@192.0.2.1",
        "~0123456789abcdef0123456789abcdef",
        "\u{feff}a",
        "\u{202e}a",
        &megabyte,
        &other_megabyte,
        &megabyte[1..],
    ];
    let keys: Vec<Key> = texts
        .iter()
        .map(|text| Key::from(*text))
        .chain([Key::join([Key::from("a"), Key::from("b")]), Key::join([Key::from("a:b")]), Key::from(1_u32)])
        .chain([Key::global(), Key::network("192.0.2.1".parse().unwrap(), 64)])
        .collect();
    for (n, key) in keys.iter().enumerate() {
        let set = [Check::new(&policy, key, 1)];
        let verdict = fresh.store.acquire(&set, Times::ONCE).wait().await.unwrap();
        assert!(verdict.is_granted(), "key {n} shares a quota with one before it");
        assert!(!fresh.store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
    }
    let names = names(&server);
    // One name a line, since names contain no line feed.
    assert_eq!(names.len(), keys.len(), "{names:?}");
    let is_plain = |name: &String| name.len() < 256 && name.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(names.iter().all(is_plain), "{names:?}");
}

#[tokio::test]
async fn stores_with_different_prefixes_share_no_state() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let policy = Policy::new("p", Quota::per_day(1));
    for prefix in ["a", "a:1", "a:1:", "a:", ":a", "A", "~", "*"] {
        let store = builder(&server.url()).prefix(prefix).connect().await.unwrap();
        assert!(acquire(&store, &policy, "ada", 1).await.is_granted(), "{prefix:?} is not alone");
    }
}

/// Also of a key whose names are digests, and under a prefix that is special in patterns.
#[tokio::test]
async fn stored_policies_are_those_with_a_state_of_the_key() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    let urls = Kind::EVERY.iter().map(|kind| shared(*kind).url());
    for url in urls.chain([format!("redis-cluster://{}", nodes.join(","))]) {
        for layout in [SlidingLogLayout::List, SlidingLogLayout::SortedSet] {
            let builder = builder(&url).prefix(format!("[{}]*", prefix())).sliding_log(layout);
            let store = builder.connect().await.unwrap();
            let policies: Vec<Policy> = every_policy(5, std::time::Duration::from_secs(36_000))
                .into_iter()
                .filter(|(policy, of)| {
                    *of == layout || !matches!(policy.algorithm(), Algorithm::SlidingLog { .. })
                })
                .map(|(policy, _)| policy.track_usage())
                .collect();
            for key in [Key::from("ada"), Key::global(), Key::from("x".repeat(1_000))] {
                let scopes = async || {
                    let stored = store.stored_policies(&key).await.unwrap();
                    assert_eq!(stored.others, [""; 0]);
                    stored.policies.iter().map(|policy| policy.scope().to_owned()).collect::<BTreeSet<_>>()
                };
                assert_eq!(scopes().await, BTreeSet::new());
                for policy in &policies {
                    let set = [Check::new(policy, &key, 1)];
                    assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
                }
                let all = policies.iter().map(|policy| policy.scope().to_owned()).collect();
                assert_eq!(scopes().await, all, "{key:?} in {layout:?} on {url}");
                let (reset, rest) = policies.split_at(3);
                store.reset(&key, &reset.iter().collect::<Vec<_>>()).await.unwrap();
                assert_eq!(scopes().await, rest.iter().map(|policy| policy.scope().to_owned()).collect());
            }
        }
    }
}

/// A deployment that changes a limit must neither forgive usage nor block a caller for longer than
/// its wait.
#[tokio::test]
async fn a_changed_limit_keeps_past_usage() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let window = std::time::Duration::from_secs(36_000);
        // The names are the same for every limit.
        let of = |limit: u64| {
            let policies = every_policy(limit, window).into_iter().take(8);
            policies.map(move |(policy, _)| {
                Policy::try_from_parts("changes", policy.quota(), policy.algorithm()).unwrap()
            })
        };
        for ((ten, twenty), (five, one)) in of(10).zip(of(20)).zip(of(5).zip(of(1))) {
            let key = format!("{:?}", ten.algorithm());
            assert_eq!(ten.scope(), twenty.scope());
            acquire(&fresh.store, &ten, &key, 6).await;
            let what = format!("{ten:?} on {kind}");
            let left = async |policy: &Policy| look(&fresh.store, policy, &key).await.each()[0].remaining();
            let before = left(&ten).await;
            assert_eq!(before, 4, "{what}");
            match ten.algorithm() {
                // Six of ten is 0.6 of the span.
                Algorithm::Gcra => assert_eq!((left(&twenty).await, left(&five).await), (8, 2), "{what}"),
                Algorithm::LeakyBucket { .. } => assert!(left(&twenty).await >= 8, "{what}"),
                _ => assert_eq!((left(&twenty).await, left(&five).await), (14, 0), "{what}"),
            }
            let denied = look(&fresh.store, &one, &key).await;
            match denied.wait() {
                Wait::For(wait) => assert!(wait <= crate::redis::longest(&one), "{wait:?} under {what}"),
                Wait::None => assert_eq!(one.largest_cost(), 2, "only a queue has room: {what}"),
                Wait::Never => panic!("{what}"),
            }
        }
    }
}

/// Old and new processes run at the same time, and the new bucket is full sooner. The debt of the
/// old policy does not count as that of a clock that ran ahead.
#[tokio::test]
async fn a_new_policy_next_to_the_old_one_forgives_no_usage() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let old = Policy::new("changes", Quota::per_hour(10));
        let raised = Policy::new("changes", Quota::per_hour(20).burst(10));
        assert!(acquire(&fresh.store, &old, "ada", 10).await.is_granted());
        assert!(!acquire(&fresh.store, &raised, "ada", 1).await.is_granted(), "on {kind}");
        assert_eq!(look(&fresh.store, &old, "ada").await.each()[0].remaining(), 0, "on {kind}");
    }
}
