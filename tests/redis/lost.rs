//! Errors after which it is unknown whether a call was executed. The store never sends such a call
//! again.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tollgate::failure::CircuitState;
use tollgate::store::{Check, Store, StoreError, Times};
use tollgate::{CircuitBreaker, Key, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Proxy, Way};

use crate::redis::{Fresh, acquire, all_pass, eventually, every_policy, shared, try_acquire, used};

/// A store behind a proxy, and one that goes straight to the same limits.
struct Behind {
    proxy: Proxy,
    store: RedisStore,
    straight: Fresh,
}

impl Behind {
    async fn a_proxy_before(server: &Server) -> Behind {
        let proxy = Proxy::before(server.address()).await;
        let straight = Fresh::on(server).await;
        let store = straight.again(&format!("redis://{}/", proxy.address())).await;
        Behind { proxy, store, straight }
    }

    /// Waits until requests pass again. Returns how many units that took.
    async fn recovers(&self, policy: &Policy) -> u64 {
        let before = used(&self.straight.store, policy, "ada").await;
        eventually("requests pass", async || try_acquire(&self.store, policy, "ada", 1).await.is_ok()).await;
        used(&self.straight.store, policy, "ada").await - before
    }
}

fn an_hour(limit: u64) -> Policy {
    Policy::new("p", Quota::per_hour(limit))
}

/// rate-limit-redis and others send a call again if its connection was lost, and charge twice.
#[tokio::test]
async fn a_reply_that_is_lost_after_the_charge_charges_once() {
    for &kind in Kind::EVERY {
        let behind = Behind::a_proxy_before(shared(kind)).await;
        for (policy, _) in every_policy(100, Duration::from_secs(36_000)) {
            for n in 0..5 {
                behind.proxy.set(Way::IsOpen);
                assert_eq!(behind.recovers(&policy).await, 1);
                let (lost, before) =
                    (behind.proxy.lost(), used(&behind.straight.store, &policy, "ada").await);
                behind.proxy.set(Way::LosesAnswers);
                let error = try_acquire(&behind.store, &policy, "ada", 3).await.unwrap_err();
                assert!(error.is_transient() && !error.is_configuration(), "{error}");
                assert!(behind.proxy.lost() > lost);
                let after = used(&behind.straight.store, &policy, "ada").await;
                assert_eq!(after - before, 3, "loss {n} of {} on {kind}", policy.name());
            }
        }
    }
}

/// The first call of a script has two errors: the server does not know the script, and then the
/// reply is lost.
#[tokio::test]
async fn a_reply_that_is_lost_after_the_script_was_sent_whole_charges_once() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let behind = Behind::a_proxy_before(&server).await;
    let policy = an_hour(1_000);
    behind.recovers(&policy).await;
    for _ in 0..10 {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let before = used_without_scripts(&server, &behind.straight, &policy);
        let lost = behind.proxy.lost();
        behind.proxy.set(Way::LosesSecondAnswers);
        try_acquire(&behind.store, &policy, "ada", 1).await.unwrap_err();
        assert!(behind.proxy.lost() > lost);
        behind.proxy.set(Way::IsOpen);
        let once = used_without_scripts(&server, &behind.straight, &policy) - before;
        assert_eq!(once, 3_600_000, "in microseconds of TAT");
        behind.recovers(&policy).await;
    }
}

