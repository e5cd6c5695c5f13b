//! How charges end: in a task, outside of a runtime, with their runtime, and in several layers.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tokio::runtime::Builder;
use tollgate::charge::{Charges, ResponseHead};
use tollgate::store::Settled;
use tollgate::store::{NeverFails, Store};
use tollgate::{Charge, Head, Key, Limiter, Outcome, Policy, PolicyExt, Quota, RequestLimiter, StoreExt};
use tollgate_tests::{Later, clock, poll_once, store};

fn limiter<S: Store<Error: NeverFails>>(store: S) -> Limiter<S> {
    Limiter::new([Policy::new("tokens", Quota::per_minute(1_000))]).store(store)
}

async fn reserve<S: Store<Error: NeverFails>>(limiter: &Limiter<S>) -> Charge {
    let mut permit = limiter.check(&Key::from("ada"), 500).await.unwrap();
    permit.charge("tokens")
}

async fn left<S: Store<Error: NeverFails>>(limiter: &Limiter<S>) -> u64 {
    limiter.look(&Key::from("ada")).await.unwrap().statuses()[0].remaining()
}

#[tokio::test(start_paused = true)]
async fn settling_goes_on_if_the_caller_leaves() {
    for total in [137, 700] {
        let limiter = limiter(Later::deciding_last(store(&clock())));
        let charge = reserve(&limiter).await;
        poll_once(charge.settle(total)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(left(&limiter).await, 1_000 - total);
        assert_eq!(charge.settle(0).await, Settled::default());
    }
}

/// The last clone of a charge may be dropped by a thread of its own.
#[test]
fn a_charge_that_is_dropped_outside_of_a_runtime_uses_its_own() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let limiter = limiter(Later::deciding_last(store(&clock())));
    let charge = runtime.block_on(reserve(&limiter));
    charge.used(137);
    std::thread::spawn(move || drop(charge)).join().unwrap();
    let settled = async {
        while left(&limiter).await != 863 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), settled).await }).unwrap();
}

#[test]
fn if_the_runtime_is_gone_the_estimate_stays_and_observers_hear_of_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let limiter = limiter(Later::deciding_last(store(&clock())))
        .observe(move |decision| sees.lock().unwrap().push((decision.outcome(), decision.units())));
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    for (used, expected) in [(137, (137, 363)), (700, (500, 200))] {
        let first = runtime();
        let charge = first.block_on(reserve(&limiter));
        charge.used(used);
        drop(first);
        seen.lock().unwrap().clear();
        drop(charge);
        // The correction was begun, so the limiter does not know that the store has none of it.
        let (settled, unknown) = expected;
        assert_eq!(*seen.lock().unwrap(), [(Outcome::Settled, settled), (Outcome::Unknown, unknown)]);
    }
    assert_eq!(runtime().block_on(left(&limiter)), 0);
}

/// A store in memory needs no runtime.
#[test]
fn a_charge_of_a_store_in_memory_needs_no_runtime() {
    let limiter = limiter(store(&clock()));
    let now = |future| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(future)
    };
    let charge = now(Box::pin(reserve(&limiter)) as std::pin::Pin<Box<dyn Future<Output = Charge>>>);
    charge.used(1);
    let clones: Vec<Charge> = (0..3).map(|_| charge.clone()).collect();
    drop(charge);
    drop(clones);
    let runtime = Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(left(&limiter)), 999);
}

/// What was taken out of a permit is not refunded with it, and is taken once.
#[tokio::test]
async fn a_policy_is_taken_out_of_a_permit_once() {
    let policies = ["calls", "tokens"].map(|name| Policy::new(name, Quota::per_minute(100)));
    let limiter = Limiter::new(policies).store(store(&clock()));
    let ada = Key::from("ada");
    let mut permit = limiter.check(&ada, 10).await.unwrap();
    let charge = permit.charge("tokens");
    let again = permit.charge("tokens");
    assert_eq!((charge.reserved(), again.reserved()), (10, 0));
    assert_eq!(again.settle(50).await, Settled { charged: 0, debt: 0, forgiven: 50, ..Settled::default() });
    permit.refund().await;
    let left = async || {
        limiter
            .look(&ada)
            .await
            .unwrap()
            .statuses()
            .iter()
            .map(|status| status.remaining())
            .collect::<Vec<_>>()
    };
    assert_eq!(left().await, [100, 90]);
    charge.settle(1).await;
    assert_eq!(left().await, [100, 99]);
    assert!(format!("{charge:?} {:?}", Charges::default()).contains("tokens"));
}

/// "Pay afterwards": a cost of 0 passes, and what was used is charged all the same.
#[tokio::test]
async fn a_permit_that_cost_nothing_is_charged_what_was_used() {
    let limiter = limiter(store(&clock()));
    let mut permit = limiter.check(&Key::from("ada"), 0).await.unwrap();
    let charge = permit.charge("tokens");
    assert!(charge.extend(2_000).await.is_err());
    assert_eq!(charge.settle(137).await, Settled { charged: 137, ..Settled::default() });
    assert_eq!(left(&limiter).await, 863);
}

#[tokio::test]
async fn what_was_taken_out_of_a_permit_is_not_settled_by_the_response() {
    let rule = |name: &str| {
        let policy = Policy::new(name, Quota::per_minute(1_000));
        policy.by(|_: &Head<'_>| Some(Key::from("ada"))).cost(|_| 500).cost_by(|_| 137)
    };
    let limiter = RequestLimiter::new([rule("a"), rule("b")]).store(store(&clock()));
    let request = Request::new(());
    let mut permit = limiter.check(&Head::from(&request)).await.unwrap();
    permit.charge("a").settle(200).await;
    permit.settle_by(&ResponseHead::from(&Response::new(())));
    let report = limiter.look(&Head::from(&request)).await.unwrap();
    assert_eq!([0, 1].map(|n| report.statuses()[n].remaining()), [800, 863]);
}

/// A timer of a runtime that has stopped panics.
#[test]
fn a_charge_behind_a_timeout_outlives_its_runtime() {
    let store = Later::deciding_last(store(&clock())).timeout(Duration::from_secs(1)).fail_open();
    let limiter = limiter(store);
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime();
    let charge = first.block_on(reserve(&limiter));
    charge.used(1);
    drop(first);
    drop(charge);
    assert_eq!(runtime().block_on(left(&limiter)), 500, "the estimate stays");
}

/// Each charge of a thousand that settle at once is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_that_settle_at_once_are_each_counted() {
    let limiter = Limiter::new([Policy::new("tokens", Quota::per_day(1_000_000))]).store(store(&clock()));
    let tasks: tokio::task::JoinSet<_> = (0..1_000_u64)
        .map(|n| {
            let limiter = limiter.clone();
            async move {
                let mut permit = limiter.check(&Key::from("ada"), 100).await.unwrap();
                let charge = permit.charge("tokens");
                match n % 3 {
                    0 => drop(charge.settle(n % 200).await),
                    1 => charge.used(n % 200),
                    _ => drop(charge),
                }
                if n % 3 == 2 { 100 } else { n % 200 }
            }
        })
        .collect();
    let used: u64 = tasks.join_all().await.into_iter().sum();
    let status = limiter.look(&Key::from("ada")).await.unwrap().statuses()[0];
    assert_eq!(status.remaining(), 1_000_000 - used);
}
