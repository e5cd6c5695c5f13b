//! A layer that is closed, since its process stops.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Method, Request, Response, StatusCode};
use tokio::spawn;
use tokio::time::sleep;
use tollgate::store::{Check, End, Grant, Reply, Store, Times, Unsent, Verdict};
use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys};
use tollgate::{
    CircuitBreaker, Head, Key, Lease, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Reason,
    Share, StoreExt,
};
use tollgate_tests::{Leasing, call, clock, field, per_user, request, store, user};
use tower::{Layer, service_fn};

const LIMIT: Duration = Duration::from_secs(2);

async fn ok(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::empty()))
}

#[tokio::test]
async fn services_from_before_answer_503_and_grpc_unavailable() {
    for layer in [
        RateLimitLayer::new(per_user("api", 5)),
        RateLimitLayer::new([per_user("api", 5), per_user("daily", 9)]),
    ] {
        let layer = layer.store(store(&clock()));
        let mut service = layer.layer(service_fn(ok));
        assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::OK);
        assert!(layer.close(LIMIT).await.is_nothing());

        let response = call(&mut service, request("ada")).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(field(&response, "retry-after"), Some("1"));
        let body = to_bytes(Body::new(response.into_body()), 1_000).await.unwrap();
        let problem = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        assert!(String::from_utf8_lossy(&body).contains(problem), "{body:?}");
        let mut call_of_grpc = request("ada");
        *call_of_grpc.method_mut() = Method::POST;
        call_of_grpc.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        assert_eq!(field(&call(&mut service, call_of_grpc).await, "grpc-status"), Some("14"));
        let denial = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap_err();
        assert_eq!((denial.reason(), denial.violated().count()), (Reason::Stopping, 0));
    }
}

#[tokio::test]
async fn nothing_opens_it_again() {
    let layer = RateLimitLayer::new(per_user("api", 5));
    layer.set_enabled(false);
    layer.close(LIMIT).await;
    layer.set_enabled(true);
    assert!(!layer.is_enabled());
    layer.replace(per_user("api", 9)).unwrap();
    layer.set_enabled(false);
    assert!(layer.close(LIMIT).await.is_nothing());
    let mut service = layer.layer(service_fn(ok));
    assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_are_refused() {
    let key = Key::from("ada");
    let limiter = Limiter::new([Policy::new("mails", Quota::per_day(1))]);
    let _first = limiter.check(&key, 1).await.unwrap();
    let waiter = {
        let (limiter, key) = (limiter.clone(), key.clone());
        spawn(async move { limiter.until_ready(&key, 1, Duration::from_secs(172_800)).await })
    };
    let slots = RateLimitLayer::new(Policy::in_flight("jobs", 1).by(user()).wait_at_most(LIMIT * 100));
    let _held = slots.limiter().check(&Head::from(&request("ada"))).await.unwrap();
    let mut service = slots.layer(service_fn(ok));
    let request_that_waits = spawn(async move { call(&mut service, request("ada")).await });
    sleep(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished() && !request_that_waits.is_finished());

    assert!(limiter.close(LIMIT).await.is_nothing());
    assert!(slots.close(LIMIT).await.is_nothing());
    assert_eq!(waiter.await.unwrap().unwrap_err().reason(), Reason::Stopping);
    assert_eq!(request_that_waits.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
}

/// The release waits for a renewal that the store does not answer.
#[tokio::test(start_paused = true)]
async fn releases_without_an_answer_are_counted() {
    let leasing = Leasing::new(MemoryStore::new());
    let jobs = Policy::in_flight("jobs", 9).with_ttl(60 * LIMIT);
    let layer = RateLimitLayer::new(jobs.by(user())).store(leasing.clone());
    let _held = layer.limiter().check(&Head::from(&request("ada"))).await.unwrap();
    leasing.renewals(|renewals| renewals.wait = true);
    sleep(30 * LIMIT).await;
    assert_eq!(layer.close(LIMIT).await.corrections, 1);
    leasing.let_pass();
    assert!(layer.close(LIMIT).await.is_nothing());
}

/// Puts off so many units.
#[derive(Clone, Debug)]
struct PutsOff(MemoryStore);

impl Store for PutsOff {
    type Error = Infallible;
    type Acquire = <MemoryStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        self.0.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.0.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.0.reset(key, policies)
    }

    fn close(&self, _: Duration) -> impl Future<Output = Unsent> + Send + use<> {
        let mut unsent = Unsent::default();
        unsent.leased_units = 7;
        ready(unsent)
    }
}

#[tokio::test]
async fn every_wrapper_closes_the_store_inside() {
    let inside = || PutsOff(MemoryStore::new());
    let recorder = TopKeys::new(MemoryLog::new()).record(Recording::default());
    let memory = MemoryStore::new;
    for store in [
        inside().boxed(),
        inside().timeout(LIMIT).fail_closed().boxed(),
        inside().circuit_breaker(CircuitBreaker::default()).fail_open().boxed(),
        inside().fall_back_to(memory(), Share::new(1, 2)).keep_corrections(9).boxed(),
        memory().fall_back_to(inside(), Share::new(1, 2)).boxed(),
        inside().leased(Lease::default()).boxed(),
        inside().deny_cache(9).boxed(),
        inside().count_usage(&recorder).boxed(),
    ] {
        assert_eq!(store.close(LIMIT).await.leased_units, 7);
        let limiter = Limiter::new([Policy::new("mails", Quota::per_day(1))]).store(store);
        assert_eq!(limiter.close(LIMIT).await.leased_units, 7);
    }
}
