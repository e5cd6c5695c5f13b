//! Bytes per key in the store in memory, counted at the allocator.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use tollgate::store::{Check, Reply, Store, Times};
use tollgate::{Algorithm, Key, Limiter, MemoryStore, Permit, Policy, Quota};
use tollgate_tests::{a_minute, clock};

/// Invents keys until the store is full. Returns the bytes per key, rounded up.
fn bytes_a_key(max_keys: usize, policy: &Policy) -> usize {
    let time = clock();
    let mut store = None;
    let heap = measure(|| {
        let new = MemoryStore::builder().clock(&time).max_keys(max_keys).build();
        let mut n = 0_u64;
        while new.keys() < max_keys {
            // Shards fill at different times. A full shard replaces a key for each new one.
            for _ in 0..max_keys.div_ceil(100) {
                let key = Key::from(n);
                let reply = new.acquire(&[Check::new(policy, &key, 1)], Times::ONCE);
                assert!(matches!(reply, Reply::Now(Ok(verdict)) if verdict.is_granted()));
                n += 1;
            }
        }
        store = Some(new);
    });
    let bytes = usize::try_from(heap.bytes_current).expect("more than nothing").div_ceil(max_keys);
    println!("{max_keys} keys, {}: {bytes} bytes a key", policy.algorithm().name());
    bytes
}

#[test]
fn a_gcra_key_takes_at_most_64_bytes_at_a_cap_of_a_million() {
    let bytes = bytes_a_key(1_000_000, &Policy::new("api", Quota::per_minute(100)));
    assert!(bytes <= 64, "{bytes} bytes a key");
}

/// Caps just above a power of two are the most expensive for hash tables. With a cap of a few
/// hundred keys the store and its shards would dominate.
#[test]
fn other_caps_and_small_states_take_at_most_64_bytes_a_key() {
    let algorithms = [
        Algorithm::Gcra,
        Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) },
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindow,
    ];
    for max_keys in [10_000, 16_384, 16_400, 50_000, 66_000] {
        for algorithm in algorithms {
            let bytes = bytes_a_key(max_keys, &a_minute("p", algorithm, 100));
            assert!(bytes <= 64, "{bytes} bytes a key under {algorithm:?} at a cap of {max_keys}");
        }
    }
}

#[test]
fn idle_keys_give_their_memory_back() {
    let time = clock();
    let policy = Policy::new("api", Quota::per_second(100));
    let heap = measure(|| {
        let store = MemoryStore::builder().clock(&time).max_keys(600).build();
        let ask = |key: u64| {
            let key = Key::from(key);
            assert!(matches!(store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE), Reply::Now(Ok(_))));
        };
        let busy = measure(|| (0..600).for_each(ask));
        time.advance(Duration::from_secs(11));
        let idle = measure(|| (0..5_000).for_each(|_| ask(0)));
        assert_eq!(store.keys(), 1);
        let left = busy.bytes_current + idle.bytes_current;
        assert!(left * 8 <= busy.bytes_current, "{left} of {} bytes stay", busy.bytes_current);
    });
    assert_eq!(heap.bytes_current, 0, "a store that is dropped leaves nothing");
}

/// A million requests, of which some are dropped early and some late.
#[test]
fn slots_that_come_back_leave_no_memory() {
    let jobs = Limiter::new([Policy::in_flight("jobs", 5)]);
    let keys: Vec<Key> = (0..100_u32).map(Key::from).collect();
    let ask = |n: usize| {
        let mut asking = pin!(jobs.check(&keys[n % keys.len()], 1));
        match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit.ok(),
            Poll::Pending => panic!("a store in memory answers at once"),
        }
    };
    let mut held = Vec::with_capacity(300);
    let mut work = |requests: usize| {
        measure(|| {
            for n in 0..requests {
                held.extend(ask(n.wrapping_mul(2_654_435_761)));
                if held.len() == 300 || n % 3 == 0 {
                    drop(held.swap_remove(n % held.len()));
                }
            }
            held.clear();
        })
    };
    let (first, rest) = (work(10_000), work(1_000_000));
    assert!(rest.bytes_current <= 0, "{} bytes more after {}", rest.bytes_current, first.bytes_current);
    let all: Vec<Permit> = (0..5).map(|_| ask(0).expect("no slot has leaked")).collect();
    assert!(ask(0).is_none(), "{} are held", all.len());
}
