//! What a reservation that is settled costs in Redis: a check and its correction, as a multiple of
//! the same check alone. By the server's own time and by its processor time, in rounds that
//! alternate. Estimates are equal, or differ in each of 128 neighbours.
//!
//! `cargo bench -p tollgate-benches --bench settle`

#![expect(clippy::float_arithmetic, reason = "it measures")]

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::store::{Check, Grant, Store, Times};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_benches::ServerCost;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

const ROUNDS: u32 = 12;
/// A server on a busy machine is not measured the worse for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a request does.
#[derive(Clone, Copy)]
enum Work {
    Check,
    /// Reserves, and settles to so much more or less than the estimate.
    Settles(i64),
}

/// A measured server.
struct Measured {
    server: Server,
    store: RedisStore,
}

impl Measured {
    /// A request for each key, `at_once` at a time.
    async fn ask(&self, policy: &Policy, keys: u64, at_once: u64, estimates: u64, work: Work) {
        for first in (0..keys).step_by(usize::try_from(at_once).expect("it is small")) {
            let requests: JoinSet<()> = (first..first + at_once)
                .map(|n| {
                    let (store, policy, key) = (self.store.clone(), policy.clone(), Key::from(n));
                    async move {
                        let estimate = 200 + n % estimates;
                        let reply = store.acquire(&[Check::new(&policy, &key, estimate)], Times::ONCE);
                        let verdict = reply.wait().await.expect("an answer");
                        assert!(verdict.is_granted());
                        let Work::Settles(difference) = work else { return };
                        let stamp = verdict.each()[0].stamp();
                        let grant = Grant { policy: &policy, key: &key, units: estimate, stamp, share: None };
                        let total = estimate.saturating_add_signed(difference);
                        let settled = store.settle(&[grant], total).await.expect("an answer");
                        assert_eq!(settled.charged, total);
                    }
                })
                .collect();
            requests.join_all().await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::start(Kind::Redis8_2).expect("a server");
    let store = RedisStore::builder(&server.url())
        .connections(1)
        .response_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let measured = Measured { server, store };
    println!("| us per request | check | less used | more used |\n|---|--:|--:|--:|");
    for (name, algorithm) in [
        ("Gcra", Algorithm::Gcra),
        ("FixedWindow", Algorithm::FIXED_WINDOW),
        ("SlidingBuckets", Algorithm::SLIDING_BUCKETS),
        ("SlidingLog", Algorithm::SlidingLog { max_limit: 10_000_000 }),
    ] {
        let policy = Policy::new(name, Quota::per_day(8_640_000)).with_algorithm(algorithm);
        for (how, keys, at_once, estimates) in [
            ("alone", 1_000, 1, 1),
            ("equal estimates", 12_800, 1_280, 1),
            ("128 estimates", 12_800, 1_280, 128),
        ] {
            let works = [Work::Check, Work::Settles(-100), Work::Settles(100)];
            let mut costs = [ServerCost::default(); 3];
            for round in 0..=ROUNDS {
                for (work, cost) in works.into_iter().zip(&mut costs) {
                    let before = ServerCost::of(&measured.server);
                    measured.ask(&policy, keys, at_once, estimates, work).await;
                    let after = ServerCost::of(&measured.server);
                    // The first round makes the keys.
                    if round > 0 {
                        let each = f64::from(ROUNDS) * keys as f64;
                        cost.script += (after.script - before.script) / each;
                        cost.processor += (after.processor - before.processor) / each;
                    }
                }
            }
            let [check, less, more] = costs;
            let ratio = |cost: ServerCost| {
                let (script, processor) = (cost.script / check.script, cost.processor / check.processor);
                format!("{:.2}: {script:.2} ×, of processor time {processor:.2} ×", cost.script)
            };
            println!("| {name}, {how} | {:.2} | {} | {} |", check.script, ratio(less), ratio(more));
        }
    }
}
