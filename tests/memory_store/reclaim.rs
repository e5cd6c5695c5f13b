//! Idle keys are evicted without a thread or a task. Keys with state stay.

use std::time::Duration;

use tollgate::{Key, MemoryStore, Policy, Quota, Wait};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, at_once, clock, store};

use crate::memory_store::{acquire, passes};

/// How long a key may stay after its reset.
const GRACE: Duration = Duration::from_secs(10);

const MICRO: Duration = Duration::from_micros(1);

#[test]
fn idle_keys_are_evicted_by_the_use_of_other_keys() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(10_000).build();
    let policy = Policy::new("p", Quota::per_second(10));
    for n in 0..5_000_u64 {
        passes(&store, &policy, &Key::from(n));
    }
    assert_eq!(store.keys(), 5_000);
    time.advance(Duration::from_millis(100) + GRACE);
    // No new callers: the same ones again and again, some in each shard.
    for n in (0..1_000_u64).cycle().take(60_000) {
        acquire(&store, &policy, &Key::from(n), 1);
    }
    assert_eq!(store.keys(), 1_000, "those in use");
}

#[test]
fn one_time_callers_do_not_accumulate() {
    let time = clock();
    let store = store(&time);
    let policy = Policy::new("p", Quota::per_second(1));
    let mut most = 0;
    for n in 0..50_000_u64 {
        passes(&store, &policy, &Key::from(n));
        time.advance(Duration::from_millis(10));
        most = most.max(store.keys());
    }
    // The window and the grace are 11 s, in which 1,100 callers come. The sweep needs at most the
    // time of twice as many.
    assert!((1_100..3_300).contains(&most), "{most} keys at a time");
}

#[test]
fn a_key_is_evicted_ten_seconds_after_its_reset() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        // A single shard, so that the use of one key sweeps all.
        let store = MemoryStore::builder().clock(&time).max_keys(600).build();
        let policy = a_minute("p", algorithm, 2);
        let other = Policy::new("other", Quota::per_second(1_000));
        let mut reset = Duration::ZERO;
        for n in 0..20_u64 {
            reset = acquire(&store, &policy, &Key::from(n), 2).each()[0].reset_after();
        }
        let sweep = || {
            for _ in 0..1_000 {
                acquire(&store, &other, &Key::global(), 1);
            }
        };
        sweep();
        assert_eq!(store.keys(), 21, "{algorithm:?}");
        time.advance(reset + GRACE - MICRO);
        sweep();
        assert_eq!(store.keys(), 21, "{algorithm:?}: a microsecond before");
        time.advance(MICRO);
        sweep();
        assert_eq!(store.keys(), 1, "{algorithm:?}: the one in use");
    }
}

/// Neither a sweep nor a full table forgets a state that can still deny its caller.
#[test]
fn no_state_is_forgotten_before_its_wait_is_over() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        let store = MemoryStore::builder().clock(&time).max_keys(600).build();
        let policy = a_minute("p", algorithm, 5);
        let other = Policy::new("other", Quota::per_second(1_000));
        let key = Key::from("k");
        assert!(acquire(&store, &policy, &key, 5).is_granted());
        let Wait::For(wait) = acquire(&store, &policy, &key, 5).wait() else {
            panic!("{algorithm:?} grants")
        };
        for step in 1..=100 {
            time.advance(wait / 100 - if step == 100 { MICRO } else { Duration::ZERO });
            for n in 0..100_u64 {
                acquire(&store, &other, &Key::from(n), 1);
            }
            assert!(!acquire(&store, &policy, &key, 5).is_granted(), "{algorithm:?}: forgotten at {step} %");
        }
    }
}

#[test]
fn a_reset_and_a_refund_leave_no_permanent_key() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(600).build();
    let policy = Policy::new("p", Quota::per_day(5));
    let other = Policy::new("other", Quota::per_second(1_000));
    let key = Key::from("k");
    let stamp = acquire(&store, &policy, &key, 5).each()[0].stamp();
    let grant = tollgate::store::Grant { policy: &policy, key: &key, units: 5, stamp, share: None };
    at_once(tollgate::store::Store::refund(&store, &[grant])).unwrap();
    time.advance(GRACE);
    for _ in 0..100 {
        acquire(&store, &other, &Key::global(), 1);
    }
    assert_eq!(store.keys(), 1, "its quota is full again, it means nothing more");
    assert!(passes(&store, &policy, &key));
    at_once(tollgate::store::Store::reset(&store, &key, &[&policy])).unwrap();
    assert_eq!(store.keys(), 1, "a reset forgets at once");
}
