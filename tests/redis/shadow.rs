//! Rules in shadow, whose answers no request waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tollgate::store::{Check, ErrorKind, Reply, Store, StoreError, Times};
use tollgate::{Algorithm, Key, Outcome, Policy, PolicyExt, Quota, RateLimitLayer, Rule, StoreExt};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_tests::{call, request, user};
use tower::{Layer, service_fn};

use crate::redis::{Fresh, cluster, eventually, prefix, shared};

async fn ok(_: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
    Ok(Response::new(Body::empty()))
}

fn daily(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_day(limit))
}

/// How often each outcome was seen.
#[derive(Clone)]
struct Seen(Arc<[AtomicU64; Outcome::ALL.len()]>);

impl Seen {
    fn new() -> Seen {
        Seen(Arc::new([const { AtomicU64::new(0) }; Outcome::ALL.len()]))
    }

    fn by<S: Clone>(&self, layer: RateLimitLayer<S>) -> RateLimitLayer<S> {
        let Seen(counts) = self.clone();
        layer.observe(move |decision| _ = counts[decision.outcome() as usize].fetch_add(1, Ordering::Relaxed))
    }

    /// Allowed, denied and dropped by rules in shadow.
    fn shadow(&self) -> [u64; 3] {
        [Outcome::ShadowAllowed, Outcome::ShadowDenied, Outcome::ShadowDropped]
            .map(|outcome| self.0[outcome as usize].load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn requests_pass_while_redis_is_silent_and_each_check_is_counted_once() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let (fresh, seen) = (Fresh::on(&server).await, Seen::new());
    let rules = [daily("few", 5).by(user()).shadow(), daily("many", 500).by(user()).shadow()];
    let layer = seen.by(RateLimitLayer::new(rules).store(fresh.store.clone().fail_closed()));
    let mut service = layer.layer(service_fn(ok));
    call(&mut service, request("ada")).await;
    eventually("there is a connection", async || seen.shadow() == [2, 0, 0]).await;
    server.pause().unwrap();
    for number in 0..100 {
        assert_eq!(call(&mut service, request(&number.to_string())).await.status(), StatusCode::OK);
    }
    assert_eq!(seen.shadow()[..2], [2, 0], "Redis is silent");
    // One call carries 128, and waits for its answer.
    eventually("the others are dropped", async || seen.shadow()[2] > 0).await;
    server.resume().unwrap();
    eventually("each check has ended", async || seen.shadow().iter().sum::<u64>() == 202).await;
    assert!(seen.shadow()[0] > 2, "what was sent is counted however late: {:?}", seen.shadow());
}

type Asked = Vec<<RedisStore as Store>::Acquire>;

/// Asks about so many keys.
fn ask(store: &RedisStore, policy: &Policy, cost: u64, keys: u32) -> Asked {
    let ask = |number| match store.acquire(&[Check::new(policy, &Key::from(number), cost)], Times::ONCE) {
        Reply::Later(answer) => answer,
        Reply::Now(answer) => panic!("Redis was not asked: {answer:?}"),
    };
    (0..keys).map(ask).collect()
}

/// How many checks are granted. The others were not sent.
async fn granted(asked: Asked) -> u64 {
    let mut granted = 0;
    for answer in asked {
        match answer.await {
            Ok(verdict) => granted += u64::from(verdict.is_granted()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}"),
        }
    }
    granted
}

#[tokio::test]
async fn no_check_in_shadow_is_sent_while_an_enforced_one_waits() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::with(&server, SlidingLogLayout::List, |builder| builder.connections(1)).await;
    let seen = Seen::new();
    let rules: Vec<Rule> = (0..20).map(|n| daily(&format!("s{n}"), 500).by(user()).shadow()).collect();
    let layer = seen.by(RateLimitLayer::new(rules).store(fresh.store.clone().fail_closed()));
    let mut service = layer.layer(service_fn(ok));
    server.pause().unwrap();
    // One call carries 128.
    let enforced = ask(&fresh.store, &daily("api", 9), 1, 300);
    for _ in 0..5 {
        assert_eq!(call(&mut service, request("ada")).await.status(), StatusCode::OK);
    }
    eventually("all are dropped", async || seen.shadow() == [0, 0, 100]).await;
    server.resume().unwrap();
    assert_eq!(granted(enforced).await, 300);
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "300", "what was dropped was not charged");
    eventually("checks are sent again", async || {
        call(&mut service, request("ada")).await;
        seen.shadow()[0] > 0
    })
    .await;
}

/// Enforced checks do not wait for a long call of rules in shadow.
#[tokio::test]
async fn a_call_in_shadow_carries_little_work() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let calls = || {
        let stats = server.command(&["INFO", "commandstats"]).unwrap();
        let of = |name: &str| {
            let found = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            found.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        of("evalsha") + of("eval")
    };
    let log = daily("log", 100_000).with_algorithm(Algorithm::SLIDING_LOG);
    let before = calls();
    let sent = granted(ask(&fresh.store.in_shadow(), &log, 2, 500)).await;
    // Each is 37 of work, and a call carries 512.
    let calls = calls() - before;
    assert!(sent > 0 && sent <= 14 * calls, "{sent} in {calls} calls");
}

/// Each slot has a queue of its own, and one call is made at a time.
#[tokio::test]
async fn rules_in_shadow_decide_on_a_cluster() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let store = cluster::store(&cluster, &prefix()).await;
    let seen = Seen::new();
    let rules = [daily("api", 500).by(user()), daily("s", 1).by(user()).shadow()];
    let layer = seen.by(RateLimitLayer::new(rules).store(store.clone().fail_closed()));
    let mut service = layer.layer(service_fn(ok));
    for number in 0..100 {
        for _ in 0..2 {
            let response = call(&mut service, request(&number.to_string())).await;
            assert_eq!(response.status(), StatusCode::OK);
        }
    }
    eventually("each check has ended", async || seen.shadow().iter().sum::<u64>() == 200).await;
    let [allowed, denied, _] = seen.shadow();
    assert!(allowed > 0 && allowed <= 100 && denied <= 100, "{:?}", seen.shadow());
}

/// Two processes on one Redis: one enforces the rule that the other has in shadow.
#[tokio::test]
async fn a_rule_in_shadow_neither_charges_nor_blocks_its_enforced_namesake() {
    let run = async |has_canary: bool| {
        let fresh = Fresh::on(shared(Kind::Redis8_2)).await;
        let rule = |limit| daily("api", limit).by(user()).block_after(3, Duration::from_secs(600));
        let layer = RateLimitLayer::new(rule(4)).store(fresh.store.clone().fail_closed());
        let (mut service, seen) = (layer.layer(service_fn(ok)), Seen::new());
        let canary = RateLimitLayer::new(rule(1).shadow()).store(fresh.store.clone().fail_closed());
        let mut canary = seen.by(canary).layer(service_fn(ok));
        let mut statuses = Vec::new();
        for round in 1..=6 {
            if has_canary {
                for _ in 0..5 {
                    assert_eq!(call(&mut canary, request("ada")).await.status(), StatusCode::OK);
                }
                eventually("the rule has decided", async || seen.shadow().iter().sum::<u64>() == 5 * round)
                    .await;
            }
            statuses.push(call(&mut service, request("ada")).await.status().as_u16());
        }
        if has_canary {
            assert!(seen.shadow()[1] > 0, "{:?}", seen.shadow());
        }
        (statuses, layer.limiter().blocked("api", &Key::from("ada")).await.is_some())
    };
    let without = run(false).await;
    assert_eq!(without, (vec![200, 200, 200, 200, 429, 429], false));
    assert_eq!(without, run(true).await);
}
