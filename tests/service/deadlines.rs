//! Requests with a deadline, and leaky buckets.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use tokio::time::sleep;
use tollgate::store::{Check, End, Grant, Reply, Store, Times, Verdict};
use tollgate::{Key, MemoryStore, Policy, PolicyExt, RateLimitLayer, StoreExt};
use tollgate_tests::{
    Later, Strict, at_hand, at_once, call, clock, field, per_user, queue, request, store, timed,
};
use tower::{Layer, Service, ServiceExt};

const MS: Duration = Duration::from_millis(1);

fn with(name: &'static str, value: &'static str) -> Request<Body> {
    let mut request = request("ada");
    request.headers_mut().insert(name, http::HeaderValue::from_static(value));
    request
}

/// Another rule is not charged for the denied requests either.
#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_comes_after_its_deadline_is_denied_at_once() {
    let later = Later::deciding_last(store(&clock()));
    for store in [store(&clock()).boxed(), later.boxed()] {
        let inner = Strict::default();
        let rules = [queue("q", 60_000 * MS), per_user("p", 4)];
        let layer = RateLimitLayer::new(rules).store(store).deadline_header("x-request-timeout");
        let mut service = layer.layer(inner.clone());
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let response = service.ready().await.unwrap().call(request("ada"));
            waiting.push(tokio::spawn(timed(response)));
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
        for _ in 0..5 {
            let (response, elapsed) = timed(call(&mut service, with("x-request-timeout", "299"))).await;
            assert_eq!((response.status().as_u16(), elapsed), (429, Duration::ZERO));
            assert_eq!(field(&response, "retry-after"), Some("1"), "1 ms, rounded up");
        }
        let (response, elapsed) = timed(call(&mut service, with("x-request-timeout", "300"))).await;
        assert_eq!((response.status().as_u16(), elapsed), (200, 300 * MS));
        for (n, response) in (0..3_u32).zip(waiting) {
            assert_eq!(response.await.unwrap().1, n * 100 * MS);
        }
        assert_eq!(inner.calls(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_grpc_and_connect_need_no_configuration() {
    let layer = RateLimitLayer::new([queue("q", 60_000 * MS)]).store(store(&clock()));
    let mut service = layer.layer(Strict::default());
    call(&mut service, request("ada")).await;
    for (name, value, expected) in [
        ("grpc-timeout", "99m", 429),
        ("connect-timeout-ms", "99", 429),
        ("x-request-timeout", "99", 200),
        ("grpc-timeout", "3S", 200),
        ("connect-timeout-ms", "3000", 200),
    ] {
        let response = call(&mut service, with(name, value)).await;
        assert_eq!(response.status(), expected, "{name}: {value}");
    }
}

/// With the shorter wait, the debt of callers that wait longer must not look like a clock error.
#[tokio::test(start_paused = true)]
async fn a_request_with_a_deadline_forgives_no_debt() {
    let layer = RateLimitLayer::new([queue("q", 60_000 * MS)]).store(store(&clock()));
    let mut service = layer.deadline_header("x-request-timeout").layer(Strict::default());
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(tokio::spawn(service.ready().await.unwrap().call(request("ada"))));
    }
    assert_eq!(call(&mut service, with("x-request-timeout", "0")).await.status(), 429);
    assert_eq!(timed(call(&mut service, request("ada"))).await.1, 10_000 * MS);
}

#[tokio::test]
async fn a_deadline_changes_nothing_for_other_algorithms() {
    let layer = RateLimitLayer::new([per_user("p", 1)]).store(store(&clock()));
    let mut service = layer.deadline_header("x-request-timeout").layer(Strict::default());
    assert_eq!(call(&mut service, with("x-request-timeout", "0")).await.status(), 200);
    assert_eq!(call(&mut service, with("x-request-timeout", "0")).await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_shortens_the_wait_in_a_leaky_bucket() {
    for (timeout, expected) in [("199", 429), ("200", 200)] {
        let slot = Policy::in_flight("slot", 1).by(tollgate_tests::user()).wait_at_most(1_000 * MS);
        let layer = RateLimitLayer::new([queue("q", 60_000 * MS), slot]).store(store(&clock()));
        let mut service = layer.deadline_header("x-request-timeout").layer(Strict::default());
        let holder = call(&mut service, request("ada")).await;
        // The clock of the store stands still: in the bucket this request always waits 100 ms.
        let hasty = with("x-request-timeout", timeout);
        let waiting = tokio::spawn(service.ready().await.unwrap().call(hasty));
        sleep(100 * MS).await;
        drop(holder);
        assert_eq!(waiting.await.unwrap().unwrap().status(), expected, "{timeout}");
    }
}

/// A store at a distance, where each release takes half a second.
#[derive(Clone)]
struct SlowReleases(MemoryStore);

impl Store for SlowReleases {
    type Error = Infallible;
    type Acquire = <MemoryStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        Reply::Later(ready(at_hand(self.0.acquire(set, times))))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        let store = self.0.clone();
        let owned = |grant: &Grant<'_>| (grant.policy.clone(), grant.key.clone(), grant.units, grant.stamp);
        let grants: Vec<_> = grants.iter().map(owned).collect();
        async move {
            sleep(500 * MS).await;
            grants.iter().try_for_each(|(policy, key, units, stamp)| {
                at_once(store.refund(&[Grant { policy, key, units: *units, stamp: *stamp, share: None }]))
            })
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.0.reset(key, policies)
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_release_shortens_the_wait_in_a_leaky_bucket() {
    for (timeout, expected) in [("599", 429), ("600", 200)] {
        let slot = Policy::in_flight("slot", 1).by(tollgate_tests::user());
        let layer = RateLimitLayer::new([queue("q", 60_000 * MS), slot]).store(SlowReleases(store(&clock())));
        let mut service = layer.deadline_header("x-request-timeout").layer(Strict::default());
        drop(call(&mut service, request("ada")).await);
        // The clock of the store stands still: in the bucket this request always waits 100 ms.
        let response = call(&mut service, with("x-request-timeout", timeout)).await;
        assert_eq!(response.status(), expected, "{timeout}");
    }
}
