//! A master under Sentinels.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::StoreError;
use tollgate::{Algorithm, Policy, Quota};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Sentinel, Server};
use tollgate_tests::Proxy;

use crate::redis::{Fresh, acquire, eventually, prefix, try_acquire};

pub(crate) fn url(sentinel: &Sentinel) -> String {
    let addresses: Vec<String> = sentinel.sentinels().iter().map(|one| one.address().to_string()).collect();
    format!("redis-sentinel://{}/{}", addresses.join(","), sentinel.master_name())
}

fn a_day() -> Policy {
    Policy::new("p", Quota::per_day(1_000_000)).with_algorithm(Algorithm::FIXED_WINDOW)
}

async fn passes_again(store: &RedisStore) {
    let policy = a_day();
    eventually("requests pass", async || try_acquire(store, &policy, "ada", 1).await.is_ok()).await;
    for _ in 0..20 {
        acquire(store, &policy, "ada", 1).await;
    }
}

/// No server fails. The old master goes on as one until the Sentinels notice and make a replica of
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_master_is_replaced_by_its_successor() {
    let sentinel = Sentinel::start(Kind::Redis6_2).unwrap();
    let store = RedisStore::builder(&url(&sentinel)).prefix(prefix()).connect().await.unwrap();
    passes_again(&store).await;
    let new = tokio::task::block_in_place(|| sentinel.failover()).unwrap();
    eventually("the new one is asked", async || {
        // During the change there may be errors, but nothing stays broken.
        let _ = try_acquire(&store, &a_day(), "ada", 1).await;
        new.command(&["INFO", "commandstats"]).unwrap().contains("cmdstat_evalsha")
    })
    .await;
    passes_again(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_replaced_by_its_successor() {
    let sentinel = Sentinel::start(Kind::Installed).unwrap();
    let store = RedisStore::builder(&url(&sentinel)).prefix(prefix()).connect().await.unwrap();
    passes_again(&store).await;
    let old = sentinel.master().unwrap();
    old.kill();
    tokio::task::block_in_place(|| sentinel.next_master(old)).unwrap();
    passes_again(&store).await;
}

/// The Sentinels' password is not that of the servers, which the URL has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_get_their_own_password() {
    let sentinel = Sentinel::start(Kind::Installed).unwrap();
    for one in sentinel.sentinels() {
        one.command(&["ACL", "SETUSER", "default", "resetpass", ">hunter2"]).unwrap();
    }
    let builder = || RedisStore::builder(&url(&sentinel)).prefix(prefix());
    passes_again(&builder().sentinel_credentials("default", "hunter2").connect().await.unwrap()).await;

    for refused in [builder(), builder().sentinel_credentials("default", "hunter3")] {
        let error = refused.connect().await.map(|_| ()).unwrap_err();
        assert!(error.is_configuration() && !error.to_string().contains("hunter"), "{error}");
    }
    let elsewhere = RedisStore::builder("redis://127.0.0.1:1/").sentinel_credentials("default", "hunter2");
    assert!(elsewhere.connect().await.unwrap_err().is_configuration());
}

/// Sentinels that see their master down name none during a failover. If that counted as a
/// misconfiguration, the circuit breaker would stay closed and the service would not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_down_is_not_a_misconfiguration() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let sentinel = Sentinel::start(kind).unwrap();
        let builder = || RedisStore::builder(&url(&sentinel)).prefix(prefix());
        let store = builder().connect().await.unwrap();
        passes_again(&store).await;
        // There is no replica to take over.
        sentinel.servers().iter().for_each(Server::kill);
        eventually("the sentinels see it", async || {
            sentinel.sentinels().iter().all(|one| {
                one.command(&["SENTINEL", "MASTER", sentinel.master_name()]).unwrap().contains("s_down")
            })
        })
        .await;
        let late = builder().connect().await.unwrap_or_else(|error| panic!("on {kind}: {error}"));
        for store in [store, late] {
            for _ in 0..10 {
                let error = try_acquire(&store, &a_day(), "ada", 1).await.unwrap_err();
                assert!(error.is_transient(), "{error} on {kind}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Two of three Sentinels do not answer or are gone. The third one knows the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_sentinel_does_not_delay_connecting() {
    let sentinel = Sentinel::start(Kind::Valkey9_1).unwrap();
    sentinel.sentinels()[0].pause().unwrap();
    let store = RedisStore::builder(&url(&sentinel)).prefix(prefix()).connect().await.unwrap();
    passes_again(&store).await;
    // Connections are lost meanwhile too.
    sentinel.sentinels()[1].kill();
    let master =
        sentinel.servers().iter().find(|server| server.command(&["ROLE"]).unwrap().starts_with("master"));
    master.unwrap().command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    passes_again(&store).await;
}

/// The store asks all Sentinels at once and within the timeout. The first of the list may be on a
/// lost machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_sentinel_does_not_use_up_a_short_timeout() {
    let sentinel = Sentinel::start(Kind::Redis8_2).unwrap();
    sentinel.sentinels()[..2].iter().for_each(|one| one.pause().unwrap());
    let short = Duration::from_secs(2);
    // A busy machine may take longer than that. If the first of the list were awaited, each attempt
    // would fail.
    eventually("the first request of a store passes", async || {
        let builder = RedisStore::builder(&url(&sentinel)).prefix(prefix()).connections(1);
        let store = builder.connect_timeout(short).response_timeout(short).connect().await.unwrap();
        try_acquire(&store, &a_day(), "ada", 1).await.is_ok()
    })
    .await;
}

/// A Sentinel with old information names a replica. The store neither asks the replica to decide
/// nor reports a misconfiguration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_at_the_masters_address_is_not_used_as_master() {
    let sentinel = Sentinel::start(Kind::Installed).unwrap();
    let master = sentinel.master().unwrap();
    let replica = sentinel.servers().iter().find(|server| server.port() != master.port()).unwrap();
    let monitor = ["sentinel", "monitor", "elsewhere", "127.0.0.1", &replica.port().to_string(), "2"];
    let stale = &sentinel.sentinels()[0];
    stale.command(&monitor).unwrap();
    let url = format!("redis-sentinel://{}/elsewhere", stale.address());
    let store = RedisStore::builder(&url).prefix(prefix()).connect().await.unwrap();
    let error = try_acquire(&store, &a_day(), "ada", 1).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("replica"), "{error}");
    // If another Sentinel names the real master, the store uses that one.
    let knowing = &sentinel.sentinels()[1];
    knowing
        .command(&["sentinel", "monitor", "elsewhere", "127.0.0.1", &master.port().to_string(), "2"])
        .unwrap();
    let url = format!("redis-sentinel://{},{}/elsewhere", stale.address(), knowing.address());
    passes_again(&RedisStore::builder(&url).prefix(prefix()).connect().await.unwrap()).await;
}

