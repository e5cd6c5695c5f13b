//! Rules in shadow: they decide, and nothing follows.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::charge::{Charges, ResponseHead};
use tollgate::extract::{PeerIp, global};
use tollgate::layer::RuleChange;
use tollgate::store::{Check, End, Grant, Reply, Store, Times, Verdict};
use tollgate::{
    Algorithm, Denial, Head, Key, ManualClock, MissingKey, Outcome, Policy, PolicyExt, Quota, RateLimitLayer,
    RequestLimiter, Rule, SetupError,
};
use tollgate_conformance::random::Random;
use tollgate_tests::{
    EVERY_ALGORITHM, Later, a_minute, bucket, call, clock, per_minute, per_user, request, store, user,
};
use tower::{Layer, service_fn};

use crate::service::layer;

/// The decisions of each policy.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<BTreeMap<(String, Outcome), u64>>>);

impl Seen {
    fn by<S: Clone>(&self, layer: RateLimitLayer<S>) -> RateLimitLayer<S> {
        let seen = Arc::clone(&self.0);
        layer.observe(move |decision| {
            let of = (decision.policy().name().to_owned(), decision.outcome());
            *seen.lock().unwrap().entry(of).or_default() += 1;
        })
    }

    fn count(&self, policy: &str, outcome: Outcome) -> u64 {
        self.0.lock().unwrap().get(&(policy.to_owned(), outcome)).copied().unwrap_or_default()
    }

    /// Allowed, denied and dropped by a rule in shadow.
    fn shadow(&self, policy: &str) -> [u64; 3] {
        [Outcome::ShadowAllowed, Outcome::ShadowDenied, Outcome::ShadowDropped]
            .map(|outcome| self.count(policy, outcome))
    }
}

async fn ok(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::empty()))
}

fn cost(head: &Head<'_>) -> u64 {
    head.headers().get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1)
}

