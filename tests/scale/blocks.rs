//! Leases of keys that may be blocked: units and the permission to spend them are both fetched
//! ahead.

use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::failure::{Answering, Fixed};
use tollgate::scale::Leases;
use tollgate::store::{Store, StoreError};
use tollgate::{Algorithm, Key, Lease, Limiter, ManualClock, MemoryStore, Policy, Quota, Reason, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_tests::{clock, store};

use crate::scale::{prefix, shared};

const LIFE: Duration = Duration::from_secs(1);

const CHECKS: u64 = 6_000;

type InMemory = Limiter<Answering<Leases<MemoryStore>, Fixed>>;

fn blocking() -> Policy {
    let policy = Policy::new("api", Quota::per_day(1_000_000)).with_algorithm(Algorithm::FIXED_WINDOW);
    policy.block_after(3, Duration::from_secs(900))
}

fn leased<S: Store>(store: S, time: &ManualClock) -> Leases<S> {
    store.leased(Lease::at_most(1_000).lasting(LIFE).clock(time))
}

fn limiter<S: Store<Error: StoreError>>(leases: &Leases<S>) -> Limiter<Answering<Leases<S>, Fixed>> {
    Limiter::new([blocking()]).store(leases.clone().fail_closed())
}

/// Leases end by a clock that stands still, so it is known how many checks each has to serve.
fn runs<F: Future<Output = ()>>(test: impl FnOnce(ManualClock) -> F) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test(clock()));
}

async fn most_checks_are_answered_by_leases<S: Store<Error: StoreError>>(inside: S, time: ManualClock) {
    let leases = leased(inside, &time);
    let (limiter, key) = (limiter(&leases), Key::from("ada"));
    for _ in 0..CHECKS {
        assert!(limiter.check(&key, 1).await.is_ok());
        // Fetches are answered meanwhile.
        tokio::task::yield_now().await;
    }
    let stats = leases.stats();
    assert!(stats.asked + stats.fetches < CHECKS / 10, "{stats:?}");
    assert!(stats.fetched_units < 2 * CHECKS, "permissions are no units: {stats:?}");
    assert!(leases.close(Duration::from_secs(60)).await.is_nothing());
    let stats = leases.stats();
    assert_eq!(stats.held_units, 0, "{stats:?}");
    assert_eq!(limiter.look(&key).await.unwrap().statuses()[0].remaining(), 1_000_000 - CHECKS);
}

#[test]
fn checks_of_keys_that_may_be_blocked_are_answered_by_leases() {
    runs(async |time| most_checks_are_answered_by_leases(store(&time), time.clone()).await);
    runs(async |time| {
        let redis = RedisStore::builder(&shared().url()).prefix(prefix());
        let redis = redis.response_timeout(Duration::from_secs(60)).connect().await.unwrap();
        most_checks_are_answered_by_leases(redis, time).await;
    });
}

/// A process whose leases are worth hundreds of checks.
async fn busy(inside: &MemoryStore, time: &ManualClock, key: &Key) -> (Leases<MemoryStore>, InMemory) {
    let leases = leased(inside.clone(), time);
    let limiter = limiter(&leases);
    for _ in 0..200 {
        assert!(limiter.check(key, 1).await.is_ok());
    }
    let block = blocking().numbers().block().unwrap();
    assert!(leases.held(&blocking(), key).is_some() && leases.held(&block, key).is_some());
    (leases, limiter)
}

async fn is_blocked(limiter: &InMemory, key: &Key) -> bool {
    matches!(limiter.check(key, 1).await, Err(denial) if denial.reason() == Reason::Blocked)
}

#[test]
fn a_block_is_heeded_at_once_here_and_at_the_end_of_a_lease_elsewhere() {
    runs(async |time| {
        let (inside, key) = (store(&time), Key::from("ada"));
        let (_, here) = busy(&inside, &time, &key).await;
        let (_, elsewhere) = busy(&inside, &time, &key).await;
        here.block("api", &key).await;
        assert!(is_blocked(&here, &key).await);
        assert!(!is_blocked(&elsewhere, &key).await, "it holds permissions");
        assert!(elsewhere.blocked("api", &key).await.is_some(), "it is known to the store");
        time.advance(LIFE);
        assert!(is_blocked(&elsewhere, &key).await);
        elsewhere.unblock("api", &key).await;
        assert!(!is_blocked(&elsewhere, &key).await && !is_blocked(&here, &key).await);
    });
}
