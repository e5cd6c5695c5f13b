//! Denials and looks, which leave no trace.

use std::time::Duration;

use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_redis::SlidingLogLayout;
use tollgate_test_servers::{Kind, Server};

use crate::redis::{BothLayouts, Fresh, acquire, every_policy, look, shared};

/// The commands that clients and scripts have run since the last `CONFIG RESETSTAT`.
pub(crate) fn commands(server: &Server) -> Vec<String> {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let names = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
    names.map(|(name, _)| name.to_lowercase()).collect()
}

pub(crate) const READS: [&str; 19] = [
    "client|setinfo",
    "client|setname",
    "config|resetstat",
    "config",
    "client",
    "eval",
    "evalsha",
    "hello",
    "info",
    "lindex",
    "llen",
    "lrange",
    "mget",
    "ping",
    "pttl",
    "time",
    "zcard",
    "zcount",
    "zrange",
];

/// Other versions of a policy, for which the key of this one is full too.
fn versions(policy: &Policy) -> Vec<Policy> {
    let (quota, algorithm) = (policy.quota(), policy.algorithm());
    let of = |limit, burst: Option<u64>, algorithm| {
        let quota = Quota::new(limit, quota.window());
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        Policy::new(policy.name(), quota).with_algorithm(algorithm)
    };
    match algorithm {
        Algorithm::Gcra => {
            vec![of(3, Some(1), algorithm), of(6, Some(3), algorithm), of(2, Some(2), algorithm)]
        }
        Algorithm::LeakyBucket { .. } => {
            let queue = |max_wait| Algorithm::LeakyBucket { max_wait };
            vec![of(3, Some(1), queue(Duration::ZERO)), of(6, None, queue(Duration::from_secs(1)))]
        }
        _ => vec![of(1, None, algorithm), of(2, None, algorithm)],
    }
}

/// If denials were recorded, or prolonged a window, a caller that keeps trying would never pass.
#[tokio::test]
async fn a_denied_request_writes_nothing() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let stores = BothLayouts::on(&server).await;
        for (policy, layout) in every_policy(3, Duration::from_secs(600)) {
            let fresh = stores.of(layout);
            let full = policy.largest_cost();
            assert!(acquire(&fresh.store, &policy, "ada", full).await.is_granted());
            // A new key under a second policy, so that one check of the denied set has room.
            let name = fresh.name(&policy, "ada");
            let before = server.command(&["DUMP", &name]).unwrap();
            assert!(!before.is_empty());
            server.command(&["CONFIG", "RESETSTAT"]).unwrap();
            let (ada, bob) = (Key::from("ada"), Key::from("bob"));
            for cost in [1, 2, 3, full, full + 1, u64::MAX] {
                assert!(!acquire(&fresh.store, &policy, "ada", cost).await.is_granted());
                let set = [Check::new(&policy, &bob, 1), Check::new(&policy, &ada, cost)];
                assert!(!fresh.store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
                assert!(!fresh.store.acquire(&set, Times::up_to(9)).wait().await.unwrap().is_granted());
            }
            look(&fresh.store, &policy, "ada").await;
            // The first refusal of a version of a token bucket adds its entry: see `versions.rs`.
            let is_bucket = policy.algorithm() == Algorithm::Gcra;
            for version in versions(&policy) {
                look(&fresh.store, &version, "ada").await;
                if is_bucket {
                    continue;
                }
                assert!(!acquire(&fresh.store, &version, "ada", version.largest_cost()).await.is_granted());
            }
            let asked = commands(&server);
            assert!(asked.iter().any(|name| name == "evalsha"), "{asked:?}");
            let writes: Vec<_> = asked.iter().filter(|name| !READS.contains(&name.as_str())).collect();
            assert_eq!(writes, [""; 0], "{name} on {kind}");
            assert_eq!(server.command(&["DUMP", &name]).unwrap(), before, "{name} on {kind}");
            let other = fresh.name(&policy, "bob");
            assert_eq!(server.command(&["EXISTS", &other]).unwrap(), "0", "{other} on {kind}");
        }
    }
}

/// 1,000 requests at once, some of which wait in the queue. A merged call that is granted in part
/// records that part only.
#[tokio::test]
async fn denied_requests_do_not_grow_a_log() {
    let server = shared(Kind::Valkey9_1);
    for (policy, layout) in every_policy(10, Duration::from_secs(600)) {
        if !matches!(policy.algorithm(), Algorithm::SlidingLog { .. }) {
            continue;
        }
        let fresh = Fresh::with(server, layout, |builder| builder).await;
        let key = Key::from("ada");
        let replies: Vec<_> =
            (0..1_000).map(|_| fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE)).collect();
        let mut granted = 0;
        for reply in replies {
            granted += reply.wait().await.unwrap().times();
        }
        assert_eq!(granted, 10);
        let name = fresh.name(&policy, "ada");
        // The last element counts the units charged, and each run has one.
        let (last, length, most) = match layout {
            SlidingLogLayout::SortedSet => ("ZRANGE", "ZCARD", 10),
            _ => ("LRANGE", "LLEN", 2 * 10),
        };
        assert_eq!(server.command(&[last, &name, "-1", "-1"]).unwrap(), "10");
        assert!(server.command(&[length, &name]).unwrap().parse::<u64>().unwrap() <= most);
    }
}
