//! Claims of slots whose callers have gone before the answer. The time to live is an hour, so only
//! a refund frees a slot here.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{Check, Store, StoreError, Times};
use tollgate::{Algorithm, Key, Limiter, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_tests::{Proxy, Way};

use crate::redis::calls::calls;
use crate::redis::{Fresh, acquire, builder, cluster, crowd, eventually, prefix, shared, try_acquire, used};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn slots(limit: u64) -> Policy {
    Policy::in_flight("slots", limit).with_ttl(HOUR)
}

fn rate() -> Policy {
    Policy::new("rate", Quota::per_day(1_000_000)).with_algorithm(Algorithm::FIXED_WINDOW)
}

/// A handle whose callers wait for 50 ms.
fn hasty(store: &RedisStore) -> RedisStore {
    store.with_deadline(Some(50 * MS))
}

fn unanswered(store: &RedisStore) -> u64 {
    store.sent_claims().unwrap().unanswered()
}

/// Waits until each claim was answered or lost, and each late grant was refunded.
async fn all_answered(store: &RedisStore) {
    eventually("all claims are answered", async || unanswered(store) == 0).await;
}

/// Waits for the release of the slots, so that its connection is free.
async fn is_free(store: &RedisStore, slots: &Policy) {
    eventually("the slots are free", async || used(store, slots, "ada").await == 0).await;
}

#[tokio::test]
async fn late_grants_are_refunded_with_the_rates_of_their_sets() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2, Kind::Valkey9_1] {
        let server = Server::start(kind).unwrap();
        let fresh = Fresh::on(&server).await;
        let (slots, rate) = (slots(300), rate());
        let store = fresh.store.clone().timeout(50 * MS).fail_open();
        let limiter = Limiter::new([slots.clone(), rate.clone()]).store(store);
        let ada = Key::from("ada");
        drop(limiter.check(&ada, 1).await.unwrap());
        all_answered(&fresh.store).await;
        is_free(&fresh.store, &slots).await;
        crowd(&fresh.store).await;
        let before = used(&fresh.store, &rate, "ada").await;
        server.pause().unwrap();
        let mut callers = JoinSet::new();
        for n in 0..300 {
            let (limiter, ada) = (limiter.clone(), ada.clone());
            callers.spawn(async move { limiter.check(&ada, 1).await.unwrap() });
            if n % 10 == 0 {
                sleep(MS).await;
            }
        }
        let permits = callers.join_all().await;
        let sent = unanswered(&fresh.store);
        assert!(sent > 0, "{kind}: claims are on their way");
        server.resume().unwrap();
        all_answered(&fresh.store).await;
        assert_eq!(used(&fresh.store, &slots, "ada").await, 0, "{kind}: {sent} claims were late");
        assert_eq!(used(&fresh.store, &rate, "ada").await, before, "{kind}");
        assert_eq!(fresh.store.claims_lost(), 0, "{kind}");
        assert!(permits.iter().all(|permit| !permit.slot().is_lost()), "they passed without slots");
    }
}

/// With and without a timeout of the store.
#[tokio::test]
async fn what_is_granted_to_a_caller_that_has_left_is_refunded() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let (slots, rate) = (slots(300), rate());
    let limiter = Limiter::new([slots.clone(), rate.clone()]).store(fresh.store.clone().fail_closed());
    acquire(&fresh.store, &rate, "ada", 1).await;
    crowd(&fresh.store).await;
    server.pause().unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..300 {
        let limiter = limiter.clone();
        callers.spawn(async move { drop(limiter.check(&Key::from("ada"), 1).await) });
        if callers.len() % 10 == 0 {
            sleep(MS).await;
        }
    }
    eventually("claims are on their way", async || unanswered(&fresh.store) > 0).await;
    callers.shutdown().await;
    server.resume().unwrap();
    all_answered(&fresh.store).await;
    assert_eq!(used(&fresh.store, &slots, "ada").await, 0);
    assert_eq!(used(&fresh.store, &rate, "ada").await, 1);
    assert_eq!(fresh.store.claims_lost(), 0);
}

/// The caller leaves when its answer is there, but before it is polled.
#[tokio::test]
async fn an_answer_that_its_caller_does_not_read_is_refunded() {
    let fresh = Fresh::on(shared(Kind::Installed)).await;
    let (slots, ada) = (slots(5), Key::from("ada"));
    for _ in 0..5 {
        let reply = fresh.store.acquire(&[Check::new(&slots, &ada, 1)], Times::ONCE);
        {
            let mut claim = pin!(reply.wait());
            assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            // An answer frees the queue for this one.
            eventually("it is claimed", async || used(&fresh.store, &slots, "ada").await == 1).await;
            all_answered(&fresh.store).await;
        }
        eventually("it is free", async || used(&fresh.store, &slots, "ada").await == 0).await;
    }
}

