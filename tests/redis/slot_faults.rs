//! Slots and debts while a server fails over or has no memory left.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::sleep;
use tollgate::store::{ErrorKind, Grant, NeverFails, Renewal, Stamp, Store, StoreError, renewals};
use tollgate::{Algorithm, Key, Limiter, Policy, Quota, Reason, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Sentinel, Server};

use crate::redis::sentinel::url;
use crate::redis::{Fresh, acquire, builder, eventually, prefix, try_acquire, used};

const MINUTE: Duration = Duration::from_secs(60);

fn exports(limit: u64) -> Policy {
    Policy::in_flight("exports", limit).with_ttl(MINUTE)
}

fn tokens() -> Policy {
    Policy::new("tokens", Quota::per_day(100)).with_algorithm(Algorithm::FIXED_WINDOW)
}

/// Waits until a replica of each master has all that the master wrote until now.
async fn replicated(sentinel: &Sentinel) {
    let field = |server: &Server, name: &str| -> Option<u64> {
        let info = server.command(&["INFO", "replication"]).ok()?;
        info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let master = sentinel.master().unwrap();
    let written = field(master, "master_repl_offset:").unwrap();
    let replicas: Vec<&Server> =
        sentinel.servers().iter().filter(|server| server.port() != master.port()).collect();
    eventually("the replicas have it", async || {
        replicas.iter().all(|one| field(one, "slave_repl_offset:").is_some_and(|offset| offset >= written))
    })
    .await;
}

/// Why a request is refused once the store answers again.
async fn reason<S: Store<Error: NeverFails>>(limiter: &Limiter<S>, key: &Key) -> Reason {
    for _ in 0..600 {
        match limiter.check(key, 1).await.map(drop).map_err(|denial| denial.reason()) {
            Err(Reason::Unavailable) => sleep(Duration::from_millis(100)).await,
            answer => return answer.expect_err("it is granted"),
        }
    }
    panic!("the store does not answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_and_debts_outlive_a_failover_to_a_replica_that_has_them() {
    let sentinel = Sentinel::start(Kind::Valkey9_1).unwrap();
    let store = RedisStore::builder(&url(&sentinel)).prefix(prefix()).connect().await.unwrap();
    let store = store.timeout(MINUTE).fail_closed();
    let ada = Key::from("ada");
    let [slots, tokens] = [exports(2), tokens()].map(|policy| Limiter::new([policy]).store(store.clone()));
    let held = [slots.check(&ada, 1).await.unwrap(), slots.check(&ada, 1).await.unwrap()];
    let mut reserved = tokens.check(&ada, 10).await.unwrap();
    let settled = reserved.charge("tokens").settle(150).await;
    assert_eq!((settled.charged, settled.debt), (150, 50));
    replicated(&sentinel).await;
    let old = sentinel.master().unwrap();
    old.kill();
    block_in_place(|| sentinel.next_master(old)).unwrap();
    assert_eq!(reason(&slots, &ada).await, Reason::QuotaExceeded, "both slots are held");
    assert_eq!(reason(&tokens, &ada).await, Reason::QuotaExceeded, "the debt is not paid");
    assert!(held.iter().all(|permit| !permit.slot().is_lost()));
    drop(held);
    eventually("the slots are free", async || {
        slots.look(&ada).await.is_ok_and(|report| report.statuses().iter().all(|one| one.remaining() == 2))
    })
    .await;
}

fn grant<'a>(policy: &'a Policy, key: &'a Key, units: u64, stamp: Stamp) -> Grant<'a> {
    Grant { policy, key, units, stamp, share: None }
}

/// Its memory is full, and it evicts nothing. Commands that need no memory still run.
#[tokio::test]
async fn a_full_server_fails_claims_with_an_error_and_takes_back_slots() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2, Kind::Valkey9_1] {
        let server = Server::start(kind).unwrap();
        let fresh = Fresh::on(&server).await;
        let (store, slots, tokens, ada) = (&fresh.store, exports(2), tokens(), Key::from("ada"));
        let [kept, released] =
            [acquire(store, &slots, "ada", 1).await, acquire(store, &slots, "ada", 1).await]
                .map(|v| v.each()[0].stamp());
        let charged = acquire(store, &tokens, "ada", 10).await.each()[0].stamp();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();

        for (policy, key) in [(&slots, "bob"), (&tokens, "bob"), (&tokens, "ada")] {
            let error = try_acquire(store, policy, key, 1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{kind}: {error}");
        }
        let renewals = renewals(store, &[grant(&slots, &ada, 1, kept)]).await.unwrap();
        assert_eq!(renewals, [Renewal::Held], "{kind}");
        store.refund(&[grant(&slots, &ada, 1, released)]).await.unwrap();
        assert_eq!(used(store, &slots, "ada").await, 1, "{kind}");
        // The key has a slot already.
        assert!(acquire(store, &slots, "ada", 1).await.is_granted(), "{kind}");
        let grants = [grant(&tokens, &ada, 10, charged)];
        for total in [8, 150] {
            let error = store.settle(&grants, total).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{kind}: {error}");
        }

        server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        let left = [(&slots, "ada"), (&slots, "bob"), (&tokens, "ada"), (&tokens, "bob")];
        for ((policy, key), units) in left.into_iter().zip([2, 0, 10, 0]) {
            assert_eq!(used(store, policy, key).await, units, "{kind}: {key}");
        }
        let settled = store.settle(&grants, 8).await.unwrap();
        assert_eq!((settled.charged, used(store, &tokens, "ada").await), (8, 8), "{kind}");
    }
}

/// The same through a limiter whose failure policy lets requests pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_slot_is_left_behind_by_requests_of_a_full_server() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = builder(&server.url()).prefix(prefix()).connect().await.unwrap();
    let (slots, tokens, ada) = (exports(50), tokens(), Key::from("ada"));
    let limiter =
        Limiter::new([slots.clone(), tokens.clone()]).store(store.clone().timeout(MINUTE).fail_open());
    for n in 0..300 {
        if n % 50 == 10 {
            server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        }
        if n % 50 == 40 {
            server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        }
        let mut permit = limiter.check_each(&[("exports", &ada, 1), ("tokens", &ada, 1)]).await.unwrap();
        permit.charge("tokens").settle(0).await;
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    eventually("each slot is free", async || used(&store, &slots, "ada").await == 0).await;
}
