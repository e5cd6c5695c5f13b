//! Many threads at once get exactly the limit, without a deadlock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::{Algorithm, Key, MemoryStore, Policy, Quota};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, clock, store, within};

use crate::memory_store::{acquire, acquire_set, passes};

const THREADS: usize = 8;

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `ask(thread, n)` from all threads, `each` times from each, and counts how often it is true.
fn count(each: usize, ask: impl Fn(usize, usize) -> bool + Sync) -> u64 {
    let granted = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (ask, granted) = (&ask, &granted);
            scope.spawn(move || {
                for n in 0..each {
                    granted.fetch_add(u64::from(ask(number, n)), Ordering::Relaxed);
                }
            });
        }
    });
    granted.into_inner()
}

#[test]
fn threads_at_one_key_get_exactly_the_limit() {
    within(PATIENCE, || {
        for algorithm in EVERY_ALGORITHM {
            let (store, key) = (store(&clock()), Key::from("k"));
            let policy = a_minute("p", algorithm, 1_000);
            let granted = count(250, |_, _| passes(&store, &policy, &key));
            assert_eq!(granted, 1_000, "{algorithm:?}");
        }
    });
}

#[test]
fn threads_with_different_costs_never_get_more_than_the_limit() {
    within(PATIENCE, || {
        for algorithm in EVERY_ALGORITHM {
            let (store, key) = (store(&clock()), Key::from("k"));
            let policy = a_minute("p", algorithm, 1_000);
            let units = AtomicU64::new(0);
            count(250, |number, n| {
                let cost = u64::try_from(1 + (number + n) % 7).unwrap();
                let granted = acquire(&store, &policy, &key, cost).is_granted();
                units.fetch_add(if granted { cost } else { 0 }, Ordering::Relaxed);
                granted
            });
            // The demand is four times the limit, and some threads ask for single units.
            assert_eq!(units.into_inner(), 1_000, "{algorithm:?}");
        }
    });
}

#[test]
fn threads_at_many_keys_get_exactly_the_limit_of_each() {
    within(PATIENCE, || {
        for algorithm in EVERY_ALGORITHM {
            let store = MemoryStore::builder().clock(&clock()).max_keys(20_000).build();
            let policy = a_minute("p", algorithm, 10);
            let granted: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
            count(64 * 3, |number, n| {
                // Each thread takes the keys in another order.
                let at = (n * (2 * number + 1)) % 64;
                let passes = passes(&store, &policy, &Key::from(at as u64));
                granted[at].fetch_add(u64::from(passes), Ordering::Relaxed);
                passes
            });
            for (at, granted) in granted.into_iter().enumerate() {
                assert_eq!(granted.into_inner(), 10, "{algorithm:?}, key {at}");
            }
        }
    });
}

/// Threads name the same pairs in opposite orders. If shards were locked in that order, they would
/// deadlock.
#[test]
fn sets_in_crossing_orders_neither_deadlock_nor_exceed_any_limit() {
    within(PATIENCE, || {
        let store = MemoryStore::builder().clock(&clock()).max_keys(20_000).build();
        let policies = ["a", "b", "c", "d"].map(|name| Policy::new(name, Quota::per_minute(1_000)));
        let keys: Vec<Key> = (0..4_u64).map(Key::from).collect();
        let granted = count(1_000, |number, n| {
            let mut set: Vec<_> = policies.iter().zip(&keys).map(|(policy, key)| (policy, key, 1)).collect();
            // Rotated and reversed: eight orders in all.
            set.rotate_left((number + n) % 4);
            if number % 2 == 0 {
                set.reverse();
            }
            acquire_set(&store, &set).is_granted()
        });
        assert_eq!(granted, 1_000);
    });
}

#[test]
fn random_sets_of_keys_in_different_shards_are_all_or_nothing() {
    within(PATIENCE, || {
        let store = MemoryStore::builder().clock(&clock()).max_keys(20_000).build();
        let policies = [Algorithm::Gcra, Algorithm::FIXED_WINDOW, Algorithm::SLIDING_LOG]
            .map(|algorithm| a_minute("p", algorithm, 500));
        let used: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
        count(800, |number, n| {
            // Three different keys, which vary by thread and by turn.
            let first = n * 7 + number * 3;
            let at = [first % 16, (first + 1 + n % 5) % 16, (first + 7 + n % 3) % 16];
            let keys = at.map(|at| Key::from(at as u64));
            let policy = |at: usize| &policies[at % 3];
            let set = [0, 1, 2].map(|i| (policy(at[i]), &keys[i], 1));
            let granted = acquire_set(&store, &set).is_granted();
            if granted {
                for at in at {
                    used[at].fetch_add(1, Ordering::Relaxed);
                }
            }
            granted
        });
        for (at, used) in used.into_iter().enumerate() {
            let used = used.into_inner();
            let left = acquire(&store, &policies[at % 3], &Key::from(at as u64), 0).each()[0].remaining();
            assert_eq!(used + left, 500, "key {at}: what was granted is what was charged");
        }
    });
}

#[test]
fn threads_never_get_more_than_the_limit_while_time_moves() {
    within(PATIENCE, || {
        for algorithm in EVERY_ALGORITHM {
            let time = clock();
            let (store, key) = (store(&time), Key::from("k"));
            // 600 a minute: 10 a second.
            let policy = a_minute("p", algorithm, 600);
            let done = AtomicBool::new(false);
            let granted = thread::scope(|scope| {
                let granted = scope.spawn(|| {
                    let granted = count(1_000, |_, _| passes(&store, &policy, &key));
                    done.store(true, Ordering::Release);
                    granted
                });
                let mut elapsed = 0;
                while !done.load(Ordering::Acquire) && elapsed < 100_000 {
                    time.advance(Duration::from_millis(1));
                    elapsed += 1;
                    thread::yield_now();
                }
                (granted.join().unwrap(), elapsed)
            });
            let (granted, elapsed_ms) = granted;
            let most = match algorithm {
                Algorithm::Gcra | Algorithm::LeakyBucket { .. } => 600 + elapsed_ms / 100,
                // An aligned window may end at once, so this adds one for each minute begun.
                _ => 600 * (elapsed_ms / 60_000 + 2),
            };
            assert!(granted <= most, "{algorithm:?}: {granted} in {elapsed_ms} ms");
            assert!(granted >= 600, "{algorithm:?}: {granted} of 8,000 requests");
        }
    });
}
