//! Usage that processes count: how exact it is, what is counted, and what a log keeps.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod accuracy;
pub(crate) mod evictions;
mod exact;
mod flushes;
mod foreign_pages;
mod long_keys;
mod outcomes;
mod over_redis;

use std::time::Duration;

use tollgate::store::{Check, Store, Times};
use tollgate::usage::top_keys::{KeyUsage, MemoryLog, Recorder, Recording, TopKeys};
use tollgate::{Key, ManualClock, Policy, Quota};
use tollgate_tests::clock;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Grants more than any test asks for.
fn ample(name: &str) -> Policy {
    Policy::new(name, Quota::per_second(1_000_000_000).burst(u64::from(u32::MAX / 2)))
}

/// A log in memory, what records for it, and the clock of both.
fn in_memory(recording: Recording) -> (TopKeys<MemoryLog>, Recorder<MemoryLog>, ManualClock) {
    let time = clock();
    let usage = TopKeys::new(MemoryLog::new()).clock(&time);
    let recorder = usage.record(recording.clock(&time));
    (usage, recorder, time)
}

/// Asks once for a unit, and returns whether it was granted.
async fn ask(store: &impl Store<Error: std::fmt::Debug>, policy: &Policy, key: &str) -> bool {
    let key = Key::from(key);
    store.acquire(&[Check::new(policy, &key, 1)], Times::ONCE).wait().await.unwrap().is_granted()
}

/// The keys and their counts.
fn counts(top: &[KeyUsage]) -> Vec<(&str, u64)> {
    top.iter().map(|of| (&*of.key, of.count)).collect()
}
