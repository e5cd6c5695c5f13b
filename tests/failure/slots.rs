//! Slots while the store fails.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use tollgate::failure::CircuitState;
use tollgate::store::{
    Check, End, Grant, Renewal, RenewalReport, Reply, Source, Stamp, Store, Times, Verdict, renewals,
};
use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys};
use tollgate::{CircuitBreaker, Key, Lease, Limiter, MemoryStore, Policy, Quota, Reason, Share, StoreExt};
use tollgate_tests::{Connection, clock, poll_once, store, timed};

use crate::failure::{FAILURES, TIMEOUT, closed, failing, open};

fn exports() -> Policy {
    Policy::in_flight("exports", 4)
}

/// A grant of a slot in this store.
async fn claim<'a, S: Store>(store: &S, policy: &'a Policy, key: &'a Key) -> Option<Grant<'a>> {
    let verdict = store.acquire(&[Check::new(policy, key, 1)], Times::ONCE).wait().await.ok()?;
    let stamp = verdict.each().first()?.stamp();
    verdict.is_granted().then_some(Grant { policy, key, units: 1, stamp, share: verdict.share() })
}

#[tokio::test(start_paused = true)]
async fn a_request_passes_open_without_a_slot_and_loses_none() {
    for failure in FAILURES {
        let inner = failing(failure);
        let limiter = Limiter::new([exports()]).store(open(&inner));
        let mut permits = Vec::new();
        for _ in 0..10 {
            permits.push(limiter.check(&Key::from("ada"), 1).await.unwrap());
        }
        inner.set(Connection::Works);
        assert!(permits.iter().all(|permit| !permit.slot().is_lost()));
        let free = async || limiter.look(&Key::from("ada")).await.unwrap().statuses()[0].remaining();
        assert_eq!(free().await, 4, "{failure:?}");
        drop(permits);
        assert_eq!(free().await, 4, "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_refused_closed() {
    for failure in FAILURES {
        let limiter = Limiter::new([exports()]).store(closed(&failing(failure)));
        let denial = limiter.check(&Key::from("ada"), 1).await.unwrap_err();
        assert_eq!((denial.reason(), denial.retry_after_seconds()), (Reason::Unavailable, Some(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_says_so() {
    for failure in FAILURES {
        for on_failure in [open, closed] {
            let inner = failing(Connection::Works);
            let (store, policy, key) = (on_failure(&inner), exports(), Key::from("ada"));
            let slot = claim(&store, &policy, &key).await.unwrap();
            assert_eq!(renewals(&store, &[slot, slot]).await, Ok(vec![Renewal::Held; 2]));
            inner.set(failure);
            assert_eq!(
                renewals(&store, &[slot, slot]).await,
                Ok(vec![Renewal::Unanswered; 2]),
                "{failure:?}"
            );
        }
    }
}

/// Neither renewals nor releases count: only requests show whether the store works.
#[tokio::test(start_paused = true)]
async fn renewals_do_not_open_a_circuit_and_are_not_asked_of_an_open_one() {
    let inner = failing(Connection::Works);
    let breaker = inner.clone().timeout(TIMEOUT).circuit_breaker(CircuitBreaker::default());
    let circuit = breaker.circuit();
    let (policy, key) = (exports(), Key::from("ada"));
    let slot = claim(&breaker, &policy, &key).await.unwrap();
    inner.set(FAILURES[0]);
    for _ in 0..100 {
        assert!(renewals(&breaker, &[slot]).await.is_err());
        assert!(breaker.refund(&[slot]).await.is_err());
    }
    assert_eq!(circuit.state(), CircuitState::Closed);
    while circuit.state() == CircuitState::Closed {
        assert!(claim(&breaker, &policy, &key).await.is_none());
    }
    let asked = inner.asked();
    assert!(renewals(&breaker, &[slot]).await.is_err());
    assert_eq!(inner.asked(), asked);
}

#[tokio::test(start_paused = true)]
async fn each_slot_is_renewed_and_released_in_the_store_that_granted_it() {
    let (inner, fallback) = (failing(Connection::Works), store(&clock()));
    let both = inner.clone().timeout(TIMEOUT).fall_back_to(fallback, Share::new(1, 2));
    let (policy, key) = (exports(), Key::from("ada"));
    let of_store = claim(&both, &policy, &key).await.unwrap();
    inner.set(FAILURES[0]);
    let of_share = [claim(&both, &policy, &key).await.unwrap(), claim(&both, &policy, &key).await.unwrap()];
    assert!(claim(&both, &policy, &key).await.is_none(), "half of four");
    let renewed = renewals(&both, &[of_share[0], of_store, of_share[1]]).await.unwrap();
    assert_eq!(renewed, [Renewal::Held, Renewal::Unanswered, Renewal::Held]);
    both.refund(&[of_share[0]]).await.unwrap();
    both.refund(&[of_share[0]]).await.unwrap();
    assert!(claim(&both, &policy, &key).await.is_some());
    assert!(claim(&both, &policy, &key).await.is_none(), "a second release frees nothing");
    inner.set(Connection::Works);
    assert_eq!(renewals(&both, &[of_store]).await, Ok(vec![Renewal::Held]));
    both.refund(&[of_store]).await.unwrap();
    for _ in 0..4 {
        assert!(claim(&both, &policy, &key).await.is_some());
    }
    assert!(claim(&both, &policy, &key).await.is_none());
}

#[tokio::test]
async fn a_denial_for_want_of_a_slot_is_not_remembered() {
    let store = MemoryStore::new();
    let limiter = |policies: Vec<Policy>| Limiter::new(policies).store(store.clone().deny_cache(100));
    let rate = Policy::new("rate", Quota::per_day(2));
    let (cached, key) = (limiter(vec![exports(), rate]), Key::from("ada"));
    let direct = Limiter::new([exports()]).store(store.clone());
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(direct.check(&key, 1).await.unwrap());
    }
    assert!(cached.check(&key, 1).await.is_err());
    held.pop();
    drop(cached.check(&key, 1).await.unwrap());
    drop(cached.check(&key, 1).await.unwrap());
    let denial = cached.check(&key, 1).await.unwrap_err();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["rate"]);
    let source = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&source);
    let observed = cached.observe(move |decision| *seen.lock().unwrap() = Some(decision.source()));
    assert!(observed.check(&key, 1).await.is_err());
    assert_eq!(*source.lock().unwrap(), Some(Source::DenyCache), "the rate is remembered");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_waits_for_a_release_no_longer_than_the_timeout() {
    let inner = failing(Connection::Works);
    let limiter = Limiter::new([Policy::in_flight("one", 1)]).store(closed(&inner));
    let ada = Key::from("ada");
    let permit = limiter.check(&ada, 1).await.unwrap();
    // Its release is not answered, but the refusal of the next request is.
    inner.set(Connection::IsSilent);
    drop(permit);
    inner.set(Connection::IsSlow(TIMEOUT / 2));
    let asked = inner.asked();
    let (refused, waited) = timed(limiter.check(&ada, 1)).await;
    assert_eq!((refused.unwrap_err().reason(), waited), (Reason::QuotaExceeded, TIMEOUT));
    assert_eq!(inner.asked() - asked, 1, "it is not asked again before the release");
}

/// A store with two nodes, of which only that of Ada answers.
#[derive(Clone)]
struct Nodes(MemoryStore);

impl Store for Nodes {
    type Error = Infallible;
    type Acquire = <MemoryStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        self.0.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.0.refund(grants)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<> {
        let of_ada = grants.iter().position(|grant| *grant.key == Key::from("ada"));
        async move {
            of_ada.into_iter().for_each(|at| report(at, Renewal::Held));
            pending().await
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.0.reset(key, policies)
    }
}

/// Otherwise the slots of one node are lost with those of another.
#[tokio::test]
async fn each_wrapper_reports_renewals_as_they_come() {
    async fn reported(store: &impl Store) -> Vec<(usize, Renewal)> {
        let (slots, keys) = (Policy::in_flight("slots", 5), ["bob", "ada"].map(Key::from));
        let grants = keys.each_ref().map(|key| {
            let stamp = Stamp::new(1, 1);
            Grant { policy: &slots, key, units: 1, stamp, share: None }
        });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let report = Arc::clone(&seen);
        let renewal =
            store.renew(&grants, Arc::new(move |at, renewal| report.lock().unwrap().push((at, renewal))));
        let mut renewal = Box::pin(renewal);
        poll_once(&mut renewal).await;
        let seen = seen.lock().unwrap();
        seen.clone()
    }
    let store = Nodes(MemoryStore::new());
    let timeout = store.clone().timeout(TIMEOUT);
    let fallback = timeout.clone().fall_back_to(MemoryStore::new(), Share::WHOLE);
    let recorder = TopKeys::new(MemoryLog::new()).record(Recording::default());
    for (wrapper, of) in [
        ("timeout", reported(&timeout).await),
        ("without a deadline", reported(&timeout.with_deadline(None)).await),
        ("circuit breaker", reported(&timeout.clone().circuit_breaker(CircuitBreaker::default())).await),
        ("failure policy", reported(&timeout.clone().fail_open()).await),
        ("fallback", reported(&fallback).await),
        ("leases", reported(&store.clone().leased(Lease::at_most(10))).await),
        ("deny cache", reported(&store.clone().deny_cache(10)).await),
        ("usage counter", reported(&store.clone().count_usage(&recorder)).await),
        ("box", reported(&store.boxed()).await),
    ] {
        assert_eq!(of, [(1, Renewal::Held)], "{wrapper}");
    }
}
