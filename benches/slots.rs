//! What slots of requests in flight cost in Redis: a claim and its release, and a renewal, as
//! multiples of a check of GCRA. By the server's own time and by its processor time, in rounds that
//! alternate.
//!
//! `cargo bench -p tollgate-benches --bench slots`

#![expect(clippy::float_arithmetic, reason = "it measures")]

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::store::{Check, Grant, Renewal, Store, Times, renewals};
use tollgate::{Key, Policy, Quota};
use tollgate_benches::ServerCost;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

const ROUNDS: u32 = 12;
/// A server on a busy machine is not measured the worse for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a request does.
#[derive(Clone, Copy)]
enum Work {
    /// A check of GCRA.
    Check,
    /// Claims a slot and releases it.
    Slot,
    /// Claims a slot, renews it once, and releases it.
    Renewed,
}

/// A request for each key, `at_once` at a time.
async fn ask(store: &RedisStore, policies: &[Policy; 2], keys: u64, at_once: u64, work: Work) {
    for first in (0..keys).step_by(usize::try_from(at_once).expect("it is small")) {
        let requests: JoinSet<()> = (first..first + at_once)
            .map(|n| {
                let policy = policies[usize::from(!matches!(work, Work::Check))].clone();
                let (store, key) = (store.clone(), Key::from(n));
                async move {
                    let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await;
                    let verdict = verdict.expect("an answer");
                    assert!(verdict.is_granted());
                    let stamp = verdict.each()[0].stamp();
                    let grant = [Grant { policy: &policy, key: &key, units: 1, stamp, share: None }];
                    if matches!(work, Work::Renewed) {
                        assert_eq!(renewals(&store, &grant).await.expect("an answer"), [Renewal::Held]);
                    }
                    if !matches!(work, Work::Check) {
                        store.refund(&grant).await.expect("an answer");
                    }
                }
            })
            .collect();
        requests.join_all().await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::start(Kind::Redis8_2).expect("a server");
    let builder = RedisStore::builder(&server.url()).connections(1).response_timeout(PATIENCE);
    let store = builder.connect().await.expect("a store");
    let policies = [Policy::new("rate", Quota::per_day(8_640_000)), Policy::in_flight("slots", 100)];
    println!("| us per request | check | slot | slot, renewed once |\n|---|--:|--:|--:|");
    for (name, keys, at_once) in [("alone", 1_000, 1), ("in calls of 128", 12_800, 1_280)] {
        let works = [Work::Check, Work::Slot, Work::Renewed];
        let mut costs = [ServerCost::default(); 3];
        for round in 0..=ROUNDS {
            for (work, cost) in works.into_iter().zip(&mut costs) {
                let before = ServerCost::of(&server);
                ask(&store, &policies, keys, at_once, work).await;
                let after = ServerCost::of(&server);
                // The first round makes the keys.
                if round > 0 {
                    let each = f64::from(ROUNDS) * keys as f64;
                    cost.script += (after.script - before.script) / each;
                    cost.processor += (after.processor - before.processor) / each;
                }
            }
        }
        let [check, slot, renewed] = costs;
        let ratio = |cost: ServerCost| {
            let (script, processor) = (cost.script / check.script, cost.processor / check.processor);
            format!("{:.2}: {script:.2} ×, of processor time {processor:.2} ×", cost.script)
        };
        println!("| {name} | {:.2} | {} | {} |", check.script, ratio(slot), ratio(renewed));
    }
}
