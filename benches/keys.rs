//! Bytes per key for each algorithm: `cargo bench -p tollgate-benches --bench keys`.
//!
//! Fills a store to its cap, with one request for each key, and measures the heap.

use std::time::Duration;

use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, MemoryStore, Policy, Quota};

const KEYS: u32 = 500_000;

fn main() {
    let algorithms = [
        Algorithm::Gcra,
        Algorithm::LeakyBucket { max_wait: Duration::from_secs(60) },
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindow,
        Algorithm::SLIDING_BUCKETS,
        Algorithm::SLIDING_LOG,
    ];
    println!("| algorithm | bytes per key, at a cap of {KEYS} |\n|---|--:|");
    for algorithm in algorithms {
        let policy = Policy::new("p", Quota::per_day(100)).with_algorithm(algorithm);
        let mut held = None;
        let heap = allocation_counter::measure(|| {
            let store = MemoryStore::builder().max_keys(KEYS as usize).build();
            for n in 0..2 * KEYS {
                let key = Key::from(n);
                let _ = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE);
            }
            held = Some(store);
        });
        let keys = held.as_ref().map_or(0, MemoryStore::keys);
        assert_eq!(keys, KEYS as usize, "the store is full");
        println!("| {} | {} |", algorithm.name(), heap.bytes_current / i64::from(KEYS));
    }
}
