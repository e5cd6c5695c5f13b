//! The conformance suite around stores with leases.

use tollgate::{Clock, Lease, MemoryStore, ScaleExt};
use tollgate_tests::{Later, keeps_the_contract};

fn memory(clock: Clock) -> MemoryStore {
    MemoryStore::builder().clock(clock).build()
}

#[test]
fn leases_keep_the_contract() {
    keeps_the_contract(|clock| memory(clock.clone()).leased(Lease::default().clock(clock)));
}

#[test]
fn leases_of_an_awaited_store_keep_the_contract() {
    keeps_the_contract(|clock| {
        Later::deciding_last(memory(clock.clone())).leased(Lease::default().clock(clock))
    });
}

#[test]
fn a_deny_cache_keeps_the_contract() {
    keeps_the_contract(|clock| memory(clock.clone()).deny_cache(1_000).clock(clock));
    keeps_the_contract(|clock| Later::deciding_last(memory(clock.clone())).deny_cache(1_000).clock(clock));
}
