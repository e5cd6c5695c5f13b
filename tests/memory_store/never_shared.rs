//! What a full store never shares: a block, debt and a slot are one key's own.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::store::Settled;
use tollgate::store::{Grant, Stamp, Store};
use tollgate::usage::UsageTotals;
use tollgate::{Key, Limiter, ManualClock, MemoryStore, Outcome, Policy, Quota, Reason};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, clock};

use crate::memory_store::{acquire, passes};

const CAP: u64 = 50;

const BLOCK: Duration = Duration::from_secs(900);

fn guesses() -> Policy {
    Policy::new("guesses", Quota::per_minute(2)).block_after(3, BLOCK)
}

/// A store in which denied keys have all places but so many.
fn full_but(places: u64, time: &ManualClock) -> MemoryStore {
    let store = MemoryStore::builder().clock(time).max_keys(usize::try_from(CAP).unwrap()).build();
    let policy = Policy::new("once a day", Quota::per_day(1));
    for n in 0..CAP - places {
        assert!(passes(&store, &policy, &Key::from(n)) && !passes(&store, &policy, &Key::from(n)));
    }
    store
}

async fn settle(
    store: &MemoryStore,
    policy: &Policy,
    key: &Key,
    granted: (u64, Stamp),
    total: u64,
) -> Settled {
    let (units, stamp) = granted;
    let Ok(settled) = store.settle(&[Grant { policy, key, units, stamp, share: None }], total).await;
    settled
}

/// The block of a new key. Nothing was granted that it corrects.
async fn block(store: &MemoryStore, key: &Key) -> Settled {
    settle(store, &guesses().numbers().block().unwrap(), key, (0, Stamp::default()), 1).await
}

const STARTED: Settled = Settled { charged: 1, debt: 0, forgiven: 0, unknown: 0, kept: 0 };
const DROPPED: Settled = Settled { charged: 0, debt: 0, forgiven: 1, unknown: 0, kept: 0 };

#[tokio::test]
async fn a_block_without_room_blocks_no_key_and_is_shown_and_counted() {
    let store = full_but(0, &clock());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let outcomes = Arc::clone(&seen);
    let limiter = Limiter::new([guesses()])
        .store(store.clone())
        .observe(move |decision| outcomes.lock().unwrap().push(decision.outcome()));
    let eve = Key::from("eve");
    let mut passed = 0;
    for _ in 0..8 {
        passed += u32::from(limiter.check(&eve, 1).await.is_ok());
    }
    assert_eq!(passed, 2, "six denials are two blocks");
    limiter.block("guesses", &eve).await;
    let of = |outcome| seen.lock().unwrap().iter().filter(|seen| **seen == outcome).count();
    assert_eq!((store.dropped_blocks(), of(Outcome::BlockDropped)), (3, 3));
    assert_eq!((of(Outcome::BlockStarted), of(Outcome::Blocked)), (0, 0));
    for other in 1_000..2_000_u64 {
        let other = Key::from(other);
        assert_eq!(limiter.blocked("guesses", &other).await, None);
        // All share one quota, which is used up.
        assert_eq!(limiter.check(&other, 1).await.unwrap_err().reason(), Reason::QuotaExceeded);
    }
}

#[tokio::test]
async fn a_block_takes_the_place_of_a_key_that_is_not_pinned() {
    let time = clock();
    let store = full_but(1, &time);
    let limiter = Limiter::new([guesses()]).store(store.clone());
    let (eve, daily) = (Key::from("eve"), Policy::new("daily", Quota::per_day(100)));
    assert!(passes(&store, &daily, &Key::from("ada")));
    limiter.block("guesses", &eve).await;
    assert_eq!((store.evictions(), store.dropped_blocks(), store.keys()), (1, 0, 50));
    for n in 1_000..2_000_u64 {
        passes(&store, &daily, &Key::from(n));
        assert_eq!(limiter.blocked("guesses", &Key::from(n)).await, None);
    }
    assert_eq!(limiter.blocked("guesses", &eve).await, Some(BLOCK));
    limiter.unblock("guesses", &eve).await;
    assert_eq!(limiter.blocked("guesses", &eve).await, None);
    assert!(limiter.check(&eve, 1).await.is_ok());
}