#[tokio::test]
async fn a_claim_is_awaited_beyond_the_response_timeout() {
    for kind in [Kind::Redis8_2, Kind::Installed] {
        let server = Server::start(kind).unwrap();
        let fresh = Fresh::with(&server, Default::default(), |builder| {
            builder.connections(1).response_timeout(500 * MS).connect_timeout(500 * MS)
        })
        .await;
        let (slots, rate, ada) = (slots(300), rate(), Key::from("ada"));
        let set = [Check::new(&slots, &ada, 1), Check::new(&rate, &ada, 1)];
        eventually("a slot", async || fresh.store.acquire(&set, Times::LOOK).wait().await.is_ok()).await;
        server.pause().unwrap();
        // More than there are timeouts before a connection is replaced.
        for _ in 0..5 {
            let error = fresh.store.acquire(&set, Times::ONCE).wait().await.unwrap_err();
            assert!(error.is_transient(), "{error}");
        }
        let sent = unanswered(&fresh.store);
        assert!(sent > 0);
        server.resume().unwrap();
        all_answered(&fresh.store).await;
        assert_eq!(fresh.store.claims_lost(), 0, "{kind}");
        let look = async || fresh.store.acquire(&set, Times::LOOK).wait().await;
        eventually("a verdict", async || look().await.is_ok()).await;
        let left = look().await.unwrap().each().iter().map(|status| status.remaining()).collect::<Vec<_>>();
        assert_eq!(left, [300, 1_000_000], "{kind}: {sent} claims were late");
    }
}

/// Of callers that time out, and of callers that leave.
#[tokio::test]
async fn a_claim_that_was_not_sent_never_reaches_redis() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let fresh = Fresh::with(&server, Default::default(), |builder| builder.connections(1)).await;
    let slots = slots(300);
    let limiter = Limiter::new([slots.clone()]).store(fresh.store.clone().fail_closed());
    acquire(&fresh.store, &slots, "bob", 1).await;
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    server.pause().unwrap();
    let ahead = tokio::spawn({
        let (store, slots) = (fresh.store.clone(), slots.clone());
        async move { acquire(&store, &slots, "bob", 1).await }
    });
    eventually("the only lane waits for it", async || unanswered(&fresh.store) == 1).await;
    let (mut leaving, mut late) = (JoinSet::new(), JoinSet::new());
    for _ in 0..50 {
        let (limiter, hasty, slots) = (limiter.clone(), hasty(&fresh.store), slots.clone());
        leaving.spawn(async move { drop(limiter.check(&Key::from("ada"), 1).await) });
        late.spawn(async move { try_acquire(&hasty, &slots, "ada", 1).await.is_err() });
    }
    assert!(late.join_all().await.into_iter().all(|is_late| is_late));
    leaving.shutdown().await;
    assert_eq!(unanswered(&fresh.store), 1);
    server.resume().unwrap();
    assert!(ahead.await.unwrap().is_granted());
    assert_eq!(calls(&server, "evalsha"), 1);
    assert_eq!(used(&fresh.store, &slots, "ada").await, 0);
}

#[tokio::test]
async fn claims_that_are_lost_with_their_connection_are_counted() {
    let server = shared(Kind::Redis8_2);
    let proxy = Proxy::before(server.address()).await;
    let straight = Fresh::on(server).await;
    let url = format!("redis://{}/", proxy.address());
    // One call at a time, so that no other is sent before the cut.
    let store = builder(&url).prefix(&*straight.prefix).connections(1).connect().await.unwrap();
    let slots = slots(300);
    let mut granted = 0;
    for round in 1..=3 {
        // It loads the script, too.
        eventually("it is answered", async || try_acquire(&store, &slots, "bob", 1).await.is_ok()).await;
        proxy.set(Way::HoldsAnswersBack);
        let mut callers = JoinSet::new();
        for n in 0..20 {
            // Some callers wait, others do not.
            let store = if n % 2 == 0 { hasty(&store) } else { store.clone() };
            let slots = slots.clone();
            callers.spawn(async move { try_acquire(&store, &slots, "ada", 1).await });
        }
        eventually("claims are on their way", async || unanswered(&store) > 0).await;
        let sent = unanswered(&store);
        let taken = async || used(&straight.store, &slots, "ada").await;
        let before = store.claims_lost() + granted;
        eventually("they are granted", async || taken().await == before + sent).await;
        proxy.cut();
        eventually("they are lost", async || store.claims_lost() + granted == before + sent).await;
        proxy.set(Way::IsOpen);
        granted += callers.join_all().await.into_iter().filter(Result::is_ok).count() as u64;
        all_answered(&store).await;
        assert_eq!(store.claims_lost() + granted, taken().await, "round {round}");
    }
}

#[tokio::test]
async fn claims_that_are_lost_with_the_server_are_counted() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let slots = slots(300);
    acquire(&fresh.store, &slots, "bob", 1).await;
    server.pause().unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (store, slots) = (hasty(&fresh.store), slots.clone());
        callers.spawn(async move { assert!(try_acquire(&store, &slots, "ada", 1).await.is_err()) });
        sleep(MS).await;
    }
    callers.join_all().await;
    let sent = unanswered(&fresh.store);
    assert!(sent > 0, "claims are on their way");
    server.kill();
    all_answered(&fresh.store).await;
    assert_eq!(fresh.store.claims_lost(), sent);
}

