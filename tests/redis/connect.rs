//! Errors that `connect` returns at once, and outages that it waits for.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tokio::time::timeout;
use tollgate::store::StoreError;
use tollgate::{Policy, Quota};
use tollgate_redis::{Error, RedisStore};
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server};
use tollgate_tests::Proxy;

use crate::redis::{at_once, builder, eventually, every_policy, prefix, shared, try_acquire};

async fn connect(url: &str) -> Result<RedisStore, Error> {
    let connected = RedisStore::builder(url).prefix(prefix()).connect();
    timeout(Duration::from_secs(30), connected)
        .await
        .unwrap_or_else(|_| panic!("no end of connecting to {url}"))
}

async fn is_refused(url: &str) {
    match builder(url).prefix(prefix()).connect().await {
        Ok(_) => panic!("{url} is taken for a Redis that is down"),
        Err(error) => {
            assert!(error.is_configuration() && !error.is_transient(), "{url}: {error}");
        }
    }
}

#[tokio::test]
async fn an_invalid_redis_url_is_refused() {
    for url in
        ["", "127.0.0.1:6379", "http://127.0.0.1/", "redis://127.0.0.1/x", "redis-cluster://127.0.0.1/1"]
    {
        is_refused(url).await;
    }
    let builder = || RedisStore::builder("redis://127.0.0.1:1/");
    for refused in [
        builder().prefix(""),
        builder().prefix("a{b"),
        builder().prefix("a b"),
        builder().prefix("é"),
        builder().secret(""),
        builder().connections(0),
        builder().most_waiting(0),
        builder().response_timeout(Duration::ZERO),
        builder().connect_timeout(Duration::ZERO),
    ] {
        assert!(refused.connect().await.unwrap_err().is_configuration());
    }
}

#[tokio::test]
async fn a_wrong_password_fails_at_once() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let at = server.address();
        server.command(&["ACL", "SETUSER", "ada", "on", ">right", "~*", "+@all"]).unwrap();
        server.command(&["ACL", "SETUSER", "off", "off", ">right", "~*", "+@all"]).unwrap();
        connect(&format!("redis://ada:right@{at}/")).await.unwrap();
        for who in ["ada:wrong", "off:right", "nobody:right"] {
            is_refused(&format!("redis://{who}@{at}/")).await;
        }
        server.command(&["CONFIG", "SET", "requirepass", "right"]).unwrap();
        connect(&format!("redis://:right@{at}/")).await.unwrap();
        for who in ["", ":wrong@", "default:wrong@"] {
            is_refused(&format!("redis://{who}{at}/")).await;
        }
    }
}

#[tokio::test]
async fn a_unix_socket_url_connects() {
    let directory = tempfile::tempdir().unwrap();
    for (n, &kind) in Kind::EVERY.iter().enumerate() {
        let path = directory.path().join(n.to_string());
        let path = path.to_str().unwrap();
        let server = Server::start_with(kind, &["--unixsocket", path]).unwrap();
        let store = connect(&format!("unix://{path}")).await.unwrap();
        let policy = Policy::new("p", Quota::per_day(1));
        assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap().is_granted(), "on {kind}");
        assert!(!try_acquire(&store, &policy, "ada", 1).await.unwrap().is_granted(), "on {kind}");
        drop(server);
    }
}

#[tokio::test]
async fn a_missing_database_fails_at_once() {
    for &kind in Kind::EVERY {
        is_refused(&format!("{}999", shared(kind).url())).await;
    }
}

/// If reads are refused, the store must not take the key for a new one.
#[tokio::test]
async fn a_missing_permission_is_an_error_and_grants_nothing() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let at = server.address();
        for (name, rules) in [
            ("pattern", "~other:* +@all"),
            ("evalsha", "~* +@all -evalsha"),
            ("mget", "~* +@all -mget"),
            ("time", "~* +@all -time"),
            ("psetex", "~* +@all -psetex"),
            ("incrby", "~* +@all -incrby"),
            ("pexpire", "~* +@all -pexpire"),
            ("pttl", "~* +@all -pttl"),
            ("del", "~* +@all -del"),
            // By then the server knows the scripts.
            ("eval", "~* +@all -eval"),
            ("nothing", "~*"),
        ] {
            let words = ["ACL", "SETUSER", name, "on", ">pw"].into_iter().chain(rules.split(' '));
            server.command(&words.collect::<Vec<_>>()).unwrap();
            let connected = connect(&format!("redis://{name}:pw@{at}/")).await;
            let error = connected.err().unwrap_or_else(|| panic!("{rules} is enough for {kind}"));
            assert!(error.is_configuration(), "{rules} on {kind}: {error}");
            assert!(!error.to_string().contains("~gcra"), "a key in {error}");
        }
    }
}

