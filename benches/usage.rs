//! What tracking the usage of a policy costs: a check of `Policy::track_usage`, as a multiple of
//! the same check without it. In Redis by the server's own time and by its processor time, in
//! rounds that alternate. Then a question over a million tracked keys.
//!
//! `cargo bench -p tollgate-benches --bench usage`

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tollgate::store::{Check, Store, Times};
use tollgate::usage::Totals;
use tollgate::{Algorithm, Key, MemoryStore, Policy, Quota};
use tollgate_benches::ServerCost;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

const ROUNDS: u32 = 20;

/// A measured server.
struct Measured {
    server: Server,
    store: RedisStore,
}

impl Measured {
    async fn new(kind: Kind) -> Measured {
        let server = Server::start(kind).expect("a server");
        let store = RedisStore::builder(&server.url()).connections(1).connect().await.expect("a store");
        Measured { server, store }
    }

    fn cost(&self) -> ServerCost {
        ServerCost::of(&self.server)
    }

    /// Asks for each key once, `at_once` at a time.
    async fn ask(&self, policy: &Policy, keys: &[Key], at_once: usize) {
        for keys in keys.chunks(at_once) {
            let ask = |key| self.store.acquire(&[Check::new(policy, key, 1)], Times::ONCE);
            let replies: Vec<_> = keys.iter().map(ask).collect();
            for reply in replies {
                assert!(reply.wait().await.expect("an answer").is_granted());
            }
        }
    }

    /// The costs of a check, without tracking and with it.
    async fn compare(&self, policy: &Policy, checks: usize, at_once: usize) -> [ServerCost; 2] {
        let keys: Vec<Key> = (0..checks).map(|n| Key::from(n as u64)).collect();
        let tracked = Policy::new("tracked", policy.quota()).with_algorithm(policy.algorithm()).track_usage();
        let mut costs = [ServerCost::default(); 2];
        for round in 0..=ROUNDS {
            for (policy, cost) in [policy, &tracked].into_iter().zip(&mut costs) {
                let before = self.cost();
                self.ask(policy, &keys, at_once).await;
                let after = self.cost();
                // The first round makes the keys.
                if round > 0 {
                    let each = f64::from(ROUNDS) * checks as f64;
                    cost.script += (after.script - before.script) / each;
                    cost.processor += (after.processor - before.processor) / each;
                }
            }
        }
        costs
    }
}

async fn in_redis() {
    println!(
        "| us per check | server | untracked | tracked | ratio | of processor time |\n|---|---|--:|--:|--:|--:|"
    );
    for kind in [Kind::Redis6_2, Kind::Installed, Kind::Redis8_2, Kind::Valkey9_1] {
        let measured = Measured::new(kind).await;
        for (name, algorithm) in [
            ("Gcra", Algorithm::Gcra),
            ("FixedWindow", Algorithm::FIXED_WINDOW),
            ("SlidingLog", Algorithm::SLIDING_LOG),
        ] {
            let policy = Policy::new("plain", Quota::per_day(86_400)).with_algorithm(algorithm);
            for (how, checks, at_once) in [("alone", 1_000, 1), ("in calls of 127", 12_800, 1_280)] {
                let [plain, tracked] = measured.compare(&policy, checks, at_once).await;
                println!(
                    "| {name}, {how} | {kind} | {:.2} | {:.2} | {:.2} × | {:.2} × |",
                    plain.script,
                    tracked.script,
                    tracked.script / plain.script,
                    tracked.processor / plain.processor
                );
            }
        }
    }
}

async fn in_memory() {
    let store = MemoryStore::new();
    let keys: Vec<Key> = (0..10_000_u64).map(Key::from).collect();
    let plain = Policy::new("plain", Quota::per_second(1_000_000));
    let tracked = Policy::new("tracked", plain.quota()).track_usage();
    let mut times = [Duration::ZERO; 2];
    for round in 0..=ROUNDS {
        for (policy, time) in [&plain, &tracked].into_iter().zip(&mut times) {
            let start = Instant::now();
            for key in &keys {
                black_box(store.acquire(&[Check::new(policy, key, 1)], Times::ONCE).wait().await.is_ok());
            }
            if round > 0 {
                *time += start.elapsed();
            }
        }
    }
    let each = times.map(|time| time.as_secs_f64() * 1e9 / f64::from(ROUNDS) / keys.len() as f64);
    println!("\nin memory, ns per check: untracked {:.0}, tracked {:.0}", each[0], each[1]);
}

async fn questions() {
    let policy = Policy::new("api", Quota::per_day(10)).track_usage();
    let measured = Measured::new(Kind::Redis8_2).await;
    for n in 0..1_000_u64 {
        let keys: Vec<Key> = (0..1_000).map(|m| Key::from(1_000 * n + m)).collect();
        measured.ask(&policy, &keys, 1_000).await;
    }
    let totals = Totals::new(measured.store.clone());
    let (start, before) = (Instant::now(), measured.cost());
    let rows = totals.oldest("api", 20, None).await.expect("an answer");
    assert_eq!(rows.len(), 20);
    let processor = (measured.cost().processor - before.processor) / 1e6;
    let names = measured.server.command(&["DBSIZE"]).expect("a number");
    let memory = measured.server.command(&["MEMORY", "USAGE", "tollgate:2:{#7}:api~usage"]);
    println!(
        "a page of 20, of 1,000,000 tracked keys under {names} names: {:.1} s, of which the server {processor:.1} s; {} bytes a key",
        start.elapsed().as_secs_f64(),
        memory.unwrap_or_default()
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    in_redis().await;
    in_memory().await;
    questions().await;
}
