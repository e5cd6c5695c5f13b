//! Leases in runtimes that end, in none, and around resets, over a real Redis.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tollgate::failure::CircuitState;
use tollgate::scale::Leases;
use tollgate::store::{Check, Grant, Reply, Store, Times, Verdict};
use tollgate::{Algorithm, CircuitBreaker, Key, Lease, ManualClock, MemoryStore, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Connection, Failing, Fault, Later, at_hand, clock, store};

use crate::scale::{connect, shared};

const LIMIT: u64 = 1_000;
const UNITS: u64 = 50;
const LIFE: Duration = Duration::from_millis(250);

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

fn policy(name: &str) -> Policy {
    Policy::new(name, Quota::per_day(LIMIT)).with_algorithm(Algorithm::FIXED_WINDOW)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// What the store inside has granted of a quota that does not come back.
async fn used<S: Store>(store: &S, policy: &Policy, key: &Key) -> u64 {
    let look = store.acquire(&[Check::new(policy, key, 1)], Times::LOOK).wait().await;
    let Ok(verdict) = look else { panic!("the store answers") };
    LIMIT - verdict.each()[0].remaining()
}

fn in_memory(time: &ManualClock) -> Leases<Later> {
    let lease = Lease::at_most(UNITS).lasting(LIFE).clock(time);
    Later::deciding_first(store(time)).leased(lease)
}

async fn ask<S: Store>(store: &S, policy: &Policy, key: &Key) -> Verdict {
    match store.acquire(&[Check::new(policy, key, 1)], Times::ONCE).wait().await {
        Ok(verdict) => verdict,
        Err(_) => panic!("the store answers"),
    }
}

/// The task that returns leases ends with its runtime, begun or not. The next runtime needs
/// another.
#[test]
fn a_second_runtime_returns_what_is_left_by_the_first() {
    let time = clock();
    let leased = in_memory(&time);
    let (policy, key) = (policy("runtimes"), Key::from("ada"));
    for n in 0..5 {
        let runtime = runtime();
        runtime.block_on(async {
            for _ in 0..20 {
                ask(&leased, &policy, &key).await;
                // Different numbers of tasks have begun when the runtime ends.
                for _ in 0..n {
                    tokio::task::yield_now().await;
                }
            }
        });
        drop(runtime);
        time.advance(2 * LIFE);
    }
    runtime().block_on(async {
        let returned = async {
            while leased.stats().fetches < 100 && leased.stats().refunds == 0 {
                ask(&leased, &policy, &key).await;
                time.advance(LIFE / 20);
                sleep(Duration::from_millis(1)).await;
            }
            time.advance(2 * LIFE);
            while leased.stats().held_units > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, returned).await.expect("unused units are refunded");
    });
}

/// A fetch is lost with its runtime: its units are charged, and never spent.
#[test]
fn a_runtime_that_ends_with_fetches_on_their_way_grants_nothing_twice() {
    let time = clock();
    let leased = in_memory(&time);
    let (policy, key) = (policy("ending"), Key::from("ada"));
    let mut granted = 0;
    for _ in 0..20 {
        runtime().block_on(async {
            for _ in 0..7 {
                granted += u64::from(ask(&leased, &policy, &key).await.times());
            }
        });
        time.advance(LIFE);
    }
    let used = runtime().block_on(used(leased.get_ref(), &policy, &key));
    assert!(leased.stats().fetches > 0);
    assert!(granted <= used, "{granted} granted, {used} charged");
}

#[test]
fn without_a_runtime_the_store_decides_each_request() {
    let leased = MemoryStore::new().leased(Lease::default());
    let (policy, key) = (policy("no runtime"), Key::from("ada"));
    for n in 0..2 * LIMIT {
        let check = [Check::new(&policy, &key, 1)];
        let Reply::Now(Ok(verdict)) = leased.acquire(&check, Times::ONCE) else { unreachable!() };
        assert_eq!(verdict.is_granted(), n < LIMIT, "request {n}");
    }
    assert_eq!(leased.stats().fetches, 0);
}

/// Asks until a lease is held.
async fn lease<S: Store>(leased: &Leases<S>, policy: &Policy, key: &Key) {
    let held = async {
        while leased.held(policy, key).is_none() {
            ask(leased, policy, key).await;
        }
    };
    timeout(PATIENCE, held).await.expect("a key in demand is leased");
}

#[tokio::test]
async fn a_reset_drops_what_is_held_and_what_is_on_its_way() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let leased = connect(&server).await.leased(Lease::at_most(UNITS).lasting(20 * LIFE));
    let (policy, key) = (policy("reset"), Key::from("ada"));
    lease(&leased, &policy, &key).await;
    let before = leased.stats().fetches;
    let fetching = async {
        while leased.stats().fetches == before {
            ask(&leased, &policy, &key).await;
        }
    };
    timeout(PATIENCE, fetching).await.expect("it is fetched before it runs dry");
    // The fetch is on its way: this runtime has one thread, which has not polled it.
    leased.reset(&key, &[&policy]).await.unwrap();
    sleep(LIFE).await;
    assert_eq!(leased.held(&policy, &key), None, "units of a state that is gone");
    let mut granted = 0;
    while ask(&leased, &policy, &key).await.is_granted() {
        granted += 1;
    }
    assert!(granted <= LIMIT, "{granted} granted after a reset");
    assert!(granted + UNITS >= LIMIT, "{granted} granted after a reset");
}

