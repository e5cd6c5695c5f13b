//! Callers that leave while they wait for a store.

use tollgate::{FailureExt, RateLimitLayer, StoreExt};
use tollgate_tests::{Connection, Later, Log, Strict, call, clock, per_user, poll_once, request, store};
use tower::{Layer, Service, ServiceExt};

use crate::{TIMEOUT, closed, failing, open};

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
