//! Requests in flight: slots are held until they come back, also under a flood of keys.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::store::{Check, Grant, Stamp, Store, Times};
use tollgate::{Key, MemoryStore, Policy, Quota};
use tollgate_tests::{at_hand, at_once, clock};

use crate::memory_store::{acquire, acquire_set, passes};

fn claim(store: &MemoryStore, policy: &Policy, key: &Key) -> Option<Stamp> {
    let verdict = acquire(store, policy, key, 1);
    verdict.is_granted().then(|| verdict.each()[0].stamp())
}

fn release(store: &MemoryStore, policy: &Policy, key: &Key, stamp: Stamp) {
    at_once(store.refund(&[Grant { policy, key, units: 1, stamp, share: None }])).unwrap();
}

#[test]
fn slots_come_back_and_leave_nothing() {
    let (store, policy) = (MemoryStore::new(), Policy::in_flight("p", 3));
    let mut held: Vec<(Key, Stamp)> = Vec::new();
    for n in 0..1_000_000_u64 {
        let key = Key::from(n % 97);
        match claim(&store, &policy, &key) {
            Some(stamp) => held.push((key, stamp)),
            None => assert_eq!(held.iter().filter(|(of, _)| *of == key).count(), 3),
        }
        if n % 3 != 0 || held.len() > 200 {
            // Any of them, in no order.
            let at = usize::try_from(n.wrapping_mul(0x9e37_79b9) % held.len() as u64).unwrap_or(0);
            let (key, stamp) = held.swap_remove(at);
            release(&store, &policy, &key, stamp);
        }
        assert!(store.keys() <= held.len(), "a key without slots stays");
    }
    for (key, stamp) in held {
        release(&store, &policy, &key, stamp);
    }
    assert_eq!(store.keys(), 0);
}

/// Claims of one microsecond, and of a state that was forgotten in it.
#[test]
fn a_second_release_frees_nothing_of_others() {
    let (store, policy, key) =
        (MemoryStore::builder().clock(&clock()).build(), Policy::in_flight("p", 1), Key::from("ada"));
    let mut earlier: Vec<Stamp> = Vec::new();
    for _ in 0..1_000 {
        let stamp = claim(&store, &policy, &key).expect("a free slot");
        earlier.iter().rev().take(20).for_each(|old| release(&store, &policy, &key, *old));
        assert!(claim(&store, &policy, &key).is_none(), "an old release freed it");
        release(&store, &policy, &key, stamp);
        earlier.push(stamp);
    }
    assert_eq!(earlier.iter().collect::<HashSet<_>>().len(), 1_000);
}

#[test]
fn threads_that_release_twice_never_exceed_the_limit() {
    let (store, policy, key) = (MemoryStore::new(), Policy::in_flight("p", 4), Key::from("ada"));
    let (running, passed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let Some(stamp) = claim(&store, &policy, &key) else { continue };
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 4);
                    passed.fetch_add(1, Ordering::Relaxed);
                    running.fetch_sub(1, Ordering::SeqCst);
                    release(&store, &policy, &key, stamp);
                    release(&store, &policy, &key, stamp);
                }
            });
        }
    });
    assert!(passed.into_inner() > 1_000);
    assert_eq!(store.keys(), 0);
}

#[test]
fn a_flood_of_denied_keys_takes_no_slot_and_none_is_shared() {
    let store = MemoryStore::builder().clock(&clock()).max_keys(50).build();
    let (rate, slots) = (Policy::new("rate", Quota::per_day(1)), Policy::in_flight("slots", 1));
    let before = claim(&store, &slots, &Key::from("before")).expect("a free slot");
    for n in 0..500_u32 {
        passes(&store, &rate, &Key::from(n));
        acquire(&store, &rate, &Key::from(n), 1);
    }
    assert!(claim(&store, &slots, &Key::from("before")).is_none(), "it was evicted");
    let held: Vec<(Key, Stamp)> = (0..200_u32)
        .map(|n| (Key::from(n), claim(&store, &slots, &Key::from(n)).expect("a slot of its own")))
        .collect();
    for (key, stamp) in &held {
        assert!(claim(&store, &slots, key).is_none());
        release(&store, &slots, key, *stamp);
        assert!(claim(&store, &slots, key).is_some(), "a release was lost");
    }
    release(&store, &slots, &Key::from("before"), before);
    assert!(claim(&store, &slots, &Key::from("before")).is_some());
}

#[test]
fn a_set_takes_a_slot_and_a_rate_or_neither() {
    let store = MemoryStore::builder().clock(&clock()).build();
    let (rate, slots, key) =
        (Policy::new("rate", Quota::per_day(1_000)), Policy::in_flight("slots", 3), Key::from("ada"));
    let granted = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let verdict = acquire_set(&store, &[(&rate, &key, 1), (&slots, &key, 1)]);
                    if verdict.is_granted() {
                        let mut granted = granted.lock().expect("no thread has panicked");
                        granted.push(verdict.each()[1].stamp());
                        if granted.len() > 2 {
                            let stamp = granted.swap_remove(0);
                            release(&store, &slots, &key, stamp);
                        }
                    }
                }
            });
        }
    });
    let held = granted.into_inner().expect("no thread has panicked").len() as u64;
    let look = at_hand(store.acquire(&[Check::new(&slots, &key, 1)], Times::LOOK));
    let Ok(look) = look;
    assert_eq!(look.each()[0].remaining(), 3 - held);
}