/// Enforced rules of every kind: windows, buckets, queues, charges that follow, blocks, slots.
fn enforced() -> Vec<Rule> {
    vec![
        per_user("bucket", 20).cost(cost),
        a_minute("window", Algorithm::FIXED_WINDOW, 40).by(user()).cost(cost),
        per_minute("failures", 5)
            .with_algorithm(Algorithm::SlidingWindow)
            .by(user())
            .count_if(|response: &ResponseHead<'_>| response.status() == StatusCode::UNAUTHORIZED),
        per_minute("tokens", 100).by(user()).reserve(cost).block_after(10, Duration::from_secs(90)),
        bucket("queue", Duration::ZERO).by(global()),
        Policy::in_flight("slots", 2).by(user()),
    ]
}

/// Rules in shadow of every kind, which refuse most requests, all of them, or those without a key.
fn in_shadow() -> Vec<Rule> {
    let mut rules: Vec<Rule> = EVERY_ALGORITHM
        .into_iter()
        .enumerate()
        .map(|(number, algorithm)| {
            a_minute(&format!("s{number}"), algorithm, 2).by(user()).cost(cost).shadow()
        })
        .collect();
    let tiers = |head: &Head<'_>, _: &Key| head.headers().contains_key("x-cost").then_some("costly");
    rules.push(per_user("tiers", 3).tiers([("costly", Quota::per_minute(1))], tiers).shadow());
    rules.push(per_user("blocks", 1).block_after(2, Duration::from_secs(30)).shadow());
    rules.push(per_minute("no-address", 5).by(PeerIp::new()).shadow());
    rules.push(per_minute("skips", 5).by(PeerIp::new()).on_missing_key(MissingKey::Skip).shadow());
    rules.push(per_user("never", 1).cost(|_| u64::MAX).shadow());
    rules
}

/// Settles tokens, fails some requests, and keeps some of the bodies for a while.
async fn work(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let units = cost(&Head::from(&request));
    if let Some(tokens) = request.extensions().get::<Charges>().and_then(|charges| charges.of("tokens")) {
        tokens.settle(units / 2).await;
    }
    let mut response = Response::new(Body::from(vec![b'x'; usize::try_from(units).unwrap()]));
    if units.is_multiple_of(3) {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    Ok(response)
}

/// All that a client and an outer layer see of a random history, and what is left at its end.
async fn history(rules: Vec<Rule>, clock: &ManualClock) -> Vec<String> {
    let layer = layer(clock, rules).expose_report();
    let mut service = layer.layer(service_fn(work));
    let mut random = Random::new(39);
    let (mut seen, mut bodies) = (Vec::new(), Vec::new());
    for _ in 0..5_000 {
        clock.advance(Duration::from_micros(random.below(4_000_000)));
        let mut request = request(random.one_of(&["ada", "bob", ""]));
        if random.below(2) == 0 {
            request.headers_mut().insert("x-cost", random.below(9).into());
        }
        let response = call(&mut service, request).await;
        let denial = response.extensions().get::<Denial>();
        seen.push(format!("{} {:?} {denial:?}", response.status(), response.headers()));
        bodies.push(response.into_body());
        if random.below(3) > 0 {
            let body = bodies.swap_remove(usize::try_from(random.below(bodies.len() as u64)).unwrap());
            seen.push(format!("{:?}", body.collect().await.unwrap().to_bytes()));
        }
    }
    for name in ["ada", "bob"] {
        let report = layer.limiter().look(&Head::from(&request(name))).await.unwrap();
        seen.push(format!("{:?}", report.iter().collect::<Vec<_>>()));
    }
    seen
}

#[tokio::test]
async fn no_answer_field_charge_or_slot_differs_from_a_run_without() {
    let without = history(enforced(), &clock()).await;
    let with = history(enforced().into_iter().chain(in_shadow()).collect(), &clock()).await;
    assert!(
        without.iter().any(|seen| seen.starts_with("429"))
            && without.iter().any(|seen| seen.starts_with("401"))
    );
    assert_eq!(without.len(), with.len());
    for (at, (without, with)) in without.iter().zip(&with).enumerate() {
        assert_eq!(without, with, "{at}");
    }
}

/// The forecast is exact: alone, the rule would have refused these requests of these keys.
#[tokio::test]
async fn a_rule_in_shadow_refuses_what_it_would_refuse_alone() {
    for algorithm in EVERY_ALGORITHM {
        let (clock, seen) = (clock(), Seen::default());
        let strict = || a_minute("strict", algorithm, 7).by(user()).cost(cost);
        let layer = seen.by(layer(&clock, [per_user("wide", 12), strict().shadow()]));
        let alone = RequestLimiter::new(strict()).store(store(&clock));
        let mut service = layer.layer(service_fn(ok));
        let (mut random, mut forecast) = (Random::new(7), [0, 0, 0]);
        for _ in 0..3_000 {
            clock.advance(Duration::from_micros(random.below(6_000_000)));
            let name = random.one_of(&["ada", "bob"]);
            let mut to_check = request(name);
            to_check.headers_mut().insert("x-cost", random.below(4).into());
            let mut to_send = request(name);
            *to_send.headers_mut() = to_check.headers().clone();
            if call(&mut service, to_send).await.status() == StatusCode::OK {
                let passes = alone.check(&Head::from(&to_check)).await.is_ok();
                forecast[usize::from(!passes)] += 1;
            }
        }
        assert!(forecast[1] > 100, "{forecast:?}");
        assert_eq!(seen.shadow("strict"), forecast, "{}", algorithm.name());
        assert_eq!(seen.count("strict", Outcome::Denied) + seen.count("strict", Outcome::Allowed), 0);
    }
}

#[tokio::test]
async fn requests_that_another_rule_refuses_are_not_counted() {
    let seen = Seen::default();
    let layer = seen.by(layer(&clock(), [per_user("api", 2), per_user("shadow", 9).shadow()]));
    let mut service = layer.layer(service_fn(ok));
    for _ in 0..5 {
        call(&mut service, request("ada")).await;
    }
    assert_eq!((seen.count("api", Outcome::Denied), seen.shadow("shadow")), (3, [2, 0, 0]));
}

/// The request fails as it would by any closure. What was reserved for it is given back.
#[tokio::test]
async fn a_closure_that_panics_in_shadow_leaves_no_charge_open() {
    let clock = clock();
    let reserves = per_user("tokens", 9).reserve(|_| 5).cost_by(|_: &ResponseHead<'_>| 5);
    let panics = per_user("shadow", 9).cost(|_| panic!("as a test")).shadow();
    let layer = layer(&clock, [reserves, panics]);
    let mut service = layer.layer(service_fn(ok));
    let call = tokio::spawn(async move { call(&mut service, request("ada")).await.status() });
    assert!(call.await.unwrap_err().is_panic());
    let report = layer.limiter().look(&Head::from(&request("ada"))).await.unwrap();
    assert_eq!(report.statuses()[0].remaining(), 4, "it keeps its estimate, as if its handler had panicked");
}

#[tokio::test]
async fn a_layer_may_have_rules_in_shadow_only() {
    let seen = Seen::default();
    let layer = seen.by(layer(&clock(), [per_user("shadow", 2).shadow()]));
    let mut service = layer.layer(service_fn(ok));
    for _ in 0..5 {
        let response = call(&mut service, request("ada")).await;
        assert_eq!((response.status(), response.headers().len()), (StatusCode::OK, 0));
    }
    assert_eq!(seen.shadow("shadow"), [2, 3, 0]);
    layer.set_enabled(false);
    call(&mut service, request("ada")).await;
    assert_eq!(seen.shadow("shadow"), [2, 3, 0], "a layer that is off asks nothing");
}

#[tokio::test]
async fn a_limiter_asks_rules_in_shadow_too() {
    let seen = Seen::default();
    let layer = seen.by(layer(&clock(), [per_user("api", 9), per_user("shadow", 1).shadow()]));
    let (limiter, ada) = (layer.limiter(), request("ada"));
    let _permit = limiter.check(&Head::from(&ada)).await.unwrap();
    let _permit = limiter.until_ready(&Head::from(&ada), Duration::ZERO).await.unwrap();
    limiter.look(&Head::from(&ada)).await.unwrap();
    assert_eq!(seen.shadow("shadow"), [1, 1, 0]);
    let states = limiter.policies();
    assert_eq!(states.iter().map(Policy::name).collect::<Vec<_>>(), ["api", "shadow"]);
    limiter.reset(&Key::from("ada")).await;
    let _permit = limiter.check(&Head::from(&ada)).await.unwrap();
    assert_eq!(seen.shadow("shadow"), [2, 1, 0], "a reset forgets what was counted in shadow");
}

/// Answers once the gate is open.
#[derive(Clone)]
struct Gated {
    store: Later,
    is_open: Arc<AtomicBool>,
}

impl Store for Gated {
    type Error = Infallible;
    type Acquire = <Later as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let (reply, is_open) = (self.store.acquire(set, times), Arc::clone(&self.is_open));
        Reply::Later(Box::pin(async move {
            while !is_open.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            reply.wait().await
        }))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.store.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.store.reset(key, policies)
    }
}

#[tokio::test]
async fn no_request_waits_and_what_a_full_queue_drops_is_counted() {
    let (seen, is_open) = (Seen::default(), Arc::<AtomicBool>::default());
    let layer = RateLimitLayer::new([per_user("shadow", 10_000).shadow()]);
    let store = Gated { store: Later::deciding_first(store(&clock())), is_open: Arc::clone(&is_open) };
    let layer = seen.by(layer.store(store));
    let mut service = layer.layer(service_fn(ok));
    for _ in 0..2_000 {
        assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::OK);
    }
    assert_eq!(seen.shadow("shadow"), [0, 0, 2_000 - 1_024]);
    is_open.store(true, Ordering::Relaxed);
    while seen.shadow("shadow")[0] < 1_024 {
        tokio::task::yield_now().await;
    }
    call(&mut service, request("ada")).await;
    while seen.shadow("shadow")[0] < 1_025 {
        tokio::task::yield_now().await;
    }
    assert_eq!(seen.shadow("shadow"), [1_025, 0, 976]);
}

#[test]
fn without_a_runtime_a_store_over_a_network_is_not_asked() {
    let seen = Seen::default();
    let layer = RateLimitLayer::new([per_user("shadow", 5).shadow()]);
    let layer = seen.by(layer.store(Later::deciding_first(store(&clock()))));
    let mut service = layer.layer(service_fn(ok));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut answer = Box::pin(tower::Service::call(&mut service, request("ada")));
    assert!(answer.as_mut().poll(&mut context).is_ready());
    assert_eq!(seen.shadow("shadow"), [0, 0, 1]);
}

#[tokio::test]
async fn a_rule_starts_again_after_its_shadow() {
    let (clock, seen) = (clock(), Seen::default());
    let api = || per_user("api", 3);
    let layer = seen.by(layer(&clock, [per_user("other", 99), api().shadow()]));
    let mut service = layer.layer(service_fn(ok));
    for _ in 0..2 {
        call(&mut service, request("ada")).await;
    }
    let changes = layer.replace([per_user("other", 99), api()]).unwrap();
    assert_eq!(changes.to_string(), "version 2: \"api\" starts again");
    for expected in [200, 200, 200, 429] {
        assert_eq!(call(&mut service, request("ada")).await.status().as_u16(), expected);
    }
    let changes =
        layer.replace([per_user("other", 99), api().shadow(), per_user("new", 1).shadow()]).unwrap();
    assert_eq!(
        (changes.of("api"), changes.of("new")),
        (Some(RuleChange::StartsAgain), Some(RuleChange::Added))
    );
    assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::OK);
    assert_eq!((seen.shadow("api"), seen.shadow("new")), ([3, 0, 0], [1, 0, 0]));
    let hourly = Policy::new("api", Quota::per_hour(3)).by(user()).shadow();
    let changes = layer.replace([per_user("other", 99), hourly]).unwrap();
    assert_eq!(changes.to_string(), "version 4: \"api\" starts again, \"new\" removed");
}

