//! A store in memory with room for all keys.

use std::time::{Duration, Instant};

use tollgate::store::{Check, Reply, Store, Times};
use tollgate::{Key, MemoryStore, Policy, Quota};
use tollgate_benches::callers;

const FIRST_DECISIONS: u32 = 1_000_000;
const LATER_DECISIONS: u32 = 4_000_000;

/// Nanoseconds of a later decision of a key and of its first one, and bytes per key.
pub(crate) fn run(keys: u32) -> [f64; 3] {
    // A unit comes back in half an hour, so that no key is idle and makes room.
    let policy = Policy::new("api", Quota::new(10_000, Duration::from_secs(10_000 * 1_800)));
    // Of several stores if there are few keys, so that the time can be measured.
    let stores = (FIRST_DECISIONS / keys).max(1);
    let (mut store, mut first) = (None, 0.0);
    let heap = allocation_counter::measure(|| {
        for _ in 0..stores {
            // Shards fill unevenly, and none must evict.
            let new = MemoryStore::builder().max_keys(keys as usize / 2 * 3).build();
            first += nanos_per_decision(&new, &policy, keys, 0..keys) / f64::from(stores);
            store = Some(new);
        }
    });
    let store = store.expect("it was made");
    assert_eq!(store.keys(), keys as usize, "no key is reclaimed or evicted");
    let in_any_order = callers(keys).take(LATER_DECISIONS as usize);
    let later = nanos_per_decision(&store, &policy, LATER_DECISIONS, in_any_order);
    [later, first, heap.bytes_current as f64 / f64::from(keys)]
}

fn nanos_per_decision(
    store: &MemoryStore,
    policy: &Policy,
    decisions: u32,
    callers: impl Iterator<Item = u32>,
) -> f64 {
    let start = Instant::now();
    for caller in callers {
        // Scattered, so that neighbours in number are not neighbours in a table.
        let key = Key::from(u64::from(caller).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        match store.acquire(&[Check::new(policy, &key, 1)], Times::ONCE) {
            Reply::Now(answer) => {
                assert!(answer.is_ok_and(|verdict| verdict.is_granted()), "it is not denied");
            }
            Reply::Later(_) => unreachable!("a store in memory answers at once"),
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(decisions)
}
