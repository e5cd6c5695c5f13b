//! The conformance suite. It runs to its end or panics with the name of the case that failed.

use tollgate::{Clock, MemoryStore, StoreExt};
use tollgate_conformance::run;
use tollgate_tests::Later;

fn store(clock: Clock, max_keys: usize) -> MemoryStore {
    MemoryStore::builder().clock(clock).max_keys(max_keys).build()
}

#[tokio::test]
async fn the_default_store_keeps_the_contract() {
    run(async |clock| MemoryStore::builder().clock(clock).build()).await;
}

#[tokio::test]
async fn a_store_of_a_single_shard_keeps_the_contract() {
    run(async |clock| store(clock, 1_000)).await;
}

#[tokio::test]
async fn a_store_of_a_few_shards_keeps_the_contract() {
    run(async |clock| store(clock, 4_096)).await;
}

#[tokio::test]
async fn a_boxed_store_keeps_the_contract() {
    run(async |clock| store(clock, 1_000_000).boxed()).await;
}

/// The tests of the layer rest on these two.
#[tokio::test]
async fn a_store_that_is_awaited_keeps_the_contract() {
    run(async |clock| Later::deciding_last(store(clock, 1_000_000))).await;
    run(async |clock| Later::deciding_first(store(clock, 1_000_000)).boxed()).await;
}
