//! Processes that stop in order: nothing that they hold stays charged.

use std::time::Duration;

use tollgate::store::Store;
use tollgate::{CircuitBreaker, Key, Lease, MemoryStore, Share, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, Later, clock, store};

use crate::scale::returns::{ask, charged, lease, policy};
use crate::scale::{connect, shared};

const UNITS: u64 = 200;
const LIFE: Duration = Duration::from_millis(250);

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Each stops in the middle of its load.
#[tokio::test]
async fn ten_processes_that_stop_in_turn_lose_no_unit() {
    let redis = connect(shared()).await;
    let (policy, key) = (policy("stops"), Key::from("ada"));
    let (mut granted, mut held) = (0, 0);
    for _ in 0..10 {
        let leased = redis
            .clone()
            .timeout(Duration::from_secs(5))
            .circuit_breaker(CircuitBreaker::default())
            .leased(Lease::at_most(UNITS).lasting(LIFE));
        let store = leased.clone().deny_cache(100).fall_back_to(MemoryStore::new(), Share::new(1, 10));
        while leased.stats().leased_units() < 100 || leased.held(&policy, &key).is_none() {
            granted += u64::from(ask(&store, &policy, &key).await == Some(true));
        }
        held += leased.stats().held_units;
        assert!(store.close(PATIENCE).await.is_nothing(), "the store answers");
        assert_eq!(leased.stats().held_units, 0);
    }
    let charged = charged(&redis, &policy, &key).await;
    println!("{charged} charged, {granted} granted, {held} given back");
    assert_eq!(charged, granted, "{held} units were held");
}

/// The fetch is answered after the stop has begun.
#[tokio::test]
async fn a_stop_waits_for_fetches_on_their_way() {
    let inside = store(&clock());
    let leased = Later::deciding_first(inside.clone()).leased(Lease::at_most(UNITS).lasting(60 * LIFE));
    let (policy, key) = (policy("on its way"), Key::from("ada"));
    let mut granted = 0;
    while leased.stats().fetches == 0 {
        granted += u64::from(ask(&leased, &policy, &key).await == Some(true));
    }
    assert_eq!((leased.held(&policy, &key), leased.stats().fetched_units), (None, 0));
    assert!(leased.close(10 * LIFE).await.is_nothing(), "it waits for no life of a lease");
    assert!(leased.stats().fetched_units > 0);
    assert_eq!(charged(&inside, &policy, &key).await, granted);
}

#[tokio::test]
async fn after_a_stop_the_store_decides_each_request() {
    let inside = store(&clock());
    let leased = inside.clone().leased(Lease::at_most(UNITS).lasting(LIFE));
    let (policy, key) = (policy("closed"), Key::from("ada"));
    let mut granted = lease(&leased, &policy, &key).await;
    assert!(leased.close(PATIENCE).await.is_nothing());
    let fetches = leased.stats().fetches;
    for _ in 0..100 {
        granted += u64::from(ask(&leased, &policy, &key).await == Some(true));
    }
    assert_eq!(leased.stats().fetches, fetches);
    assert_eq!(charged(&inside, &policy, &key).await, granted);
    // A second time, there is nothing to give back.
    assert!(leased.close(PATIENCE).await.is_nothing());
}

#[tokio::test]
async fn a_stop_tries_again_while_the_store_refuses_refunds() {
    let time = clock();
    let inside = Failing::new(store(&time), Connection::Works);
    let leased = inside.clone().leased(Lease::at_most(UNITS).lasting(LIFE));
    let (policy, key) = (policy("refused"), Key::from("ada"));
    let granted = lease(&leased, &policy, &key).await;
    let held = charged(&inside, &policy, &key).await - granted;
    inside.set(Connection::Fails(Fault::Refused));
    let unsent = leased.close(LIFE).await;
    assert_eq!((unsent.corrections, unsent.leased_units), (0, held), "{unsent}");
    inside.set(Connection::Works);
    assert!(leased.close(PATIENCE).await.is_nothing(), "it is tried again");
    assert_eq!(charged(&inside, &policy, &key).await, granted);
}
