//! The cost of a decision in memory, and the longest stalls, from 1,000 to 10,000,000 keys. `bare`
//! is the same loop without a decision: what the machine itself does to a thread.
//!
//! `cargo bench -p tollgate-benches --bench stalls [-- MOST_KEYS]`

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tollgate::store::{Check, Reply, Store, Times};
use tollgate::{Key, Lease, MemoryStore, Policy, Quota, StoreExt};

/// Every key is new once, and then returns. Few keys return more often, so that each line has
/// enough decisions for its percentiles.
const FEWEST_DECISIONS: u64 = 4_000_000;

const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.99, 99.999];

fn main() {
    let most_keys = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(10_000_000);
    println!("| keys | what | mean ns | p50 ns | p99 ns | p99.99 µs | p99.999 µs | longest µs |");
    println!("|--:|---|--:|--:|--:|--:|--:|--:|");
    let policy = Policy::new("api", Quota::per_hour(1_000_000).burst(1_000_000));
    let mut keys = 1_000;
    while keys <= most_keys {
        let places = usize::try_from(keys).unwrap_or(usize::MAX);
        line(keys, "bare", |key| drop(black_box(key)));
        let memory = MemoryStore::builder().max_keys(places).build();
        line(keys, "memory", |key| decide(&memory, &policy, &key));
        // A cap of half the keys evicts one for each that returns.
        let full = MemoryStore::builder().max_keys(places / 2).build();
        line(keys, "memory, full", |key| decide(&full, &policy, &key));
        let cached = MemoryStore::builder().max_keys(places).build().deny_cache(places);
        line(keys, "deny cache", |key| decide(&cached, &policy, &key));
        // Without a runtime it counts the demand of each key, and fetches nothing.
        let leased =
            MemoryStore::builder().max_keys(places).build().leased(Lease::default().max_keys(places));
        line(keys, "leases of cold keys", |key| decide(&leased, &policy, &key));
        keys *= 10;
    }
}

fn decide(store: &impl Store, policy: &Policy, key: &Key) {
    match store.acquire(&[Check::new(policy, key, 1)], Times::ONCE) {
        Reply::Now(answer) => assert!(answer.is_ok_and(|verdict| verdict.is_granted()), "it is not denied"),
        Reply::Later(_) => unreachable!("a store in memory answers at once"),
    }
}

fn line(keys: u64, what: &str, decide: impl Fn(Key)) {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("up to a minute");
    let mut sum = Duration::ZERO;
    let decisions = FEWEST_DECISIONS.max(2 * keys);
    for n in 0..decisions {
        // Scattered, so that neighbours in time are not neighbours in a table.
        let key = Key::from((n % keys).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let start = Instant::now();
        decide(key);
        let took = start.elapsed();
        sum += took;
        histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    let mean = sum.as_nanos() / u128::from(decisions);
    let [p50, p99, p9999, p99999] = PERCENTILES.map(|percentile| histogram.value_at_percentile(percentile));
    let micros = |nanos: u64| format!("{}.{}", nanos / 1_000, nanos % 1_000 / 100);
    println!(
        "| {keys} | {what} | {mean} | {p50} | {p99} | {} | {} | {} |",
        micros(p9999),
        micros(p99999),
        micros(histogram.max())
    );
}
