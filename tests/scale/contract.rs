//! The conformance suite around stores with leases and caches of denials.

use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::store::{Check, Store, Times};
use tollgate::time::Clock;
use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys};
use tollgate::{CircuitBreaker, Key, Lease, MemoryStore, Policy, Quota, Share, StoreExt};
use tollgate_conformance::Suite;
use tollgate_redis::RedisStore;
use tollgate_tests::{Connection, Failing, Later, clock, keeps_the_contract_of, store};

use crate::scale::{prefix, shared};

const UNITS: u64 = 1_000;
const LIFE: Duration = Duration::from_millis(250);

/// Random steps of each algorithm over Redis.
const STEPS: u32 = 500;

fn memory(clock: Clock) -> MemoryStore {
    MemoryStore::builder().clock(clock).build()
}

fn later(clock: Clock) -> Later {
    Later::deciding_last(memory(clock))
}

fn lease(clock: Clock) -> Lease {
    Lease::at_most(UNITS).lasting(LIFE).clock(clock)
}

fn with_leases() -> Suite {
    Suite::new().with_leases(UNITS, LIFE)
}

fn with_cache() -> Suite {
    Suite::new().with_cached_denials()
}

#[test]
fn leases_keep_the_contract() {
    keeps_the_contract_of(with_leases(), |clock| memory(clock.clone()).leased(lease(clock)));
}

#[test]
fn leases_of_an_awaited_store_keep_the_contract() {
    keeps_the_contract_of(with_leases(), |clock| later(clock.clone()).leased(lease(clock)));
}

#[test]
fn a_deny_cache_keeps_the_contract() {
    keeps_the_contract_of(with_cache(), |clock| memory(clock.clone()).deny_cache(1_000).clock(clock));
    keeps_the_contract_of(with_cache(), |clock| later(clock.clone()).deny_cache(1_000).clock(clock));
}

#[test]
fn a_deny_cache_of_leases_keeps_the_contract() {
    keeps_the_contract_of(with_leases().with_cached_denials(), |clock| {
        later(clock.clone()).leased(lease(clock.clone())).deny_cache(1_000).clock(clock)
    });
}

#[test]
fn leases_over_redis_keep_the_contract() {
    over_redis(with_leases(), |store, clock| store.leased(lease(clock)));
}

#[test]
fn a_deny_cache_over_redis_keeps_the_contract() {
    over_redis(with_cache(), |store, clock| store.deny_cache(1_000).clock(clock));
}

fn over_redis<S: Store<Error = tollgate_redis::Error>>(suite: Suite, wrap: impl Fn(RedisStore, Clock) -> S) {
    let url = shared().url();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(suite.steps(STEPS).run(async |clock| {
        let builder = RedisStore::builder(&url).prefix(prefix()).clock(clock.clone());
        // The suite takes 99,991 units at once, and other tests run at the same time.
        let store = builder.response_timeout(Duration::from_secs(60)).connect().await.unwrap();
        wrap(store, clock)
    }));
}

/// Whether a handle of this store answers, and not a failure policy.
async fn answers<S: Store>(store: &S) -> bool {
    let (policy, key) = (Policy::new("patient", Quota::per_day(1_000)), Key::from("ada"));
    let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await;
    verdict.is_ok_and(|verdict| !verdict.each().is_empty() && verdict.share().is_none())
}

/// Otherwise leases that arrive after the deadline of requests would be lost.
#[tokio::test(start_paused = true)]
async fn a_patient_handle_waits_longer_than_the_timeout_in_each_wrapper() {
    async fn waits<S: Store>(store: S) {
        assert!(!answers(&store).await);
        assert!(answers(&store.with_deadline(None)).await);
    }
    let slow = Failing::new(store(&clock()), Connection::IsSlow(Duration::from_secs(1)));
    let timed = || slow.clone().timeout(Duration::from_millis(50));
    waits(timed()).await;
    waits(timed().timeout(Duration::from_millis(20))).await;
    waits(timed().circuit_breaker(CircuitBreaker::default())).await;
    waits(timed().fail_open()).await;
    waits(timed().fall_back_to(MemoryStore::new(), Share::new(1, 3))).await;
    waits(timed().deny_cache(10)).await;
    waits(timed().leased(Lease::default())).await;
    waits(timed().boxed()).await;
    waits(timed().count_usage(&TopKeys::new(MemoryLog::new()).record(Recording::default()))).await;
}