/// Only some algorithms need these commands, so their first request finds out.
#[tokio::test]
async fn a_forbidden_command_of_an_algorithm_is_an_error_and_grants_nothing() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        for (policy, layout) in every_policy(2, Duration::from_secs(600)) {
            for command in [
                "hmget", "lindex", "zrange", "rpush", "zadd", "hset", "hincrby", "incrby", "psetex",
                "pexpire",
            ] {
                server.command(&["ACL", "SETUSER", "ada", "reset", "on", ">pw", "~*", "+@all"]).unwrap();
                let url = format!("redis://ada:pw@{}/", server.address());
                let builder = builder(&url).prefix(prefix()).sliding_log(layout);
                let store = builder.connect().await.unwrap();
                server.command(&["ACL", "SETUSER", "ada", &format!("-{command}")]).unwrap();
                let mut granted = 0;
                for _ in 0..10 {
                    match try_acquire(&store, &policy, "ada", 1).await {
                        Ok(verdict) => granted += u64::from(verdict.times()),
                        Err(error) => assert!(error.is_configuration(), "-{command} on {kind}: {error}"),
                    }
                }
                let most = policy.largest_cost();
                assert!(granted <= most, "{granted} for {} without {command} on {kind}", policy.name());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topology_that_contradicts_the_url_is_an_error() {
    at_once(&[Kind::Redis6_2, Kind::Valkey9_1], a_topology_contradicts_the_url_on).await;
}

async fn a_topology_contradicts_the_url_on(kind: Kind) {
    let cluster = Cluster::start(kind).unwrap();
    for node in cluster.nodes() {
        is_refused(&node.url()).await;
    }
    is_refused(&format!("redis-sentinel://{}/tollgate", cluster.nodes()[0].address())).await;
    let sentinel = Sentinel::start(kind).unwrap();
    let at = sentinel.sentinels()[0].address();
    is_refused(&format!("redis://{at}/")).await;
    is_refused(&format!("redis-cluster://{at}")).await;
    is_refused(&format!("redis-sentinel://{at}/another-master")).await;
    let server = shared(kind).address();
    is_refused(&format!("redis-cluster://{server}")).await;
    is_refused(&format!("redis-sentinel://{server}/tollgate")).await;
    // A password that the nodes do not want, or a wrong one.
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "requirepass", "right"]).unwrap();
    }
    let node = cluster.nodes()[0].address();
    is_refused(&format!("redis-cluster://{node}")).await;
    is_refused(&format!("redis-cluster://:wrong@{node}")).await;
    for server in sentinel.servers() {
        server.command(&["CONFIG", "SET", "requirepass", "right"]).unwrap();
    }
    is_refused(&format!("redis-sentinel://{at}/{}", sentinel.master_name())).await;
    is_refused(&format!("redis-sentinel://:wrong@{at}/{}", sentinel.master_name())).await;
}

/// A service starts while its Redis is down.
#[tokio::test]
async fn a_store_connects_while_redis_is_down_and_decides_once_it_is_up() {
    let policy = Policy::new("p", Quota::per_day(100));
    let server = Server::start(Kind::Redis8_2).unwrap();
    server.kill();
    let store = connect(&server.url()).await.unwrap();
    let error = try_acquire(&store, &policy, "ada", 1).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    server.restart().unwrap();
    eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;

    // It accepts connections and never answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = silent.local_addr().unwrap();
    for url in
        [format!("redis://{at}/"), format!("redis-cluster://{at}"), format!("redis-sentinel://{at}/tollgate")]
    {
        let store = connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        let asked = timeout(Duration::from_secs(30), try_acquire(&store, &policy, "ada", 1)).await;
        let error = asked.unwrap_or_else(|_| panic!("no end of asking {url}")).unwrap_err();
        assert!(error.is_transient(), "{url}: {error}");
    }
    drop(silent);
    for url in
        [format!("redis://{at}/"), format!("redis-cluster://{at}"), format!("redis-sentinel://{at}/tollgate")]
    {
        let store = connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap_err().is_transient());
    }
}

/// Failure policies log the error of a store. A server that does not know a command repeats its
/// arguments.
#[tokio::test]
async fn an_error_names_no_key() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let stranger = Server::start_with(kind, &["--sentinel"]).unwrap();
        let proxy = Proxy::before(server.address()).await;
        let store = connect(&format!("redis://{}/", proxy.address())).await.unwrap();
        proxy.lead_to(stranger.address());
        proxy.cut();
        let policy = Policy::new("p", Quota::per_day(100));
        eventually("it is refused", async || {
            let asked = try_acquire(&store, &policy, "ada@example.com", 1).await;
            let Err(error) = asked else { return false };
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(!text.contains("example"), "{text}");
            }
            error.is_configuration()
        })
        .await;
    }
}
