//! Charges that are settled while the store fails.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::failure::CircuitState;
use tollgate::failure::{Answering, ByShare, Guarded};
use tollgate::store::NeverFails;

use tollgate::store::Settled;
use tollgate::{
    Algorithm, Charge, CircuitBreaker, Key, Limiter, ManualClock, MemoryStore, Outcome, Share, StoreExt,
    Timestamp,
};
use tollgate_tests::{Connection, Failing, Fault, a_minute, clock, store, timed};

use crate::failure::{FAILURES, TIMEOUT, closed, failing, open};

const HALF: Share = Share::new(1, 2);

fn limiter<S: tollgate::store::Store<Error: NeverFails>>(store: S) -> Limiter<S> {
    Limiter::new([a_minute("tokens", Algorithm::SLIDING_LOG, 1_000)]).store(store)
}

async fn reserve<S: tollgate::store::Store<Error: NeverFails>>(limiter: &Limiter<S>, units: u64) -> Charge {
    let mut permit = limiter.check(&Key::from("ada"), units).await.unwrap();
    permit.charge("tokens")
}

async fn left<S: tollgate::store::Store<Error: NeverFails>>(limiter: &Limiter<S>) -> u64 {
    limiter.look(&Key::from("ada")).await.unwrap().statuses()[0].remaining()
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_the_estimate_and_says_so() {
    let refused = Connection::Fails(Fault::Refused);
    for failure in FAILURES.into_iter().chain([refused]) {
        for policy in [open, closed] {
            let inner = failing(Connection::Works);
            let limiter = limiter(policy(&inner));
            for (total, charged, unknown) in [(137, 137, 263), (450, 400, 50)] {
                let charge = reserve(&limiter, 400).await;
                inner.set(failure);
                let expected = if failure == refused {
                    Settled { charged: 400, forgiven: total.max(400) - 400, ..Settled::default() }
                } else {
                    Settled { charged, unknown, ..Settled::default() }
                };
                assert_eq!(charge.settle(total).await, expected, "{failure:?}");
                inner.set(Connection::Works);
            }
            assert_eq!(left(&limiter).await, 200, "{failure:?}");
        }
    }
}

/// The handler waits no longer than the timeout, and the charge is made nevertheless.
#[tokio::test(start_paused = true)]
async fn a_stall_forgives_nothing_of_what_exceeds_the_estimate() {
    for settles in [true, false] {
        let inner = failing(Connection::Works);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ends = Arc::clone(&seen);
        let limiter = limiter(closed(&inner)).observe(move |decision| {
            if let Outcome::Settled | Outcome::Forgiven | Outcome::Unknown = decision.outcome() {
                ends.lock().unwrap().push((decision.outcome(), decision.units()));
            }
        });
        let charge = reserve(&limiter, 400).await;
        inner.set(Connection::IsSlow(4 * TIMEOUT));
        if settles {
            let (settled, waited) = timed(charge.settle(450)).await;
            assert_eq!(settled, Settled { charged: 400, unknown: 50, ..Settled::default() });
            assert_eq!(waited, TIMEOUT);
        } else {
            charge.used(450);
            drop(charge);
        }
        tokio::time::sleep(5 * TIMEOUT).await;
        inner.set(Connection::Works);
        assert_eq!(left(&limiter).await, 550);
        assert_eq!(*seen.lock().unwrap(), [(Outcome::Settled, 450)]);
    }
}

/// Observers hear of it when no answer is expected any more.
#[tokio::test(start_paused = true)]
async fn a_correction_that_is_never_answered_is_unknown() {
    let inner = failing(Connection::Works);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let ends = Arc::clone(&seen);
    let limiter = limiter(open(&inner)).observe(move |decision| {
        ends.lock().unwrap().push((decision.outcome(), decision.units()));
    });
    for used in [450, 137] {
        inner.set(Connection::Works);
        let charge = reserve(&limiter, 400).await;
        inner.set(Connection::IsSilent);
        seen.lock().unwrap().clear();
        charge.used(used);
        drop(charge);
        tokio::time::sleep(Duration::from_secs(61)).await;
        let expected = [(Outcome::Settled, used.min(400)), (Outcome::Unknown, used.abs_diff(400))];
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}

/// Without requests there is no probe.
#[tokio::test(start_paused = true)]
async fn a_quiet_node_corrects_charges_after_an_outage() {
    let (inner, time) = (failing(Connection::Works), ManualClock::new(Timestamp::from_micros(1)));
    let settings = CircuitBreaker::default().failures_in_a_row(1).clock(&time);
    let breaker = inner.clone().timeout(TIMEOUT).circuit_breaker(settings);
    let circuit = breaker.circuit();
    let limiter = limiter(breaker.fail_closed());
    let charges = [reserve(&limiter, 100).await, reserve(&limiter, 100).await, reserve(&limiter, 100).await];
    inner.set(FAILURES[0]);
    assert!(limiter.check(&Key::from("ada"), 1).await.is_err());
    assert_eq!(circuit.state(), CircuitState::Open);
    inner.set(Connection::Works);
    let [during, less, more] = charges;
    let asked = inner.asked();
    assert_eq!(during.settle(150).await, Settled { charged: 100, forgiven: 50, ..Settled::default() });
    assert_eq!(inner.asked(), asked, "the circuit refuses");
    time.advance(Duration::from_secs(10));
    assert_eq!(less.settle(20).await, Settled { charged: 20, ..Settled::default() });
    assert_eq!(more.settle(150).await, Settled { charged: 150, ..Settled::default() });
    assert_eq!(circuit.state(), CircuitState::Open, "they are no probes");
    assert_eq!(left(&limiter).await, 730);
}

/// The store knows nothing of what passed open, so nothing of it is charged or given back.
#[tokio::test(start_paused = true)]
async fn what_passed_open_is_forgiven() {
    for failure in FAILURES {
        let inner = failing(failure);
        let limiter = limiter(open(&inner));
        let charge = reserve(&limiter, 400).await;
        inner.set(Connection::Works);
        charge.extend(100).await.unwrap();
        assert_eq!(
            charge.settle(450).await,
            Settled { charged: 50, debt: 0, forgiven: 400, ..Settled::default() },
            "{failure:?}"
        );
        assert_eq!(left(&limiter).await, 950, "only the extension was charged");
    }
}

/// Units are used in the order of their grants.
#[tokio::test(start_paused = true)]
async fn what_passed_open_and_was_not_used_takes_nothing_from_the_charge() {
    let inner = failing(Connection::Works);
    let limiter = limiter(open(&inner));
    let charge = reserve(&limiter, 400).await;
    inner.set(FAILURES[0]);
    charge.extend(400).await.unwrap();
    inner.set(Connection::Works);
    assert_eq!(
        charge.settle(400).await,
        Settled { charged: 400, debt: 0, forgiven: 0, ..Settled::default() }
    );
    assert_eq!(left(&limiter).await, 600);
}

fn with_a_half(inner: &Failing, fallback: &MemoryStore) -> Answering<Guarded<Failing>, ByShare<MemoryStore>> {
    inner.clone().timeout(TIMEOUT).fall_back_to(fallback.clone(), HALF)
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_in_the_store_that_made_it() {
    for failure in FAILURES {
        let (inner, fallback) = (failing(failure), store(&clock()));
        let whole = limiter(with_a_half(&inner, &fallback));
        let charge = reserve(&whole, 400).await;
        inner.set(Connection::Works);
        assert_eq!(
            charge.settle(700).await,
            Settled { charged: 700, debt: 200, forgiven: 0, ..Settled::default() },
            "{failure:?}"
        );
        assert_eq!(left(&whole).await, 1_000, "the store was not charged");
        let share = a_minute("tokens", Algorithm::SLIDING_LOG, 500);
        assert_eq!(left(&Limiter::new([share]).store(fallback)).await, 0, "the fallback is owed 200");
    }
}

/// A stream may be extended by the fallback, and outlive the outage.
#[tokio::test(start_paused = true)]
async fn a_charge_of_both_stores_is_settled_from_the_newest_backwards() {
    for (total, of_store, of_fallback) in [(650, 600, 250), (550, 600, 350), (250, 750, 500), (0, 1_000, 500)]
    {
        let (inner, fallback) = (failing(Connection::Works), store(&clock()));
        let whole = limiter(with_a_half(&inner, &fallback));
        let charge = reserve(&whole, 400).await;
        inner.set(FAILURES[0]);
        charge.extend(200).await.unwrap();
        inner.set(Connection::Works);
        let settled = charge.settle(total).await;
        assert_eq!(settled, Settled { charged: total, debt: 0, forgiven: 0, ..Settled::default() });
        let share = a_minute("tokens", Algorithm::SLIDING_LOG, 500);
        let of_share = Limiter::new([share]).store(fallback);
        assert_eq!((left(&whole).await, left(&of_share).await), (of_store, of_fallback), "{total}");
    }
}

/// Streams that end during an outage are no decisions: they do not keep the circuit open, and none
/// of them opens it.
#[tokio::test(start_paused = true)]
async fn settling_never_counts_for_the_circuit() {
    let inner = failing(Connection::Works);
    let breaker = inner.clone().timeout(TIMEOUT).circuit_breaker(CircuitBreaker::default());
    let circuit = breaker.circuit();
    let limiter = limiter(breaker.fail_closed());
    let mut charges = Vec::new();
    for _ in 0..80 {
        charges.push(reserve(&limiter, 1).await);
    }
    inner.set(Connection::IsSilent);
    for charge in charges {
        charge.used(0);
        drop(charge);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(circuit.state(), CircuitState::Closed);
}
