//! What callers that invent keys can and cannot do.

use std::thread;
use std::time::Duration;

use tollgate::store::Settled;
use tollgate::store::{Check, Grant, Reply, Store, Times};
use tollgate::{Key, MemoryStore, Policy, Quota, Wait};
use tollgate_tests::{EVERY_ALGORITHM, Log, a_minute, clock};

use crate::memory_store::{acquire, acquire_set, passes};

#[test]
fn invented_keys_never_exceed_the_cap() {
    const CAP: usize = 2_000;
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(CAP).build();
    let policy = Policy::new("p", Quota::per_minute(2));
    thread::scope(|scope| {
        for inventor in 0..8_u64 {
            let (store, policy) = (&store, &policy);
            scope.spawn(move || {
                for n in 0..2_000_u64 {
                    let key = Key::from(inventor << 32 | n);
                    passes(store, policy, &key);
                    if n % 3 == 0 {
                        // Some are used up and denied, so they must not be evicted.
                        acquire(store, policy, &key, 1);
                        acquire(store, policy, &key, 1);
                    }
                    assert!(store.keys() <= CAP, "{} keys", store.keys());
                }
            });
        }
    });
    assert_eq!(store.keys(), CAP, "the cap is used");
}

#[test]
fn a_cap_of_the_largest_number_allocates_only_what_is_used() {
    let store = MemoryStore::builder().clock(&clock()).max_keys(usize::MAX).build();
    let policy = Policy::new("p", Quota::per_minute(1));
    assert!(passes(&store, &policy, &Key::from("ada")) && !passes(&store, &policy, &Key::from("ada")));
    assert_eq!(store.keys(), 1);
}

#[test]
fn sets_of_several_new_keys_never_exceed_the_cap() {
    for cap in [1, 2, 3, 4, 7] {
        let time = clock();
        let store = MemoryStore::builder().clock(&time).max_keys(cap).build();
        let policies = ["a", "b", "c", "d"].map(|name| Policy::new(name, Quota::per_minute(1_000)));
        for n in 0..50_u64 {
            let key = Key::from(n);
            let set = policies.each_ref().map(|policy| (policy, &key, 1));
            assert!(acquire_set(&store, &set).is_granted(), "cap {cap}, key {n}");
            assert!(store.keys() <= cap, "{} keys under a cap of {cap}", store.keys());
        }
        assert_eq!(store.keys(), cap);
    }
}

/// Keys evicted before their reset are counted. While there is room, or if idle keys are evicted,
/// the count stays 0.
#[test]
fn keys_evicted_before_their_reset_are_counted() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(10).build();
    let policy = Policy::new("p", Quota::per_minute(2));
    let ask = |from: u64, to: u64| (from..to).for_each(|n| assert!(passes(&store, &policy, &Key::from(n))));
    ask(0, 10);
    assert_eq!((store.evictions(), store.overflows()), (0, 0), "there was room");
    ask(10, 13);
    assert_eq!((store.evictions(), store.overflows()), (3, 0));
    let look = store.acquire(&[Check::new(&policy, &Key::from(99), 1)], Times::LOOK);
    assert!(matches!(look, Reply::Now(Ok(_))));
    assert_eq!((store.evictions(), store.overflows()), (3, 0), "a look drives nobody out");
    time.advance(Duration::from_secs(30));
    // Fewer than an insertion examines to find an idle key.
    ask(13, 17);
    assert_eq!((store.evictions(), store.overflows()), (3, 0), "those who went were idle");
}

#[test]
fn a_look_at_an_invented_key_evicts_no_other_key() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(10).build();
    let policy = Policy::new("p", Quota::per_minute(2));
    for n in 0..10_u64 {
        assert!(passes(&store, &policy, &Key::from(n)));
    }
    for n in 10..1_000_u64 {
        let key = Key::from(n);
        let look = store.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK);
        assert!(matches!(look, Reply::Now(Ok(verdict)) if verdict.each()[0].remaining() == 2));
    }
    assert_eq!(store.keys(), 10);
    for n in 0..10_u64 {
        assert_eq!(
            acquire(&store, &policy, &Key::from(n), 1).each()[0].remaining(),
            0,
            "key {n} is remembered"
        );
    }
}

#[test]
fn a_cap_of_zero_counts_as_one() {
    let store = MemoryStore::builder().max_keys(0).build();
    let policy = Policy::new("p", Quota::per_day(1));
    assert!(passes(&store, &policy, &Key::global()));
    assert!(!passes(&store, &policy, &Key::global()));
}

/// A denied caller cannot regain quota by inventing keys, under any algorithm.
#[test]
fn a_denied_key_survives_a_flood_of_invented_keys_until_its_reset() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        let store = MemoryStore::builder().clock(&time).max_keys(100).build();
        let policy = a_minute("p", algorithm, 2);
        let denied: Vec<Key> = (0..50).map(|n| Key::from(format!("denied {n}"))).collect();
        for key in &denied {
            assert!(passes(&store, &policy, key) && passes(&store, &policy, key));
            assert!(!passes(&store, &policy, key));
        }
        let Wait::For(wait) = acquire(&store, &policy, &denied[0], 2).wait() else {
            panic!("{algorithm:?} refuses without a wait")
        };
        let flood = |from: u64| {
            for n in from..from + 2_000 {
                passes(&store, &policy, &Key::from(n));
            }
        };
        flood(0);
        for key in &denied {
            assert!(!passes(&store, &policy, key), "{algorithm:?}: the flood won {key} a fresh quota");
        }
        time.advance(wait - Duration::from_micros(1));
        flood(10_000);
        for key in &denied {
            assert!(
                !acquire(&store, &policy, key, 2).is_granted(),
                "{algorithm:?}: {key} won back its quota"
            );
        }
        time.advance(Duration::from_micros(1));
        assert!(acquire(&store, &policy, &denied[0], 2).is_granted(), "{algorithm:?}: its wait is over");
    }
}