#[test]
fn what_cannot_be_in_shadow_is_refused() {
    let refused = |rules: Vec<Rule>| RateLimitLayer::try_new(rules).unwrap_err();
    let name = || "api".to_owned();
    let slots = Policy::in_flight("api", 2).by(user()).shadow();
    assert_eq!(refused(vec![slots]), SetupError::NotInShadow(name()));
    assert_eq!(refused(vec![per_user("api", 2).reserve(cost).shadow()]), SetupError::NotInShadow(name()));
    let counts = per_user("api", 2).shadow().count_if(|_: &ResponseHead<'_>| true);
    assert_eq!(refused(vec![counts]), SetupError::NotInShadow(name()));
    assert_eq!(
        refused(vec![per_user("api", 2), per_user("api", 3).shadow()]),
        SetupError::PolicyTwice(name())
    );
    assert_eq!(
        refused(vec![per_user("api", 2).shadow(), per_user("api", 3).shadow()]),
        SetupError::PolicyTwice(name())
    );
    assert_eq!(refused(Vec::new()), SetupError::NoRules);
}

/// A second panic, in what follows the first, would abort the process.
#[tokio::test]
async fn an_observer_that_panics_on_a_rule_in_shadow_sees_it_once() {
    let seen = Seen::default();
    let layer =
        RateLimitLayer::new([per_user("rule", 9), per_user("new", 9).shadow()]).store(store(&clock()));
    let layer = seen.by(layer).observe(|decision| {
        assert!(decision.policy().name() != "new", "an observer panics");
    });
    let mut service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    let answer = tokio::spawn(async move { call(&mut service, request("ada")).await.status() }).await;
    assert!(answer.unwrap_err().is_panic());
    let seen: Vec<_> =
        seen.0.lock().unwrap().iter().map(|((name, _), count)| (name.clone(), *count)).collect();
    assert_eq!(seen, [("new".to_owned(), 1), ("rule".to_owned(), 1)]);
}
