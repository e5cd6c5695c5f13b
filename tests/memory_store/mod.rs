//! The store in memory: the contract of every store, and its own promises.

mod cap;
mod contract;
mod never_shared;
mod reclaim;
mod sets;
mod slots;
mod threads;

use tollgate::store::{Check, Store, Times, Verdict};
use tollgate::{Key, MemoryStore, Policy};
use tollgate_tests::at_hand;

/// Asks once, for a set of policies with a key and a cost each.
fn acquire_set(store: &MemoryStore, set: &[(&Policy, &Key, u64)]) -> Verdict {
    let set: Vec<_> = set.iter().map(|(policy, key, cost)| Check::new(policy, key, *cost)).collect();
    let Ok(verdict) = at_hand(store.acquire(&set, Times::ONCE));
    verdict
}

fn acquire(store: &MemoryStore, policy: &Policy, key: &Key, cost: u64) -> Verdict {
    acquire_set(store, &[(policy, key, cost)])
}

/// Whether one unit is granted.
fn passes(store: &MemoryStore, policy: &Policy, key: &Key) -> bool {
    acquire(store, policy, key, 1).is_granted()
}
