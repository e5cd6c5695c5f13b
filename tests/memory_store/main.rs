//! The store in memory: the contract of every store, and its own promises.

mod cap;
mod contract;
mod reclaim;
mod sets;
mod threads;

use tollgate::{Check, Key, MemoryStore, Policy, Reply, Store, Times, Verdict};

/// Asks once, for a set of policies with a key and a cost each.
fn acquire_set(store: &MemoryStore, set: &[(&Policy, &Key, u32)]) -> Verdict {
    let set: Vec<_> = set.iter().map(|(policy, key, cost)| Check::new(policy, key, *cost)).collect();
    match store.acquire(&set, Times::ONCE) {
        Reply::Now(Ok(verdict)) => verdict,
        Reply::Later(_) => panic!("a store in memory answers on the spot"),
    }
}

fn acquire(store: &MemoryStore, policy: &Policy, key: &Key, cost: u32) -> Verdict {
    acquire_set(store, &[(policy, key, cost)])
}

/// Whether one unit is granted.
fn passes(store: &MemoryStore, policy: &Policy, key: &Key) -> bool {
    acquire(store, policy, key, 1).is_granted()
}
