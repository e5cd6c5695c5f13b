//! What rules in shadow count is apart: it pushes out nothing of what is enforced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tollgate::extract::header;
use tollgate::failure::{CircuitBreaker, CircuitState};
use tollgate::store::{Check, End, Grant, Reply, Store, Times, Verdict};
use tollgate::{
    Algorithm, Key, Lease, MemoryStore, Outcome, Policy, PolicyExt, Quota, RateLimitLayer, Rule, StoreExt,
};
use tollgate_tests::{Connection, EVERY_ALGORITHM, Failing, Fault, a_minute, call, clock, request, user};
use tower::{Layer, service_fn};

async fn ok(_: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
    Ok(Response::new(Body::empty()))
}

/// A request of a user with another value of the header that the rules in shadow count by.
fn invented(name: &str, number: u32) -> Request<Body> {
    let mut request = request(name);
    request.headers_mut().insert("x-invented", number.into());
    request
}

fn daily(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_day(limit))
}

fn in_shadow(name: &str, limit: u64) -> Rule {
    daily(name, limit).by(header("x-invented")).shadow()
}

/// How many requests of these users pass, each sent twice, before and after a flood of keys of a
/// rule in shadow.
async fn passed_around_a_flood(store: &MemoryStore, rules: Vec<Rule>) -> [usize; 3] {
    let mut service = RateLimitLayer::new(rules).store(store.clone()).layer(service_fn(ok));
    let mut passed = [0; 3];
    for (round, users) in [(0, 0..200), (1, 200..1_000), (2, 0..200)] {
        for name in users.flat_map(|user| [format!("u{user}"), format!("u{user}")]) {
            let response = call(&mut service, invented(&name, 0)).await;
            passed[round] += usize::from(response.status() == StatusCode::OK);
        }
        for number in 0..20_000 {
            // Another key each, whose second request the rule in shadow would refuse.
            for _ in 0..2 {
                call(&mut service, invented("flood", number)).await;
            }
        }
    }
    passed
}

