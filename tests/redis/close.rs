//! Processes that stop while a Redis is silent or dead.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::Store;
use tollgate::{Algorithm, CircuitBreaker, Key, Lease, Limiter, Policy, Quota, Reason, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

use crate::redis::{builder, eventually};

const SOON: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);
const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Of a window, so that nothing is refilled meanwhile.
fn tokens() -> Policy {
    Policy::new("tokens", Quota::per_day(100_000)).with_algorithm(Algorithm::FIXED_WINDOW)
}

async fn left(server: &Server, policy: &Policy, key: &Key) -> u64 {
    let store = builder(&server.url()).connect().await.unwrap();
    let limiter = Limiter::new([policy.clone()]).store(store.timeout(PATIENCE).fail_closed());
    loop {
        // A server that has just started may refuse connections.
        if let [status] = limiter.look(key).await.unwrap().statuses() {
            return status.remaining();
        }
        sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test]
async fn corrections_on_their_way_are_waited_for() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = builder(&server.url()).connect().await.unwrap();
    let limiter = Limiter::new([tokens()]).store(store.timeout(PATIENCE).fail_closed());
    let key = Key::from("ada");
    let charge = limiter.check(&key, 100).await.unwrap().charge("tokens");
    server.pause().unwrap();
    charge.used(5_000);
    // Its correction goes on in a task.
    drop(charge);

    let unsent = limiter.close(SOON).await;
    assert_eq!((unsent.corrections, unsent.claims, unsent.leased_units), (1, 0, 0));
    assert_eq!(limiter.check(&key, 1).await.unwrap_err().reason(), Reason::Stopping);
    server.resume().unwrap();
    assert!(limiter.close(PATIENCE).await.is_nothing());
    assert_eq!(left(&server, &tokens(), &key).await, 95_000);
}

#[tokio::test]
async fn leases_and_kept_corrections_are_reported_and_sent_later() {
    let server = Server::start_with(Kind::Redis8_2, &PERSISTENT).unwrap();
    let calls = Policy::new("calls", Quota::per_day(1_000_000)).with_algorithm(Algorithm::FIXED_WINDOW);
    let redis = builder(&server.url()).connect().await.unwrap();
    let leased = redis
        .timeout(PATIENCE)
        .circuit_breaker(CircuitBreaker::default())
        .leased(Lease::at_most(1_000).lasting(PATIENCE));
    let store = leased.clone().fail_closed().keep_corrections(100);
    let limiter = Limiter::new([tokens(), calls.clone()]).store(store.clone());
    let (ada, bob) = (Key::from("ada"), Key::from("bob"));
    let mut charged = 0;
    while leased.held(&calls, &bob).is_none() {
        let _charged = limiter.check_each(&[("calls", &bob, 1)]).await.unwrap();
        charged += 1;
    }
    let mut permit = limiter.check_each(&[("tokens", &ada, 1)]).await.unwrap();

    server.kill();
    eventually("the outage is seen", async || limiter.check(&Key::from("eve"), 1).await.is_err()).await;
    assert_eq!(permit.charge("tokens").settle(5_000).await.kept, 4_999);
    let unsent = limiter.close(SOON).await;
    assert_eq!((unsent.corrections, unsent.claims), (1, 0), "{unsent}");
    assert!(unsent.leased_units > 0, "{unsent}");
    assert_eq!(1_000_000 - charged - unsent.leased_units, {
        server.restart().unwrap();
        left(&server, &calls, &bob).await
    });

    assert!(limiter.close(PATIENCE).await.is_nothing());
    assert_eq!(left(&server, &tokens(), &ada).await, 95_000);
    assert_eq!(left(&server, &calls, &bob).await, 1_000_000 - charged);
}

/// Without `keep_corrections` a slot of a dead Redis is held until its time to live ends.
#[tokio::test]
async fn releases_that_fail_are_reported() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap().timeout(PATIENCE).fail_closed();
    let limiter = Limiter::new([Policy::in_flight("jobs", 5)]).store(store);
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(limiter.check(&Key::from("ada"), 1).await.unwrap());
    }
    server.kill();
    assert_eq!(limiter.close(PATIENCE).await.corrections, 5);
    assert!(limiter.close(PATIENCE).await.is_nothing(), "they were reported");
}

#[tokio::test]
async fn a_slot_that_is_granted_while_the_process_stops_is_given_back() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = builder(&server.url()).connect().await.unwrap();
    let (jobs, ada) = (Policy::in_flight("jobs", 5).with_ttl(60 * PATIENCE), Key::from("ada"));
    let limiter = Limiter::new([jobs.clone()]).store(redis.clone().timeout(PATIENCE).fail_closed());
    drop(limiter.check(&ada, 1).await.unwrap());
    eventually("the slot is free", async || left(&server, &jobs, &ada).await == 5).await;

    server.pause().unwrap();
    let claim = tokio::spawn({
        let (limiter, ada) = (limiter.clone(), ada.clone());
        async move { limiter.check(&ada, 1).await }
    });
    eventually("it is sent", async || redis.sent_claims().unwrap().unanswered() == 1).await;
    let closing = tokio::spawn(async move { limiter.close(PATIENCE).await });
    sleep(SOON).await;
    server.resume().unwrap();
    let unsent = closing.await.unwrap();
    assert!(unsent.is_nothing(), "{unsent}");
    let _permit = claim.await.unwrap();
    assert_eq!(left(&server, &jobs, &ada).await, 5);
}
