//! Units that come back late: of a runtime that is not driven, of a slow fetch, after an outage.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tollgate::scale::Leases;
use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, Lease, ManualClock, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Connection, Failing, Fault, Later, clock, store};

use crate::scale::{connect, prefix, shared};

/// Nothing of it comes back within a test.
const LIMIT: u64 = 1_000_000;

const UNITS: u64 = 200;
const LIFE: Duration = Duration::from_millis(100);

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) fn policy(name: &str) -> Policy {
    Policy::new(name, Quota::per_day(LIMIT)).with_algorithm(Algorithm::FIXED_WINDOW_ALIGNED)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// What the store has charged to a key.
pub(crate) async fn charged<S: Store>(store: &S, policy: &Policy, key: &Key) -> u64 {
    let look = store.acquire(&[Check::new(policy, key, 1)], Times::LOOK).wait().await;
    let Ok(verdict) = look else { panic!("the store answers") };
    LIMIT - verdict.each()[0].remaining()
}

/// Asks once. Returns whether it was granted, or `None` if the store failed.
pub(crate) async fn ask<S: Store>(store: &S, policy: &Policy, key: &Key) -> Option<bool> {
    let verdict = store.acquire(&[Check::new(policy, key, 1)], Times::ONCE).wait().await.ok()?;
    Some(verdict.is_granted())
}

/// Asks until units are held. Returns how many requests were granted.
pub(crate) async fn lease<S: Store>(leased: &Leases<S>, policy: &Policy, key: &Key) -> u64 {
    let held = async {
        let mut granted = 0;
        while leased.held(policy, key).is_none() {
            granted += u64::from(ask(leased, policy, key).await == Some(true));
        }
        granted
    };
    timeout(PATIENCE, held).await.expect("a key in demand is leased")
}

/// Waits until that is so.
async fn within(what: &str, is_so: impl AsyncFn() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("in time: {what}"));
}

/// A warm-up, whose runtime lives on and is not driven.
fn warm_up<S: Store>(leased: &Leases<S>, policy: &Policy, key: &Key) -> (Runtime, u64) {
    let runtime = runtime();
    let granted = runtime.block_on(lease(leased, policy, key));
    (runtime, granted)
}

/// Each burst leaves a part of its lease unspent.
#[test]
fn a_runtime_that_is_not_driven_does_not_keep_the_units_of_others() {
    let serving = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = serving.block_on(connect(shared()));
    let leased = store.clone().leased(Lease::at_most(UNITS).lasting(LIFE));
    let (policy, key) = (policy("warm-up"), Key::from("ada"));
    let (_idle, mut granted) = warm_up(&leased, &policy, &key);
    serving.block_on(async {
        let mut most_held = 0;
        for _ in 0..20 {
            for _ in 0..100 {
                granted += u64::from(ask(&leased, &policy, &key).await == Some(true));
            }
            most_held = most_held.max(leased.stats().held_units);
            sleep(LIFE + LIFE / 5).await;
        }
        println!("at most {most_held} of {UNITS} units were held");
        // One lease that is spent, and those that ended and wait for their task.
        assert!(most_held <= 3 * UNITS, "{most_held} units were held");
        within("all that was not spent is refunded", async || {
            let charged = charged(&store, &policy, &key).await;
            println!("{charged} charged, {granted} granted");
            leased.stats().held_units == 0 && charged == granted
        })
        .await;
    });
}

/// The runtime that takes over has no lease of its own.
#[test]
fn a_request_of_a_cold_key_takes_over_the_return_of_leases() {
    let time = clock();
    let leased = in_memory(&time);
    let (policy, ada, cold) = (policy("takes over"), Key::from("ada"), Key::from("bob"));
    let (_idle, _) = warm_up(&leased, &policy, &ada);
    assert!(leased.stats().held_units > 0);
    time.advance(2 * LIFE);
    runtime().block_on(async {
        ask(&leased, &policy, &cold).await;
        within("the lease is ended", async || leased.stats().held_units == 0).await;
    });
}

fn in_memory(time: &ManualClock) -> Leases<Later> {
    Later::deciding_first(store(time)).leased(Lease::at_most(UNITS).lasting(LIFE).clock(time))
}

