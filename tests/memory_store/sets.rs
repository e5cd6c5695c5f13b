//! Several policies, pairs that occur twice, and usage that can be read back.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::usage::{RecentUsage, UsageError};
use tollgate::{Algorithm, Key, MemoryStore, Policy, Quota, Wait};
use tollgate_tests::{clock, store};

use crate::memory_store::{acquire, acquire_set};

#[test]
fn a_pair_named_twice_next_to_another_policy_is_charged_the_sum() {
    let store = store(&clock());
    let (a, b) = (Policy::new("a", Quota::per_minute(5)), Policy::new("b", Quota::per_minute(5)));
    let key = Key::from("k");
    let set = [(&a, &key, 1), (&b, &key, 1), (&a, &key, 2)];
    let remaining: Vec<u64> =
        acquire_set(&store, &set).each().iter().map(|status| status.remaining()).collect();
    assert_eq!(remaining, [2, 4, 2]);
    let denied = acquire_set(&store, &set);
    assert!(!denied.is_granted());
    let waits: Vec<Wait> = denied.each().iter().map(|status| status.wait()).collect();
    let wait = Wait::For(Duration::from_secs(12));
    assert_eq!(waits, [wait, Wait::None, wait], "one unit is missing for the sum of 3");
    assert_eq!(store.keys(), 2);
}

/// Also at the cap: the two halves of a pair must not be counted in two places.
#[test]
fn a_new_pair_named_twice_at_the_cap_is_charged_the_sum() {
    for filled in [false, true] {
        let store = MemoryStore::builder().clock(&clock()).max_keys(1).build();
        let policy = Policy::new("p", Quota::per_minute(3));
        if filled {
            assert!(acquire(&store, &policy, &Key::from("other"), 1).is_granted());
        }
        let key = Key::from("k");
        let set = [(&policy, &key, 2), (&policy, &key, 2)];
        assert_eq!(acquire_set(&store, &set).wait(), Wait::Never, "4 of 3 units, filled: {filled}");
        let set = [(&policy, &key, 1), (&policy, &key, 2)];
        assert!(acquire_set(&store, &set).is_granted());
        assert!(!acquire(&store, &policy, &key, 1).is_granted(), "3 of 3 units are used, filled: {filled}");
    }
}

#[test]
fn a_refused_set_leaves_no_key_behind() {
    let store = store(&clock());
    let (wide, narrow) =
        (Policy::new("wide", Quota::per_minute(5)), Policy::new("narrow", Quota::per_minute(1)));
    let spent = Key::from("spent");
    assert!(acquire(&store, &narrow, &spent, 1).is_granted());
    for n in 0..100_u64 {
        let key = Key::from(n);
        assert!(!acquire_set(&store, &[(&wide, &key, 1), (&narrow, &spent, 1)]).is_granted());
        assert!(!acquire(&store, &wide, &key, 6).is_granted());
        assert!(acquire(&store, &wide, &key, 0).is_granted(), "a cost of 0 passes");
    }
    assert_eq!(store.keys(), 1);
}

fn used(store: &MemoryStore, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
    // It answers at once.
    let usage = pin!(store.recent_usage(policy, key, interval));
    match usage.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(usage) => usage,
        Poll::Pending => unreachable!("a store in memory answers on the spot"),
    }
}

#[test]
fn the_usage_of_shorter_intervals_can_be_read_back() {
    let time = clock();
    let store = store(&time);
    let policy = Policy::new("p", Quota::per_minute(100)).with_algorithm(Algorithm::SLIDING_BUCKETS);
    let (key, second) = (Key::from("k"), Duration::from_secs(1));
    assert_eq!(used(&store, &policy, &key, 60 * second), Ok(0), "a key that has used nothing");
    for units in [5, 7, 11] {
        assert!(acquire(&store, &policy, &key, units).is_granted());
        // A sub-window is 6 s.
        time.advance(6 * second);
    }
    assert_eq!(used(&store, &policy, &key, 6 * second), Ok(11));
    assert_eq!(used(&store, &policy, &key, 12 * second), Ok(18));
    assert_eq!(used(&store, &policy, &key, 60 * second), Ok(23));
    assert_eq!(used(&store, &policy, &Key::from("another"), 60 * second), Ok(0));
    time.advance(48 * second);
    assert_eq!(used(&store, &policy, &key, 60 * second), Ok(18), "the first has left the window");
    assert_eq!(store.keys(), 1, "to read is not to add");
}

#[test]
fn an_algorithm_without_times_has_no_usage_to_read() {
    let store = store(&clock());
    let (policy, key) = (Policy::new("p", Quota::per_minute(100)), Key::from("k"));
    assert!(acquire(&store, &policy, &key, 1).is_granted());
    let usage = used(&store, &policy, &key, Duration::from_secs(60));
    assert_eq!(usage, Err(UsageError::Algorithm(Algorithm::Gcra)));
}