/// TAT, in microseconds. A look by the store would load the script.
fn used_without_scripts(server: &Server, fresh: &Fresh, policy: &Policy) -> u64 {
    server.command(&["GET", &fresh.name(policy, "ada")]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_an_error_and_charges_once() {
    let server = shared(Kind::Redis8_2);
    let proxy = Proxy::before(server.address()).await;
    let straight = Fresh::on(server).await;
    let builder = RedisStore::builder(&format!("redis://{}/", proxy.address())).prefix(&*straight.prefix);
    let store = builder.response_timeout(Duration::from_millis(100)).connect().await.unwrap();
    let policy = an_hour(1_000);
    for way in [Way::HoldsAnswersBack, Way::IsSlow(Duration::from_millis(300)), Way::HoldsAnswersBack] {
        for _ in 0..4 {
            proxy.set(Way::IsOpen);
            eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
            let before = used(&straight.store, &policy, "ada").await;
            proxy.set(way);
            let error = try_acquire(&store, &policy, "ada", 2).await.unwrap_err();
            assert!(error.is_timeout(), "{error}");
            // A busy machine may take longer than the caller waits.
            eventually("it is charged", async || used(&straight.store, &policy, "ada").await > before).await;
            assert_eq!(used(&straight.store, &policy, "ada").await - before, 2);
            // A late answer belongs to no caller.
            proxy.set(Way::IsOpen);
            let verdict = loop {
                if let Ok(verdict) = try_acquire(&store, &policy, "ada", 1).await {
                    break verdict;
                }
            };
            let left = policy.capacity() - used(&straight.store, &policy, "ada").await;
            assert_eq!(verdict.each()[0].remaining(), left, "another request's answer");
        }
    }
}

/// The path was cut silently while the store was idle. The first request after it must not fail.
#[tokio::test]
async fn the_first_request_after_connections_were_cut_passes() {
    let behind = Behind::a_proxy_before(shared(Kind::Valkey9_1)).await;
    let policy = an_hour(1_000);
    for _ in 0..10 {
        acquire(&behind.store, &policy, "ada", 1).await;
        let accepted = behind.proxy.accepted();
        behind.proxy.cut();
        // The store notices the loss while it is idle. Otherwise a request would find out.
        tokio::time::sleep(Duration::from_millis(50)).await;
        acquire(&behind.store, &policy, "ada", 1).await;
        assert!(behind.proxy.accepted() > accepted);
    }
}

/// A firewall has forgotten the connections, or a machine is gone: the connections stay open and
/// pass nothing. A circuit breaker probes rarely, so few probes must be enough.
#[tokio::test]
async fn silent_connections_are_all_replaced_at_once() {
    let server = shared(Kind::Redis8_2);
    let proxy = Proxy::before(server.address()).await;
    let builder =
        RedisStore::builder(&format!("redis://{}/", proxy.address())).prefix(crate::redis::prefix());
    let builder = builder.connections(2).response_timeout(Duration::from_millis(250));
    let store = builder.connect().await.unwrap();
    let policy = an_hour(1_000);
    // While the first call waits for its answer, the second takes another connection.
    proxy.set(Way::IsSlow(Duration::from_millis(20)));
    eventually("there are two connections", async || {
        let second = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            try_acquire(&store, &policy, "ada", 1).await
        };
        let both = tokio::join!(try_acquire(&store, &policy, "ada", 1), second);
        both.0.is_ok() && both.1.is_ok() && proxy.accepted() >= 2
    })
    .await;
    proxy.set(Way::IsOpen);
    proxy.strand();
    let mut unanswered = 0;
    while let Err(error) = try_acquire(&store, &policy, "ada", 1).await {
        assert!(error.is_timeout(), "{error}");
        unanswered += 1;
    }
    // Three, and one more on a machine that is slow to connect. Three for each connection would be
    // six.
    assert!((3..=4).contains(&unanswered), "{unanswered} calls until they were given up");
}

/// The other connection works, and does not hide the silent one.
#[tokio::test]
async fn one_silent_connection_is_replaced() {
    let server = shared(Kind::Redis8_2);
    let proxy = Proxy::before(server.address()).await;
    let builder =
        RedisStore::builder(&format!("redis://{}/", proxy.address())).prefix(crate::redis::prefix());
    let store = builder.response_timeout(Duration::from_millis(250)).connect().await.unwrap();
    let policy = an_hour(1_000);
    acquire(&store, &policy, "ada", 1).await;
    assert_eq!(proxy.accepted(), 1);
    proxy.strand();
    let (mut unanswered, mut answered) = (0, 0);
    while answered < 20 {
        // While the first call waits, the second takes a connection of its own.
        let second = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            try_acquire(&store, &policy, "ada", 1).await
        };
        let both = tokio::join!(try_acquire(&store, &policy, "ada", 1), second);
        for asked in [both.0, both.1] {
            match asked {
                Ok(_) => answered += 1,
                Err(error) => {
                    assert!(error.is_timeout(), "{error}");
                    unanswered += 1;
                }
            }
        }
        assert!(unanswered < 10, "it is never given up: {answered} were answered meanwhile");
    }
    // Another call may have shared the connection with the one that got no answer.
    assert!((1..=6).contains(&unanswered), "{unanswered} calls until it was given up");
}

/// Redis accepts connections and never answers, from the start or later. Requests get errors in
/// time, and pass when Redis answers again.
#[tokio::test]
async fn a_server_that_stopped_answering_is_used_again_when_it_recovers() {
    let server = shared(Kind::Installed);
    let proxy = Proxy::before(server.address()).await;
    let straight = Fresh::on(server).await;
    proxy.set(Way::IsSilent);
    let builder = RedisStore::builder(&format!("redis://{}/", proxy.address())).prefix(&*straight.prefix);
    // A busy machine may stop this process for a while: that is no silence of the server.
    let patience = Duration::from_millis(500);
    let store = builder.connect_timeout(patience).response_timeout(patience).connect().await.unwrap();
    let policy = an_hour(1_000_000);
    for way in [Way::IsSilent, Way::IsClosed, Way::HoldsAnswersBack, Way::IsSilent] {
        proxy.set(way);
        for _ in 0..3 {
            let error = try_acquire(&store, &policy, "ada", 1).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
        }
        proxy.set(Way::IsOpen);
        eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
        eventually("20 in a row pass", async || all_pass(&store, &policy, 20).await).await;
    }
}

/// Requests that gather for a call also share its failure to connect.
#[tokio::test]
async fn a_failed_connection_is_one_failure_for_the_circuit() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let store = RedisStore::connect(&format!("redis://{address}/")).await.unwrap();
    let store = store.circuit_breaker(CircuitBreaker::default());
    let policy = an_hour(1_000);
    let keys: Vec<Key> = (0..100_u32).map(Key::from).collect();
    let asked: Vec<_> =
        keys.iter().map(|key| store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE)).collect();
    let mut calls = Vec::new();
    for answer in asked {
        calls.push(answer.wait().await.unwrap_err().call());
    }
    assert!(calls[0].is_some() && calls.iter().all(|call| *call == calls[0]), "{calls:?}");
    assert_eq!(store.circuit().state(), CircuitState::Closed);
}
