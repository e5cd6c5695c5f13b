//! Windows of a calendar: when they begin, and what a fleet makes of them.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod edits;
mod fleet;
mod process_control;
mod steps;
mod wrappers;
mod zones;

use tollgate::store::{Check, Store, Times, Verdict};
use tollgate::{Key, Policy};

async fn acquire<S: Store>(store: &S, policy: &Policy, key: &str, cost: u64) -> Verdict {
    let verdict = store.acquire(&[Check::new(policy, &Key::from(key), cost)], Times::ONCE).wait().await;
    verdict.unwrap_or_else(|error| panic!("a verdict: {error}"))
}
