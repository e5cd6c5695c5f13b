//! Servers and proxies that speak RESP2 only, and proxies that spread keys over several servers.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::StoreError;
use tollgate::{Policy, Quota};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server, Twemproxy};

use crate::redis::contract::{holds, whole_or_short};
use crate::redis::{builder, prefix, shared, try_acquire};

/// It has no `HELLO`, no `TIME` and no `INFO`, and closes a connection that sends one.
#[test]
fn a_proxy_that_speaks_resp2_only_keeps_the_contract() {
    let proxy = Twemproxy::start(&[shared(Kind::Redis8_2).address()]).unwrap();
    holds(whole_or_short(), &proxy.url(), SlidingLogLayout::List);
}

/// Each server would admit the whole limit, so twice as much in all.
#[tokio::test]
async fn a_proxy_that_spreads_keys_is_refused_with_the_reason() {
    let servers = [Server::start(Kind::Redis8_2).unwrap(), Server::start(Kind::Redis8_2).unwrap()];
    let proxy = Twemproxy::start(&servers.each_ref().map(Server::address)).unwrap();
    for query in ["", "?protocol=resp2"] {
        let url = format!("{}{query}", proxy.url());
        let Err(error) = RedisStore::connect(&url).await else { panic!("{url} was accepted") };
        assert!(error.is_configuration() && !error.is_transient(), "{error}");
        assert!(error.to_string().contains("spreads the keys of this URL over several servers"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_spreads_keys_is_refused_once_its_servers_are_up() {
    let servers = [Server::start(Kind::Redis8_2).unwrap(), Server::start(Kind::Redis8_2).unwrap()];
    let proxy = Twemproxy::start(&servers.each_ref().map(Server::address)).unwrap();
    servers.iter().for_each(Server::kill);
    let store = RedisStore::builder(&proxy.url()).prefix(prefix()).connect().await.unwrap();
    let policy = Policy::new("p", Quota::per_day(5));
    assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap_err().is_transient());
    servers.iter().for_each(|server| server.restart().unwrap());
    crate::redis::eventually("the proxy is refused", async || {
        let answer = try_acquire(&store, &policy, "ada", 1).await;
        assert!(answer.is_err(), "the proxy decided a check");
        answer.is_err_and(|error| error.is_configuration())
    })
    .await;
}

#[tokio::test]
async fn resp2_is_spoken_if_the_url_asks_for_it() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        for (query, version) in [("", "resp=3"), ("?protocol=resp2", "resp=2")] {
            let store = builder(&format!("{}{query}", server.url())).connect().await.unwrap();
            let policy = Policy::new("p", Quota::per_day(5));
            assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap().is_granted(), "{kind}");
            let clients = server.command(&["CLIENT", "LIST"]).unwrap();
            let ours = |line: &&str| line.contains("cmd=eval") || line.contains("cmd=mget");
            // Redis 6.2 does not list the version.
            if clients.contains("resp=") {
                assert!(clients.lines().filter(ours).any(|line| line.contains(version)), "{kind}: {clients}");
            }
        }
    }
}

#[tokio::test]
async fn the_first_request_in_resp2_after_connections_were_cut_passes() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = builder(&format!("{}?protocol=resp2", server.url())).connect().await.unwrap();
    passes_after_connections_were_cut(&server, &store).await;
}

pub(crate) async fn passes_after_connections_were_cut(server: &Server, store: &RedisStore) {
    let policy = Policy::new("p", Quota::per_day(5));
    assert!(try_acquire(store, &policy, "ada", 1).await.unwrap().is_granted());
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    // In RESP2 a connection that was idle for a second is tried first.
    sleep(Duration::from_millis(1_100)).await;
    assert!(try_acquire(store, &policy, "ada", 1).await.unwrap().is_granted());
}

#[tokio::test]
async fn connections_are_named_after_the_crate_and_its_version() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let _store = RedisStore::connect(&server.url()).await.unwrap();
    let clients = server.command(&["CLIENT", "LIST"]).unwrap();
    assert!(clients.contains(" name=tollgate:0."), "{clients}");
}