fn enforced() -> Rule {
    // The flood itself is not limited.
    daily("api", 1).by(user()).exempt(|head: &tollgate::Head<'_>| head.headers()["x-user"] == "flood")
}

#[tokio::test]
async fn a_flood_of_keys_in_shadow_evicts_no_key_of_an_enforced_rule() {
    let store = || MemoryStore::builder().max_keys(4_096).clock(&clock()).build();
    let alone = store();
    let without = passed_around_a_flood(&alone, vec![enforced()]).await;
    let shared = store();
    let with = passed_around_a_flood(&shared, vec![enforced(), in_shadow("s", 1), in_shadow("t", 9)]).await;
    assert_eq!((without, with), ([200, 800, 0], [200, 800, 0]));
    assert_eq!((shared.keys(), shared.evictions(), shared.overflows()), (1_000, 0, 0));
    let apart = shared.in_shadow();
    assert!(apart.keys() <= 4_096 && apart.overflows() > 0, "{} keys in shadow", apart.keys());
}

/// Two layers on one store, such as two processes of a fleet on one Redis: one enforces the rule
/// that the other has in shadow.
#[tokio::test]
async fn a_rule_in_shadow_neither_charges_nor_blocks_its_enforced_namesake() {
    for algorithm in EVERY_ALGORITHM {
        let run = async |has_canary: bool| {
            let store = tollgate_tests::store(&clock());
            let rule =
                |limit| a_minute("api", algorithm, limit).by(user()).block_after(3, Duration::from_secs(600));
            let layer = RateLimitLayer::new(rule(4)).store(store.clone());
            let mut service = layer.layer(service_fn(ok));
            let mut canary = RateLimitLayer::new(rule(1).shadow()).store(store.clone()).layer(service_fn(ok));
            let mut seen = Vec::new();
            for _ in 0..6 {
                for _ in 0..5 {
                    if has_canary {
                        assert_eq!(call(&mut canary, request("ada")).await.status(), StatusCode::OK);
                    }
                }
                let response = call(&mut service, request("ada")).await;
                seen.push(format!("{} {:?}", response.status(), response.headers()));
            }
            (seen, layer.limiter().blocked("api", &Key::from("ada")).await, store.keys())
        };
        let (without, with) = (run(false).await, run(true).await);
        assert_eq!(without, with, "{algorithm:?}");
    }
}

#[tokio::test]
async fn denials_in_shadow_push_out_no_denial_of_an_enforced_rule() {
    let cache = MemoryStore::new().deny_cache(600);
    let layer = RateLimitLayer::new([daily("api", 1).by(user()), in_shadow("s", 1)]).store(cache.clone());
    let mut service = layer.layer(service_fn(ok));
    for name in ["ada", "ada", "bob", "bob"] {
        call(&mut service, invented(name, 0)).await;
    }
    let only_shadow = RateLimitLayer::new(in_shadow("s", 1)).store(cache.clone());
    let mut service = only_shadow.layer(service_fn(ok));
    for number in 0..5_000 {
        call(&mut service, invented("eve", number)).await;
        call(&mut service, invented("eve", number)).await;
    }
    assert_eq!(cache.denials(), 2);
}

#[tokio::test]
async fn leases_in_shadow_are_apart() {
    let leases = MemoryStore::new().leased(Lease::at_most(100));
    let layer = RateLimitLayer::new([daily("s", 100_000).by(user()).shadow()]).store(leases.clone());
    let mut service = layer.layer(service_fn(ok));
    for _ in 0..100 {
        call(&mut service, request("ada")).await;
    }
    assert!(leases.held(&daily("s", 100_000), &Key::from("ada")).is_none());
}

/// A store that fails in shadow only.
#[derive(Clone)]
struct FailsInShadow {
    enforced: Failing,
    in_shadow: Failing,
}

impl Store for FailsInShadow {
    type Error = <Failing as Store>::Error;
    type Acquire = <Failing as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
        self.enforced.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Self::Error> + use<> {
        self.enforced.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Self::Error> + use<> {
        self.enforced.reset(key, policies)
    }

    fn in_shadow(&self) -> FailsInShadow {
        FailsInShadow { enforced: self.in_shadow.clone(), ..self.clone() }
    }
}

#[tokio::test]
async fn failures_in_shadow_open_no_circuit_and_are_counted_as_dropped() {
    for fault in [Connection::Fails(Fault::TooSlow), Connection::FailsLater(Fault::Unreachable)] {
        let store = FailsInShadow {
            enforced: Failing::new(MemoryStore::new(), Connection::Works),
            in_shadow: Failing::new(MemoryStore::new(), fault),
        };
        let breaker = store.circuit_breaker(CircuitBreaker::default());
        let (circuit, events) = (breaker.circuit(), Arc::new(AtomicU64::new(0)));
        let heard = Arc::clone(&events);
        let decides = breaker.fail_open().observe(move |_| _ = heard.fetch_add(1, Ordering::Relaxed));
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        let layer = RateLimitLayer::new([daily("api", 9_999).by(user()), daily("s", 1).by(user()).shadow()])
            .store(decides)
            .observe(move |decision| match decision.outcome() {
                Outcome::ShadowDropped => _ = count.fetch_add(1, Ordering::Relaxed),
                outcome => assert_eq!(outcome, Outcome::Allowed),
            });
        let mut service = layer.layer(service_fn(ok));
        for _ in 0..500 {
            assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::OK);
        }
        while dropped.load(Ordering::Relaxed) < 500 {
            tokio::task::yield_now().await;
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
        assert_eq!(events.load(Ordering::Relaxed), 500, "one decision of each enforced check");
    }
}

#[tokio::test]
async fn a_block_in_shadow_shows_in_the_forecast_only() {
    let seen = Arc::new([const { AtomicU64::new(0) }; Outcome::ALL.len()]);
    let count = Arc::clone(&seen);
    let rule = a_minute("api", Algorithm::FIXED_WINDOW, 1).by(user());
    let time = clock();
    let layer = RateLimitLayer::new(rule.block_after(2, Duration::from_secs(600)).shadow())
        .store(tollgate_tests::store(&time))
        .observe(move |decision| _ = count[decision.outcome() as usize].fetch_add(1, Ordering::Relaxed));
    let mut service = layer.layer(service_fn(ok));
    for _ in 0..3 {
        call(&mut service, request("ada")).await;
    }
    time.advance(Duration::from_secs(120));
    call(&mut service, request("ada")).await;
    let seen = |outcome: Outcome| seen[outcome as usize].load(Ordering::Relaxed);
    let denied = seen(Outcome::ShadowDenied);
    assert_eq!((seen(Outcome::ShadowAllowed), denied), (1, 3), "the block outlives the window");
    assert_eq!(seen(Outcome::BlockStarted), 0);
}