#[tokio::test]
async fn a_block_takes_the_place_of_a_full_bucket_first() {
    let time = clock();
    let store = full_but(2, &time);
    let (second, day) = (Policy::new("second", Quota::per_second(1)), Policy::new("day", Quota::per_day(9)));
    assert!(passes(&store, &second, &Key::from("ada")) && passes(&store, &day, &Key::from("bob")));
    time.advance(Duration::from_secs(1));
    assert_eq!(block(&store, &Key::from("eve")).await, STARTED);
    assert_eq!(store.evictions(), 0);
    assert_eq!(acquire(&store, &day, &Key::from("bob"), 1).each()[0].remaining(), 7);
}

#[tokio::test]
async fn no_block_takes_the_place_of_a_slot_a_debt_or_a_block() {
    let store = full_but(3, &clock());
    let (slots, tokens) = (Policy::in_flight("slots", 1), Policy::new("tokens", Quota::per_hour(5)));
    let [ada, bob, eve] = ["ada", "bob", "eve"].map(Key::from);
    assert!(passes(&store, &slots, &ada));
    // Nothing was granted, so this charge needs a place of its own.
    let settled = settle(&store, &tokens, &bob, (0, Stamp::default()), 8).await;
    assert_eq!(settled, Settled { charged: 8, debt: 3, forgiven: 0, ..Settled::default() });
    assert_eq!(block(&store, &eve).await, STARTED);
    for n in 0..100_u64 {
        assert_eq!(block(&store, &Key::from(n)).await, DROPPED);
        assert!(!passes(&store, &slots, &ada) && !passes(&store, &tokens, &bob));
    }
    assert!(!acquire(&store, &guesses().numbers().block().unwrap(), &eve, 1).is_granted());
    assert_eq!((store.dropped_blocks(), store.evictions()), (100, 0));
}

#[tokio::test]
async fn a_check_of_blocks_takes_no_place() {
    let store = MemoryStore::builder().clock(&clock()).max_keys(10).build();
    let limiter = Limiter::new([guesses()]).store(store.clone());
    for n in 0..15_u64 {
        assert!(limiter.check(&Key::from(n), 1).await.is_ok());
    }
    assert_eq!((store.keys(), store.evictions()), (10, 5));
}

/// The wait of a newcomer is the same as after requests that used up the shared quota.
#[tokio::test]
async fn debt_without_room_is_forgiven_and_newcomers_do_not_wait_for_it() {
    for algorithm in EVERY_ALGORITHM {
        let (store, used_up) = (full_but(0, &clock()), full_but(0, &clock()));
        let policy = a_minute("tokens", algorithm, 5);
        let owes = policy.numbers().with_debt().is_some();
        let (stream, newcomer) = (Key::from("stream"), Key::from("newcomer"));
        let stamp = acquire(&store, &policy, &stream, 1).each()[0].stamp();
        let charged = if owes { 5 } else { 1 };
        for total in [30, 7] {
            let settled = settle(&store, &policy, &stream, (1, stamp), total).await;
            let more = if total == 30 { charged } else { 1 };
            let expected = Settled { charged: more, debt: 0, forgiven: total - more, ..Settled::default() };
            assert_eq!(settled, expected, "{algorithm:?}");
        }
        assert!(acquire(&used_up, &policy, &stream, charged).is_granted());
        let wait = |store| acquire(store, &policy, &newcomer, 5).wait();
        assert_eq!(wait(&store), wait(&used_up), "{algorithm:?}");
    }
}

#[tokio::test]
async fn usage_without_an_end_gives_its_place_to_newer_usage() {
    let store = MemoryStore::builder().max_tracked_keys(10).keep_usage_for(Duration::MAX).build();
    let policy = Policy::new("p", Quota::per_day(5)).track_usage();
    for n in 0..100_u64 {
        assert!(passes(&store, &policy, &Key::from(n)));
        let total = store.total_of("p", &Key::from(n)).await.unwrap();
        assert_eq!(total.map(|total| total.total), Some(1), "key {n}");
    }
}
