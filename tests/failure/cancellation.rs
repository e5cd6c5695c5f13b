//! Callers that leave while they wait for a store.

use std::time::Duration;

use tokio::runtime::Builder;
use tollgate::{Algorithm, Key, Limiter, Policy, Quota, RateLimitLayer, StoreExt};
use tollgate_tests::{Connection, Later, Log, Strict, call, clock, per_user, poll_once, request, store};
use tower::{Layer, Service, ServiceExt};

use crate::failure::{TIMEOUT, closed, failing, open};

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_count_as_an_outage() {
    for policy in [open, closed] {
        let (log, _guard) = Log::of_thread();
        let (store, inner) = (failing(Connection::IsSilent), Strict::default());
        let mut service = RateLimitLayer::new([per_user("p", 5)]).store(policy(&store)).layer(inner.clone());
        drop(service.ready().await.unwrap().call(request("ada")));
        poll_once(service.ready().await.unwrap().call(request("ada"))).await;
        let response = service.ready().await.unwrap().call(request("ada"));
        assert!(tokio::time::timeout(TIMEOUT / 2, response).await.is_err());
        assert_eq!((store.asked(), inner.calls(), log.lines().len()), (3, 0, 0));
        store.set(Connection::Works);
        assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_is_charged_at_most_once() {
    for (later, left) in
        [(Later::deciding_first(store(&clock())), 4), (Later::deciding_last(store(&clock())), 5)]
    {
        let inner = Strict::default();
        let store = later.timeout(TIMEOUT).fail_closed().boxed();
        let mut service = RateLimitLayer::new([per_user("p", 5)]).store(store).layer(inner.clone());
        poll_once(service.ready().await.unwrap().call(request("ada"))).await;
        assert_eq!(inner.calls(), 0);
        while call(&mut service, request("ada")).await.status() == 200 {}
        assert_eq!(inner.calls(), left);
    }
}

/// A timeout needs a timer of the runtime, which a drop may happen outside of.
#[test]
fn a_place_dropped_outside_of_a_runtime_is_given_back() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let queue = Policy::new("queue", Quota::per_day(1))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(2 * 86_400) });
    let store = Later::deciding_first(store(&clock())).timeout(TIMEOUT).fail_closed();
    let (limiter, ada) = (Limiter::new([queue]).store(store), Key::from("ada"));
    let left = || runtime.block_on(limiter.look(&ada)).unwrap().statuses()[0].reset_after();
    let _passes = runtime.block_on(limiter.check(&ada, 1)).unwrap();
    let before = left();
    let mut waits = Box::pin(limiter.until_ready(&ada, 1, Duration::MAX));
    let waited = runtime.block_on(async { tokio::time::timeout(TIMEOUT, &mut waits).await });
    assert!(waited.is_err(), "it waits for a day");
    drop(waits);
    runtime.block_on(async { tokio::time::sleep(TIMEOUT).await });
    assert_eq!(left(), before);
}
