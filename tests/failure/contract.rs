//! While the store answers, a wrapper changes nothing: each keeps the contract.

use std::time::Duration;

use tollgate::time::Clock;
use tollgate::{CircuitBreaker, MemoryStore, Share, StoreExt};
use tollgate_tests::{Later, keeps_the_contract};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

fn memory(clock: Clock) -> MemoryStore {
    MemoryStore::builder().clock(clock).build()
}

fn later(clock: Clock) -> Later {
    Later::deciding_last(memory(clock))
}

#[test]
fn a_timeout_keeps_the_contract() {
    keeps_the_contract(|clock| memory(clock).timeout(LONG));
    keeps_the_contract(|clock| later(clock).timeout(LONG));
}

#[test]
fn fail_open_keeps_the_contract() {
    keeps_the_contract(|clock| memory(clock).fail_open());
    keeps_the_contract(|clock| later(clock).fail_open());
}

#[test]
fn fail_closed_keeps_the_contract() {
    keeps_the_contract(|clock| memory(clock).fail_closed());
    keeps_the_contract(|clock| later(clock).fail_closed());
}

#[test]
fn wrappers_around_wrappers_and_boxes_keep_the_contract() {
    keeps_the_contract(|clock| memory(clock).timeout(LONG).boxed().fail_open().boxed());
    keeps_the_contract(|clock| later(clock).boxed().timeout(LONG).fail_open().boxed());
    keeps_the_contract(|clock| later(clock).timeout(LONG).boxed().fail_closed().timeout(LONG).fail_open());
    keeps_the_contract(|clock| {
        let store = later(clock).timeout(LONG).circuit_breaker(CircuitBreaker::default()).boxed();
        store.fall_back_to(MemoryStore::new().boxed(), Share::WHOLE).boxed()
    });
}

#[test]
fn a_circuit_breaker_keeps_the_contract() {
    keeps_the_contract(|clock| memory(clock).circuit_breaker(CircuitBreaker::default()));
    keeps_the_contract(|clock| later(clock).circuit_breaker(CircuitBreaker::default()));
}

#[test]
fn fall_back_to_keeps_the_contract() {
    keeps_the_contract(|clock| memory(clock).fall_back_to(MemoryStore::new(), Share::WHOLE));
    keeps_the_contract(|clock| later(clock).fall_back_to(MemoryStore::new(), Share::WHOLE));
}