/// The fetch waits in a runtime that is not driven. Requests of another one lease the key again.
#[test]
fn a_fetch_that_is_never_answered_does_not_keep_its_key_from_leases() {
    let time = clock();
    let leased = in_memory(&time);
    let (policy, key) = (policy("unanswered"), Key::from("ada"));
    let idle = runtime();
    idle.block_on(async {
        while leased.stats().fetches == 0 {
            ask(&leased, &policy, &key).await;
        }
    });
    assert_eq!(leased.held(&policy, &key), None);
    time.advance(Duration::from_secs(10));
    runtime().block_on(lease(&leased, &policy, &key));
    // Its answer is that of another fetch now: it adds nothing.
    let fetched = leased.stats().fetched_units;
    idle.block_on(async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(leased.stats().fetched_units, fetched);
}

/// Redis answers no client for 80 ms at a time, and callers wait for 50 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_arrives_after_the_deadline_of_callers_is_not_lost() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = connect(&server).await;
    let leased = redis.clone().timeout(Duration::from_millis(50)).leased(Lease::at_most(UNITS).lasting(LIFE));
    let (policy, key) = (policy("late"), Key::from("ada"));
    let (mut granted, mut failed) = (lease(&leased, &policy, &key).await, 0);
    for _ in 0..15 {
        server.command(&["CLIENT", "PAUSE", "80"]).unwrap();
        for _ in 0..100 {
            match ask(&leased, &policy, &key).await {
                Some(is_granted) => granted += u64::from(is_granted),
                None => failed += 1,
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
    within("all units are refunded", async || leased.stats().held_units == 0).await;
    sleep(2 * LIFE).await;
    let charged = charged(&redis, &policy, &key).await;
    println!("{charged} charged, {granted} granted, {failed} failed");
    assert!(leased.stats().fetches > 10, "{:?}", leased.stats());
    assert!((granted..=granted + failed).contains(&charged), "{charged} charged, {granted} granted");
}

/// The lease ends while Redis is down, so its refund meets refused connections.
#[tokio::test]
async fn units_whose_refund_was_refused_are_refunded_once_redis_is_up() {
    let server = Server::start_with(Kind::Redis8_2, &["--appendonly", "yes", "--appendfsync", "always"]);
    let server = server.unwrap();
    let redis = RedisStore::builder(&server.url()).prefix(prefix()).connect().await.unwrap();
    let leased = redis.clone().leased(Lease::at_most(UNITS).lasting(Duration::from_secs(3)));
    let (policy, key) = (policy("refused"), Key::from("ada"));
    let granted = lease(&leased, &policy, &key).await;
    server.kill();
    within("the connections are known to be lost", async || {
        redis.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK).wait().await.is_err()
    })
    .await;
    assert!(leased.held(&policy, &key).is_some(), "the lease ends in the outage");
    within("the lease is ended", async || leased.stats().held_units == 0).await;
    sleep(LIFE).await;
    server.restart().unwrap();
    within("Redis is up", async || ask(&redis, &policy, &Key::from("bob")).await.is_some()).await;
    within("all units are refunded", async || charged(&redis, &policy, &key).await == granted).await;
}

#[tokio::test]
async fn a_refund_that_may_have_been_executed_is_not_sent_again() {
    for (fault, is_sent_again) in
        [(Fault::Refused, true), (Fault::Unreachable, false), (Fault::TooSlow, false)]
    {
        let time = clock();
        let inside = Failing::new(store(&time), Connection::Works);
        let leased = inside.clone().leased(Lease::at_most(UNITS).lasting(LIFE).clock(&time));
        let (policy, key) = (policy("again"), Key::from("ada"));
        let granted = lease(&leased, &policy, &key).await;
        let before = charged(&inside, &policy, &key).await;
        assert!(before > granted);
        inside.set(Connection::FailsLater(fault));
        let asked = inside.asked();
        time.advance(LIFE);
        within("the refund has failed", async || inside.asked() > asked).await;
        inside.set(Connection::Works);
        time.advance(Duration::from_secs(1));
        let again = async {
            while charged(&inside, &policy, &key).await != granted {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let time = if is_sent_again { Duration::from_secs(60) } else { Duration::from_millis(2_500) };
        let is_refunded = timeout(time, again).await.is_ok();
        assert_eq!(is_refunded, is_sent_again, "{fault:?}");
        let expected = if is_sent_again { granted } else { before };
        assert_eq!(charged(&inside, &policy, &key).await, expected, "{fault:?}");
    }
}

/// Its units would stay charged.
#[tokio::test]
async fn a_key_that_holds_units_is_not_evicted_for_others() {
    let time = clock();
    let inside = store(&time);
    let settings = Lease::at_most(UNITS).lasting(LIFE).max_keys(8).clock(&time);
    let leased = inside.clone().leased(settings);
    let (policy, key) = (policy("full"), Key::from("ada"));
    let granted = lease(&leased, &policy, &key).await;
    // The others expire later.
    time.advance(LIFE / 2);
    let held = leased.held(&policy, &key);
    for other in 0..100_u64 {
        ask(&leased, &policy, &Key::from(other)).await;
    }
    assert_eq!(leased.held(&policy, &key), held);
    time.advance(2 * LIFE);
    within("it is refunded", async || charged(&inside, &policy, &key).await == granted).await;
}

/// What a lease keeps under a lock is bounded.
#[tokio::test]
async fn keys_of_more_than_four_kilobytes_are_not_leased() {
    let time = clock();
    let leased = store(&time).leased(Lease::at_most(UNITS).lasting(LIFE).clock(&time));
    let policy = policy("long");
    for (bytes, is_leased) in [(4_000, true), (5_000, false), (400_000, false)] {
        let key = Key::from("k".repeat(bytes));
        for _ in 0..20 {
            assert_eq!(ask(&leased, &policy, &key).await, Some(true));
        }
        assert_eq!(leased.held(&policy, &key).is_some(), is_leased, "{bytes} bytes");
    }
}
