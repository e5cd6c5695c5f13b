//! The conformance suite on each server that there is. It runs to its end or panics with the name of the case that failed.

use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::Algorithm;
use tollgate_conformance::Suite;
use tollgate_conformance::servers::{Cluster, Kind, Sentinel};
use tollgate_redis::{RedisStore, SlidingLogLayout};

use crate::{prefix, shared};

/// Random steps where a server is put through the whole suite. Those of `a_hundred_thousand_random_decisions_…` come on top.
const STEPS: u32 = 500;

fn holds(suite: Suite, url: &str, layout: SlidingLogLayout) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(suite.run(async |clock| {
        let builder = RedisStore::builder(url).prefix(prefix()).sliding_log(layout).clock(clock);
        // The suite takes 99,991 units at once, and all of a test binary runs beside it.
        builder.response_timeout(Duration::from_secs(60)).connect().await.unwrap()
    }));
}

fn holds_on(kind: Kind) {
    holds(Suite::new().steps(STEPS), &shared(kind).url(), SlidingLogLayout::List);
}

#[test]
fn redis_6_2_keeps_the_contract() {
    holds_on(Kind::Redis6_2);
}

#[test]
fn redis_8_2_keeps_the_contract() {
    holds_on(Kind::Redis8_2);
}

#[test]
fn valkey_9_1_keeps_the_contract() {
    holds_on(Kind::Valkey9_1);
}

#[test]
fn the_installed_server_keeps_the_contract() {
    holds_on(Kind::Installed);
}

#[test]
fn logs_in_sorted_sets_keep_the_contract() {
    holds(Suite::new().steps(STEPS), &shared(Kind::Redis8_2).url(), SlidingLogLayout::SortedSet);
}

#[test]
fn a_cluster_keeps_the_contract() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    let url = format!("redis-cluster://{}", nodes.join(","));
    let suite = Suite::new().steps(STEPS).without_atomic_sets_across_keys();
    holds(suite, &url, SlidingLogLayout::List);
}

#[test]
fn a_master_under_sentinels_keeps_the_contract() {
    let sentinel = Sentinel::start(Kind::Installed).unwrap();
    let sentinels: Vec<String> = sentinel.sentinels().iter().map(|one| one.address().to_string()).collect();
    let url = format!("redis-sentinel://{}/{}", sentinels.join(","), sentinel.master_name());
    holds(Suite::new().steps(STEPS), &url, SlidingLogLayout::List);
}

/// Of the steps, 57 in a hundred are decisions that are compared; the others move the clock, give back, reset. All algorithms at
/// once, since a step is mostly a wait for the other side.
#[test]
fn a_hundred_thousand_random_decisions_of_each_algorithm_are_those_of_the_oracle() {
    let logs = |layout: SlidingLogLayout| move |algorithm: Algorithm| (algorithm, layout);
    let list = Suite::ALGORITHMS.map(logs(SlidingLogLayout::List));
    let sorted_set = Suite::ALGORITHMS.map(logs(SlidingLogLayout::SortedSet));
    let sorted_set = sorted_set.into_iter().filter(|(of, _)| matches!(of, Algorithm::SlidingLog { .. }));
    thread::scope(|scope| {
        for (n, (algorithm, layout)) in list.into_iter().chain(sorted_set).enumerate() {
            let server = shared(Kind::EVERY[n % Kind::EVERY.len()]);
            let suite = Suite::new().steps(176_000).only_steps_of(algorithm);
            scope.spawn(move || holds(suite, &server.url(), layout));
        }
    });
}
