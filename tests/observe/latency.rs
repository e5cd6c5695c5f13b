//! The latency of a store.

use std::time::Duration;

use tollgate::{Head, Key, Limiter, Policy, PolicyExt, RateLimitLayer};
use tollgate_tests::{Later, Strict, call, clock, per_minute, per_user, request, store, user};
use tower::Layer;

use crate::observe::Eye;

#[tokio::test]
async fn an_awaited_answer_shows_its_latency_once_for_all_rules() {
    let eye = Eye::default();
    let rules = || [per_user("p", 1), per_user("q", 1)];
    let policies = [per_minute("p", 1), per_minute("q", 1)];
    let later = Later::deciding_last(store(&clock()));
    let limiter = Limiter::new(policies).store(later.clone()).observe(eye.watch());
    let layer = RateLimitLayer::new(rules()).store(later).observe(eye.watch());
    let mut service = layer.layer(Strict::default());
    // Allowed, and denied.
    for _ in 0..2 {
        let _ = limiter.check(&Key::from("ada"), 1).await;
        let latencies: Vec<_> = eye.take().iter().map(|seen| seen.latency.is_some()).collect();
        assert_eq!(latencies, [true, false]);
        call(&mut service, request("bob")).await;
        let latencies: Vec<_> = eye.take().iter().map(|seen| seen.latency.is_some()).collect();
        assert_eq!(latencies, [true, false]);
    }
}

/// Whether a rate or the slot refuses it.
#[tokio::test]
async fn a_refusal_of_a_request_that_may_wait_for_a_slot_shows_its_latency() {
    let eye = Eye::default();
    let slot = Policy::in_flight("slot", 1).by(user()).wait_at_most(Duration::from_millis(250));
    let layer = RateLimitLayer::new([slot, per_user("rate", 3)])
        .store(Later::deciding_last(store(&clock())))
        .observe(eye.watch());
    let limiter = layer.limiter();
    let (request, mut held) = (request("ada"), Vec::new());
    for is_granted in [true, false] {
        held.extend(limiter.check(&Head::from(&request)).await);
        assert_eq!(held.len(), 1);
        let latencies: Vec<_> = eye.take().iter().map(|seen| seen.latency.is_some()).collect();
        assert_eq!(latencies, [true, false], "granted: {is_granted}");
    }
    held.clear();
    for _ in 0..2 {
        held.extend(limiter.check(&Head::from(&request)).await);
        held.iter().for_each(|permit| permit.slot().release());
    }
    eye.take();
    assert!(limiter.check(&Head::from(&request)).await.is_err(), "the rate refuses");
    let latencies: Vec<_> = eye.take().iter().map(|seen| seen.latency.is_some()).collect();
    assert_eq!(latencies, [true, false]);
}

#[tokio::test]
async fn a_latency_is_as_long_as_the_store_made_the_request_wait() {
    let eye = Eye::default();
    let later = Later::deciding_last(store(&clock()));
    let limiter = Limiter::new([per_minute("p", 1)]).store(later).observe(eye.watch());
    let ada = Key::from("ada");
    let mut check = Box::pin(limiter.check(&ada, 1));
    // It is pending at its first poll, and ready at the second.
    tollgate_tests::poll_once(check.as_mut()).await;
    std::thread::sleep(Duration::from_millis(30));
    let _ = check.await;
    let latency = eye.take()[0].latency.unwrap();
    // The observer's clock is calibrated to some hundred parts in a million.
    assert!(latency >= Duration::from_millis(29), "{latency:?}");
}
