//! What only stores know, as metrics.

use std::time::Duration;

use tollgate::metrics::StoreMetrics;
use tollgate::{CircuitBreaker, Key, Lease, Limiter, MemoryStore, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, clock, per_minute, store};

use crate::observe::metrics::exported;

#[tokio::test]
async fn keys_evictions_and_overflows_of_all_stores_in_memory_are_added_up() {
    let (small, whole) = (MemoryStore::builder().max_keys(2).clock(&clock()).build(), store(&clock()));
    let limiters = [&small, &whole].map(|store| Limiter::new([per_minute("p", 1)]).store(store.clone()));
    let work = async |_: &StoreMetrics| {
        // In the small store the second of each pair pins its key. Then the last key has no place.
        for key in ["ada", "bob", "eve", "eve", "joe", "joe", "zoe"] {
            for limiter in &limiters {
                let _ = limiter.check(&Key::from(key), 1).await;
            }
        }
    };
    let make = || StoreMetrics::new().memory(&small).memory(&whole);
    let series = exported(make, work, StoreMetrics::update).await;
    assert_eq!(series["tollgate_memory_keys"], 7.0, "two and five");
    assert_eq!(series["tollgate_evictions_total"], 2.0);
    assert_eq!(series["tollgate_overflows_total"], 1.0);
    assert_eq!(series.len(), 3, "no metric of a store that is not there: {series:?}");
}

#[tokio::test]
async fn a_circuit_shows_how_far_it_is_open() {
    let (inner, time) = (Failing::new(store(&clock()), Connection::Works), clock());
    let broken = |inner: &Failing| {
        let settings = CircuitBreaker::default().failures_in_a_row(1).clock(&time);
        inner.clone().circuit_breaker(settings)
    };
    let (closed, opening) = (broken(&inner), broken(&inner));
    let state = async || {
        let make = || StoreMetrics::new().circuit(opening.circuit()).circuit(closed.circuit());
        exported(make, async |_| {}, StoreMetrics::update).await["tollgate_circuit_state"]
    };
    let limiter = Limiter::new([per_minute("p", 1)]).store(opening.clone().fail_open());
    let ada = Key::from("ada");
    assert_eq!(state().await, 0.0);
    inner.set(Connection::Fails(Fault::Unreachable));
    let _ = limiter.check(&ada, 1).await;
    assert_eq!(state().await, 2.0);
    time.advance(Duration::from_secs(2));
    inner.set(Connection::IsSilent);
    let mut probe = Box::pin(limiter.check(&ada, 1));
    tollgate_tests::poll_once(probe.as_mut()).await;
    assert_eq!(state().await, 1.0);
}

#[tokio::test(start_paused = true)]
async fn held_units_of_leases_are_stranded() {
    let leased = store(&clock()).leased(Lease::default());
    let limiter = Limiter::new([per_minute("p", 1_000_000)]).store(leased.clone());
    let work = async |_: &StoreMetrics| {
        for _ in 0..100 {
            let _ = limiter.check(&Key::from("ada"), 1).await;
        }
    };
    let make = || StoreMetrics::new().leased(&leased);
    let series = exported(make, work, StoreMetrics::update).await;
    let held = u32::try_from(leased.stats().held_units).unwrap();
    assert!(held > 0);
    assert_eq!(series["tollgate_lease_stranded"], f64::from(held));
    assert_eq!(series.len(), 1, "{series:?}");
}