#[test]
fn a_key_that_was_denied_as_one_of_a_set_survives_the_flood() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(100).build();
    let (open, narrow) =
        (Policy::new("open", Quota::per_minute(100)), Policy::new("narrow", Quota::per_minute(1)));
    let (free, denied) = (Key::from("free"), Key::from("denied"));
    let set = [(&open, &free, 1), (&narrow, &denied, 1)];
    assert!(acquire_set(&store, &set).is_granted());
    assert!(!acquire_set(&store, &set).is_granted());
    for n in 0..2_000_u64 {
        // These keys have later resets than the other one, which is evicted when it is examined.
        acquire(&store, &open, &Key::from(n), 2);
    }
    assert!(!passes(&store, &narrow, &denied));
    let left = acquire(&store, &open, &free, 0).each()[0].remaining();
    assert_eq!(left, 100, "the other one had denied nothing, and made room");
}

/// Each caller is denied before the next comes, so no key may be evicted. Keys that find room get
/// their quota. All others together get one more.
#[test]
fn new_keys_share_one_quota_per_policy_when_every_key_is_denied() {
    for cap in [50, 4_096] {
        let time = clock();
        let store = MemoryStore::builder().clock(&time).max_keys(cap).build();
        let policy = Policy::new("p", Quota::per_minute(3));
        let mut granted = 0;
        // Enough to fill every shard.
        for n in 0..4 * cap as u64 {
            let key = Key::from(n);
            granted += (0..4).filter(|_| passes(&store, &policy, &key)).count();
        }
        assert_eq!(store.keys(), cap);
        assert_eq!(granted, (cap + 1) * 3, "with a cap of {cap}");
        assert_eq!(store.overflows(), 3 * 4 * cap as u64, "each was asked four times");
        assert_eq!(store.evictions(), 0, "nobody's quota was forgotten");

        // Another policy has its own shared entry for all of its keys.
        let other = Policy::new("other", Quota::per_minute(5));
        let granted = (0..100_u64).filter(|n| passes(&store, &other, &Key::from(*n))).count();
        assert_eq!(granted, 5);

        // A caller that waits as long as reported passes, even on the shared entry. Once the denied
        // keys are reset, there is room again.
        time.advance(Duration::from_secs(12));
        assert!(passes(&store, &other, &Key::from("whoever")));
        time.advance(Duration::from_secs(60));
        let granted = (0..100_u64).filter(|n| passes(&store, &other, &Key::from(*n))).count();
        assert_eq!(granted, 100, "each has a quota of his own");
        assert!(store.keys() <= cap);
    }
}

#[test]
fn two_new_keys_of_a_set_that_find_no_room_are_charged_together() {
    let time = clock();
    let store = MemoryStore::builder().clock(&time).max_keys(1).build();
    let policy = Policy::new("p", Quota::per_minute(2));
    let first = Key::from("first");
    assert!(acquire(&store, &policy, &first, 2).is_granted());
    assert!(!passes(&store, &policy, &first));
    let (a, b) = (Key::from("a"), Key::from("b"));
    let granted = acquire_set(&store, &[(&policy, &a, 1), (&policy, &b, 1)]);
    assert!(granted.is_granted());
    assert_eq!(granted.each()[1].remaining(), 0, "both are charged to the entry that new keys share");
    assert!(!passes(&store, &policy, &a) && !passes(&store, &policy, &b));
}

/// A flood is logged and counted. Its cost: users that come later share one quota.
#[test]
fn a_full_table_of_denied_keys_is_logged_once_and_counted() {
    let (log, _guard) = Log::of_thread();
    let store = MemoryStore::builder().clock(&clock()).max_keys(20).build();
    let policy = Policy::new("p", Quota::per_minute(2));
    for n in 0..20_u64 {
        assert!(passes(&store, &policy, &Key::from(n)) && passes(&store, &policy, &Key::from(n)));
        assert!(!passes(&store, &policy, &Key::from(n)));
    }
    assert_eq!((store.overflows(), log.lines()), (0, Vec::new()), "each key has its entry");
    let newcomers = (100..110_u64).filter(|n| passes(&store, &policy, &Key::from(*n))).count();
    assert_eq!((newcomers, store.overflows()), (2, 10), "newcomers share one quota");
    let [line] = &log.lines()[..] else { panic!("not one line but {:?}", log.lines()) };
    assert!(line.contains("WARN") && line.contains("new keys share one quota"), "{line}");
}

/// A caller could lose its debt by inventing keys.
#[tokio::test]
async fn a_key_in_debt_is_not_evicted() {
    let policy = Policy::new("p", Quota::per_hour(10));
    let store = MemoryStore::builder().max_keys(64).clock(&clock()).build();
    let ada = Key::from("ada");
    let stamp = acquire(&store, &policy, &ada, 1).each()[0].stamp();
    let grant = Grant { policy: &policy, key: &ada, units: 1, stamp, share: None };
    let Ok(settled) = store.settle(&[grant], 15).await;
    assert_eq!(settled, Settled { charged: 15, debt: 5, forgiven: 0, ..Settled::default() });
    for invented in 0..10_000_u32 {
        acquire(&store, &policy, &Key::from(invented), 1);
    }
    assert!(!passes(&store, &policy, &ada) && store.evictions() > 0);
}