/// Asks until a fetch is sent.
async fn fetch<S: Store>(leased: &Leases<S>, policy: &Policy, key: &Key) {
    let before = leased.stats().fetches;
    while leased.stats().fetches == before {
        ask(leased, policy, key).await;
    }
}

/// The answers of a slow store: each fetch is answered after the life of its lease. The demand goes
/// on, and every late lease is refunded.
#[tokio::test]
async fn a_lease_that_arrives_after_its_life_is_refunded() {
    let time = clock();
    let leased = in_memory(&time);
    let (policy, key) = (policy("late"), Key::from("ada"));
    let mut granted = 0;
    for _ in 0..30 {
        for _ in 0..5 {
            granted += u64::from(ask(&leased, &policy, &key).await.times());
        }
        time.advance(LIFE + LIFE / 4);
    }
    assert!(leased.stats().fetches > 3, "{:?}", leased.stats());
    time.advance(LIFE);
    let refunded = async {
        while used(leased.get_ref(), &policy, &key).await != granted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, refunded).await.expect("exactly what was granted stays charged");
}

/// Units of one lease are charged together. A refund of some of them returns only what is still
/// owed of these.
#[tokio::test]
async fn a_refund_of_leased_units_returns_no_unit_that_time_has_refilled() {
    let time = clock();
    let inside = store(&time);
    let leased = inside.clone().leased(Lease::at_most(200).lasting(LIFE).clock(&time));
    let (policy, key) = (Policy::new("bucket", Quota::per_second(10).burst(20_000)), Key::from("ada"));
    let mut stamps = Vec::new();
    for _ in 0..2_000 {
        stamps.push(ask(&leased, &policy, &key).await.each()[0].stamp());
    }
    assert!(leased.stats().leased_units() > 500, "{:?}", leased.stats());
    time.advance(2 * LIFE);
    let returned = async {
        while leased.stats().held_units > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, returned).await.expect("unused units are refunded");
    // Until the debt is less than the last units that were taken.
    let up_to = |units| at_hand(inside.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(units)));
    let owed = 20_000
        - at_hand(inside.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK)).unwrap().each()[0]
            .remaining();
    time.advance(Duration::from_millis(100 * owed.saturating_sub(5)));
    let others = up_to(20_000).unwrap().times();
    for stamp in stamps {
        let grant = Grant { policy: &policy, key: &key, units: 1, stamp, share: None };
        leased.refund(&[grant]).await.unwrap();
    }
    let more = up_to(20_000).unwrap().times();
    assert!(others + more <= 20_000, "{others} and {more} at one moment");
}

/// A lease for fewer would cost more round trips than it saves.
#[tokio::test]
async fn a_key_with_two_requests_in_the_life_of_a_lease_is_not_leased() {
    for (requests, is_leased) in [(2, false), (6, true)] {
        let time = clock();
        let leased = store(&time).leased(Lease::at_most(UNITS).lasting(LIFE).clock(&time));
        let (policy, key) = (policy("lukewarm"), Key::from("ada"));
        for _ in 0..10 * requests {
            ask(&leased, &policy, &key).await;
            time.advance(LIFE / requests);
        }
        assert_eq!(leased.stats().fetches > 0, is_leased, "{requests} requests");
    }
}

/// Its units could not serve the next request, and end before it comes.
#[tokio::test]
async fn a_key_with_one_large_request_in_many_lives_is_not_leased() {
    let time = clock();
    let leased = store(&time).leased(Lease::at_most(1_000).lasting(LIFE).clock(&time));
    let policy = Policy::new("large", Quota::per_second(1_000_000));
    let key = Key::from("ada");
    for _ in 0..20 {
        let Ok(verdict) = leased.acquire(&[Check::new(&policy, &key, 100)], Times::ONCE).wait().await;
        assert!(verdict.is_granted());
        time.advance(20 * LIFE);
    }
    assert_eq!(leased.stats().fetches, 0);
}

/// As after a change of a tier.
#[tokio::test]
async fn a_new_quota_is_leased_after_a_fetch_of_the_old_one_brought_nothing() {
    let time = clock();
    let inside = store(&time);
    let lease = Lease::at_most(UNITS).lasting(LIFE).clock(&time);
    let leased = Later::deciding_last(inside.clone()).leased(lease);
    let (policy, key) = (policy("tiers"), Key::from("ada"));
    fetch(&leased, &policy, &key).await;
    // Others use up the quota before the fetch arrives.
    let rest = LIMIT - used(&inside, &policy, &key).await;
    assert!(matches!(inside.acquire(&[Check::new(&policy, &key, rest)], Times::ONCE), Reply::Now(Ok(_))));
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert_eq!(leased.stats().fetched_units, 0);
    let raised = Policy::new("tiers", Quota::per_day(10 * LIMIT)).with_algorithm(Algorithm::FIXED_WINDOW);
    for _ in 0..100 {
        time.advance(LIFE / 10);
        ask(&leased, &raised, &key).await;
    }
    assert!(leased.stats().fetched_units > 0, "{:?}", leased.stats());
}