/// A claim that is not answered within the time to live of its slot is lost.
#[tokio::test]
async fn a_claim_is_awaited_no_longer_than_its_time_to_live() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::with(&server, Default::default(), |builder| {
        builder.response_timeout(500 * MS).connect_timeout(500 * MS)
    })
    .await;
    let slots = Policy::in_flight("slots", 9).with_ttl(Duration::from_secs(1));
    eventually("a slot", async || try_acquire(&fresh.store, &slots, "bob", 1).await.is_ok()).await;
    server.pause().unwrap();
    try_acquire(&fresh.store, &slots, "ada", 1).await.unwrap_err();
    eventually("it is lost", async || fresh.store.claims_lost() == 1).await;
    assert_eq!(unanswered(&fresh.store), 0);
    server.resume().unwrap();
}

#[tokio::test]
async fn claims_beyond_the_bound_are_refused_before_they_are_sent() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::with(&server, Default::default(), |builder| {
        builder.connections(1).most_waiting(20).response_timeout(500 * MS).connect_timeout(500 * MS)
    })
    .await;
    let slots = slots(300);
    eventually("a slot", async || try_acquire(&fresh.store, &slots, "bob", 1).await.is_ok()).await;
    server.pause().unwrap();
    let mut refused = false;
    for _ in 0..60 {
        let mut callers = JoinSet::new();
        for _ in 0..10 {
            let (store, slots) = (fresh.store.clone(), slots.clone());
            callers.spawn(async move { try_acquire(&store, &slots, "ada", 1).await.unwrap_err() });
        }
        refused = callers.join_all().await.iter().any(|error| error.is_overloaded());
        if refused {
            break;
        }
    }
    assert!(refused);
    let sent = unanswered(&fresh.store);
    assert!((20..=40).contains(&sent), "{sent}");
    let error = try_acquire(&fresh.store, &slots, "ada", 1).await.unwrap_err();
    assert!(error.is_overloaded() && error.executed_nothing(), "{error}");
    server.resume().unwrap();
    all_answered(&fresh.store).await;
    eventually("a verdict", async || try_acquire(&fresh.store, &rate(), "ada", 1).await.is_ok()).await;
    assert_eq!(used(&fresh.store, &slots, "ada").await, 0);
}

#[tokio::test]
async fn a_limiter_that_is_closed_waits_for_late_claims() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let slots = slots(300);
    let store = fresh.store.clone().timeout(50 * MS).fail_closed();
    let limiter = Limiter::new([slots.clone()]).store(store);
    // On a busy machine an answer may be late.
    eventually("a slot", async || limiter.check(&Key::from("ada"), 1).await.is_ok()).await;
    all_answered(&fresh.store).await;
    is_free(&fresh.store, &slots).await;
    server.pause().unwrap();
    eventually("claims are on their way", async || {
        let limiters: JoinSet<_> = (0..10)
            .map(|_| {
                let limiter = limiter.clone();
                async move { assert!(limiter.check(&Key::from("ada"), 1).await.is_err()) }
            })
            .collect();
        limiters.join_all().await;
        unanswered(&fresh.store) > 0
    })
    .await;
    assert!(limiter.close(300 * MS).await.claims > 0);
    server.resume().unwrap();
    assert!(limiter.close(Duration::from_secs(60)).await.is_nothing());
    assert_eq!(used(&fresh.store, &slots, "ada").await, 0);
}

/// The set is charged on both nodes, since one of them is silent for a while only.
#[tokio::test]
async fn a_late_grant_over_nodes_is_refunded_on_each() {
    let cluster = Cluster::start(Kind::Installed).unwrap();
    let prefix = prefix();
    let store = builder(&cluster::url(&cluster)).prefix(&*prefix).connect().await.unwrap();
    let (slots, rate) = (slots(300), rate());
    let keys = [Key::from("ada"), Key::from(cluster::elsewhere(&cluster, &prefix, "ada"))];
    let set = [Check::new(&slots, &keys[0], 1), Check::new(&rate, &keys[1], 1)];
    for key in &keys {
        eventually("a verdict", async || store.acquire(&set, Times::LOOK).wait().await.is_ok()).await;
        let (_, silent) = cluster::home(&cluster, &prefix, &key.to_string());
        silent.pause().unwrap();
        let hasty = hasty(&store);
        let mut late = JoinSet::new();
        for _ in 0..20 {
            late.spawn(hasty.acquire(&set, Times::ONCE).wait());
        }
        assert!(late.join_all().await.iter().all(Result::is_err));
        silent.resume().unwrap();
        let left = async || {
            let look = store.acquire(&set, Times::LOOK).wait().await;
            look.map(|look| look.each().iter().map(|status| status.remaining()).collect::<Vec<_>>())
        };
        // A look is queued behind the claims.
        eventually("a verdict", async || left().await.is_ok()).await;
        eventually("the set is free", async || {
            unanswered(&store) == 0 && left().await.is_ok_and(|left| left == [300, 1_000_000])
        })
        .await;
    }
}