/// One address leads to the current master, as cloud operators set it up. Connections to the old
/// master stay open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_demoted_master_is_replaced() {
    for &kind in Kind::EVERY {
        let (old, new) = (Server::start(kind).unwrap(), Server::start(kind).unwrap());
        let proxy = Proxy::before(old.address()).await;
        let fresh = Fresh::on(&old).await;
        let store = fresh.again(&format!("redis://{}/", proxy.address())).await;
        acquire(&store, &a_day(), "ada", 1).await;
        proxy.lead_to(new.address());
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).unwrap();
        eventually("the replica follows", async || {
            old.command(&["INFO", "replication"]).unwrap().contains("master_link_status:up")
        })
        .await;
        // The replica executed nothing, so no caller gets an error.
        for _ in 0..20 {
            let passed = try_acquire(&store, &a_day(), "ada", 1).await;
            assert!(passed.is_ok(), "{:?} on {kind}", passed.err());
        }
    }
}

/// All idle connections lead to the old master. After the first failure the store tries none of the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_to_a_demoted_master_are_replaced_at_once() {
    let (old, new) = (Server::start(Kind::Redis8_2).unwrap(), Server::start(Kind::Redis8_2).unwrap());
    let proxy = Proxy::before(old.address()).await;
    let fresh = Fresh::on(&old).await;
    let store = fresh.again(&format!("redis://{}/", proxy.address())).await;
    // Calls that are in flight at the same time.
    old.pause().unwrap();
    let mut callers = JoinSet::new();
    for n in 0..4 {
        let store = store.clone();
        callers.spawn(async move { try_acquire(&store, &a_day(), &format!("caller {n}"), 1).await });
        sleep(Duration::from_millis(20)).await;
    }
    old.resume().unwrap();
    callers.join_all().await;
    assert!(proxy.accepted() >= 4, "there are {} connections", proxy.accepted());

    proxy.lead_to(new.address());
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).unwrap();
    for _ in 0..20 {
        acquire(&store, &a_day(), "ada", 1).await;
    }
}

/// No failover happens: the address keeps leading to a server that does not write, because an
/// operator did so. Or it leads to one that has lost its master and is silent until it may write
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_at_the_masters_address_is_not_reconnected_in_a_loop() {
    for (kind, alone) in [(Kind::Redis6_2, false), (Kind::Valkey9_1, false), (Kind::Redis8_2, true)] {
        let (old, new) = (Server::start(kind).unwrap(), Server::start(kind).unwrap());
        let proxy = Proxy::before(old.address()).await;
        let fresh = Fresh::on(&old).await;
        let store = fresh.again(&format!("redis://{}/", proxy.address())).await;
        acquire(&store, &a_day(), "ada", 1).await;
        if alone {
            old.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).unwrap();
            new.kill();
        }
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).unwrap();
        let asked = proxy.accepted();
        let mut callers = JoinSet::new();
        for n in 0..8 {
            let store = store.clone();
            callers.spawn(async move {
                for _ in 0..200 {
                    let error = try_acquire(&store, &a_day(), &format!("caller {n}"), 1).await.unwrap_err();
                    assert!(error.is_transient(), "{error}");
                    sleep(Duration::from_millis(5)).await;
                }
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        // The server answers each of the 1,600 requests, and connections follow with pauses of up
        // to half a second.
        let connected = proxy.accepted() - asked;
        assert!((3..200).contains(&connected), "{connected} times on {kind}");
        old.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        passes_again(&store).await;
    }
}