/// The request is decided before the reset, and answered after it was sent.
#[tokio::test]
async fn a_lease_fetched_while_a_reset_is_on_its_way_is_dropped() {
    let time = clock();
    let leased = in_memory(&time);
    let (policy, key) = (policy("resetting"), Key::from("ada"));
    let check = [Check::new(&policy, &key, 1)];
    for _ in 0..3 {
        ask(&leased, &policy, &key).await;
    }
    let asked = leased.acquire(&check, Times::ONCE);
    let reset = leased.reset(&key, &[&policy]);
    assert!(asked.wait().await.unwrap().is_granted());
    assert_eq!(leased.stats().fetches, 1, "the lease is fetched after the answer");
    while leased.held(&policy, &key).is_none() {
        tokio::task::yield_now().await;
    }
    reset.await.unwrap();
    assert_eq!(leased.held(&policy, &key), None, "units of a state that is gone");
}

#[tokio::test]
async fn a_set_of_several_rules_spends_a_lease_of_each_or_none() {
    let store: RedisStore = connect(shared()).await;
    let leased = store.clone().leased(Lease::at_most(UNITS).lasting(LIFE));
    let (many, few) = (policy("many"), policy("few"));
    let few = Policy::new(few.name(), Quota::per_day(LIMIT / 2)).with_algorithm(Algorithm::FIXED_WINDOW);
    let (ada, all) = (Key::from("ada"), Key::from("all"));
    let set = [Check::new(&many, &ada, 1), Check::new(&few, &all, 2)];
    let mut granted = 0;
    loop {
        let verdict = leased.acquire(&set, Times::ONCE).wait().await.unwrap();
        assert_eq!(verdict.each().len(), 2);
        if !verdict.is_granted() {
            break;
        }
        granted += u64::from(verdict.times());
    }
    assert!(leased.stats().leased_units() > 100, "{:?}", leased.stats());
    assert!(granted <= LIMIT / 4, "{granted} granted of {}", LIMIT / 4);
    assert!(granted + UNITS >= LIMIT / 4, "{granted} granted of {}", LIMIT / 4);
    let returned = async {
        while leased.stats().held_units > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        // Until the refunds have arrived.
        while used(&store, &many, &ada).await != granted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, returned).await.expect("exactly what was granted stays charged");
}

/// The circuit opens while units are held. Each opening used to cost them until the window's end.
#[tokio::test]
async fn units_unspent_while_the_circuit_is_open_are_refunded_later() {
    for is_reset in [false, true] {
        refunded_after_an_open_circuit(is_reset).await;
    }
}

/// After a reset of the key nothing is refunded: its units are those of others.
async fn refunded_after_an_open_circuit(is_reset: bool) {
    let time = clock();
    let inside = Failing::new(store(&time), Connection::Works);
    let settings = CircuitBreaker::default().failures_in_a_row(1).clock(&time);
    let circuit = inside.clone().circuit_breaker(settings);
    let view = circuit.circuit();
    let leased = circuit.leased(Lease::at_most(UNITS).lasting(LIFE).clock(&time));
    // After a reset it is in the same window, and a refund from before would count.
    let policy = policy("held").with_algorithm(Algorithm::FIXED_WINDOW_ALIGNED);
    let (key, other) = (Key::from("ada"), Key::from("bob"));
    let ask = async |key: &Key| {
        let granted = leased.acquire(&[Check::new(&policy, key, 1)], Times::ONCE).wait().await;
        u64::from(granted.is_ok_and(|verdict| verdict.is_granted()))
    };
    let mut spent = 0;
    while leased.held(&policy, &key).is_none() {
        spent += ask(&key).await;
    }
    inside.set(Connection::Fails(Fault::Unreachable));
    assert_eq!((ask(&other).await, view.state()), (0, CircuitState::Open));
    time.advance(LIFE);
    within(PATIENCE, "the lease is ended", async || leased.stats().held_units == 0).await;
    inside.set(Connection::Works);
    time.advance(Duration::from_secs(10));
    spent += ask(&key).await;
    assert_eq!(view.state(), CircuitState::Closed);
    if is_reset {
        leased.reset(&key, &[&policy]).await.unwrap();
        while used(&inside, &policy, &key).await < 30 {
            ask(&key).await;
        }
        spent = used(&inside, &policy, &key).await;
        // Longer than until units are refunded again.
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(used(&inside, &policy, &key).await, spent);
        return;
    }
    let refunded = async || used(&inside, &policy, &key).await == spent;
    within(PATIENCE, "what was not spent is refunded", refunded).await;
}

/// Waits until that is so.
async fn within(patience: Duration, what: &str, is_so: impl AsyncFn() -> bool) {
    let waited = timeout(patience, async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("in time: {what}"));
}
