//! The conformance suite. A failure prints the name of the case.

use tokio::runtime::Builder;
use tollgate::store::Store;
use tollgate::time::Clock;
use tollgate::{MemoryStore, StoreExt};
use tollgate_conformance::Suite;
use tollgate_test_servers::short_or_long;
use tollgate_tests::{Later, keeps_the_contract, keeps_the_contract_of};

fn store(clock: Clock, max_keys: usize) -> MemoryStore {
    MemoryStore::builder().clock(clock).max_keys(max_keys).build()
}

#[test]
fn the_default_store_keeps_the_contract() {
    keeps_the_contract(|clock| MemoryStore::builder().clock(clock).build());
}

#[test]
fn a_store_of_a_single_shard_keeps_the_contract() {
    keeps_the_contract(|clock| store(clock, 1_000));
}

#[test]
fn a_store_of_a_few_shards_keeps_the_contract() {
    keeps_the_contract(|clock| store(clock, 4_096));
}

#[test]
fn a_store_in_shadow_keeps_the_contract() {
    keeps_the_contract(|clock| store(clock, 1_000_000).in_shadow());
}

#[test]
fn a_boxed_store_keeps_the_contract() {
    keeps_the_contract(|clock| store(clock, 1_000_000).boxed());
}

/// The tests of the layer rely on these two stores.
#[test]
fn a_store_that_is_awaited_keeps_the_contract() {
    keeps_the_contract(|clock| Later::deciding_last(store(clock, 1_000_000)));
    keeps_the_contract(|clock| Later::deciding_first(store(clock, 1_000_000)).boxed());
}

#[test]
fn recent_usage_matches_the_oracle() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(Suite::new().run_usage(async |clock| store(clock, 1_000_000)));
}

#[test]
fn thousands_of_random_histories_per_algorithm_match_the_oracle() {
    for algorithm in Suite::ALGORITHMS {
        let suite = Suite::new().steps(0).histories(short_or_long(1_000, 10_000)).only_steps_of(algorithm);
        keeps_the_contract_of(suite, |clock| store(clock, 1_000));
    }
}
