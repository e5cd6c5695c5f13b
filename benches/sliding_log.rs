//! Compares sliding logs in Redis, in both layouts, and rings with the default algorithm. The
//! figure is the server's own time for a check, in microseconds, with one check per call. A network
//! adds the same to all of them. A denial is of a unit, and of half the limit.
//!
//! `cargo bench -p tollgate-benches --bench sliding_log`

use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, ManualClock, Policy, Quota, Timestamp};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};

const CHECKS: u64 = 5_000;

/// A caller with a used-up limit, and its server.
struct Full {
    server: Server,
    time: ManualClock,
    store: RedisStore,
    policy: Policy,
    key: Key,
}

impl Full {
    async fn new(kind: Kind, algorithm: Algorithm, layout: SlidingLogLayout, limit: u64) -> Full {
        let (server, time) =
            (Server::start(kind).expect("a server"), ManualClock::new(Timestamp::from_micros(1 << 50)));
        let store = RedisStore::builder(&server.url()).clock(&time).sliding_log(layout);
        let store = store.connect().await.expect("a store");
        let policy = Policy::new("log", Quota::per_hour(limit)).with_algorithm(algorithm);
        let full = Full { server, time, store, policy, key: Key::from("ada") };
        // Takes each unit at a different time.
        full.micros(limit, 1, true).await;
        full
    }

    /// Takes all units that are left. A bucket has refilled more than a log.
    async fn use_up(&self) {
        let check = [Check::new(&self.policy, &self.key, 1)];
        while self.store.acquire(&check, Times::ONCE).wait().await.expect("an answer").is_granted() {}
    }

    /// The time per check, all allowed or all denied. A unit is refilled before each allowed one.
    async fn micros(&self, checks: u64, cost: u64, passes: bool) -> String {
        self.server.command(&["CONFIG", "RESETSTAT"]).expect("OK");
        for _ in 0..checks {
            if passes {
                self.time.advance(self.policy.quota().window().div_f64(self.policy.quota().limit() as f64));
            }
            let verdict =
                self.store.acquire(&[Check::new(&self.policy, &self.key, cost)], Times::ONCE).wait().await;
            assert_eq!(verdict.expect("an answer").is_granted(), passes);
        }
        let stats = self.server.command(&["INFO", "commandstats"]).expect("a text");
        let (_, stats) = stats.split_once("cmdstat_evalsha:").expect("checks");
        let (_, stats) = stats.split_once("usec_per_call=").expect("a time");
        stats.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("| us per check | server | allowed | denied 1 | denied half |\n|---|---|--:|--:|--:|");
    let ring = |buckets| Algorithm::SlidingBuckets { buckets };
    for kind in [Kind::Redis6_2, Kind::Redis8_2, Kind::Valkey9_1] {
        for (name, algorithm, layout, limit) in [
            ("Gcra", Algorithm::Gcra, SlidingLogLayout::List, 100),
            ("a ring of 10", ring(10), SlidingLogLayout::List, 10_000),
            ("a ring of 1,000", ring(1_000), SlidingLogLayout::List, 10_000),
            ("a list of 100", Algorithm::SLIDING_LOG, SlidingLogLayout::List, 100),
            ("a sorted set of 100", Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet, 100),
            ("a list of 10,000", Algorithm::SLIDING_LOG, SlidingLogLayout::List, 10_000),
            ("a sorted set of 10,000", Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet, 10_000),
            ("a list of 100,000", Algorithm::SLIDING_LOG, SlidingLogLayout::List, 100_000),
            ("a sorted set of 100,000", Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet, 100_000),
        ] {
            let full = Full::new(kind, algorithm, layout, limit).await;
            let passes = full.micros(CHECKS, 1, true).await;
            full.use_up().await;
            let denied = full.micros(CHECKS, 1, false).await;
            let denied_half = full.micros(CHECKS, limit / 2, false).await;
            println!("| {name} | {kind} | {passes} | {denied} | {denied_half} |");
        }
    }
}
