//! Passwords that change while a store runs.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{ErrorKind, StoreError};
use tollgate::{Policy, Quota};
use tollgate_redis::{Credentials, RedisStore, RedisStoreBuilder};
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server, short_or_long};

use crate::redis::tls::{Authority, before};
use crate::redis::{acquire, eventually, prefix, try_acquire};

const CALLERS: u32 = 8;

/// Servers whose user `app` gets one password after another. As secret stores do, the new one is
/// valid before an old one ends: the one before the last.
struct Rotation<'a> {
    servers: Vec<&'a Server>,
    password: Arc<Mutex<String>>,
    number: u32,
}

impl<'a> Rotation<'a> {
    fn new(servers: impl IntoIterator<Item = &'a Server>) -> Rotation<'a> {
        let password = Arc::new(Mutex::new("p0".to_owned()));
        let rotation = Rotation { servers: servers.into_iter().collect(), password, number: 0 };
        rotation.each(&["ACL", "SETUSER", "app", "on", ">p0", "~*", "&*", "+@all"]);
        rotation
    }

    fn each(&self, words: &[&str]) {
        for server in &self.servers {
            server.command(words).unwrap();
        }
    }

    /// Changes the password, and closes all connections.
    fn rotate(&mut self) {
        self.number += 1;
        let new = format!("p{}", self.number);
        self.each(&["ACL", "SETUSER", "app", &format!(">{new}")]);
        *self.password.lock().unwrap() = new;
        if let Some(old) = self.number.checked_sub(2) {
            self.each(&["ACL", "SETUSER", "app", &format!("<p{old}")]);
        }
        self.each(&["CLIENT", "KILL", "TYPE", "normal"]);
    }

    /// A store that takes the password of the moment.
    async fn store(&self, builder: RedisStoreBuilder) -> RedisStore {
        let password = Arc::clone(&self.password);
        let source = move || {
            let password = password.lock().unwrap().clone();
            async move { Ok::<_, Infallible>(Credentials::new("app", password)) }
        };
        builder.prefix(prefix()).credentials(source).connect().await.unwrap()
    }
}

#[derive(Debug, Default)]
struct Calls {
    granted: AtomicU32,
    /// Were cut, or found no connection.
    cut: AtomicU32,
    /// Were refused for want of credentials.
    refused: AtomicU32,
}

impl Calls {
    fn count(&self, error: &impl StoreError) {
        let is_refused = error.kind() == ErrorKind::Misconfigured;
        let count = if is_refused { &self.refused } else { &self.cut };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asks while passwords change.
async fn through(rotation: &mut Rotation<'_>, store: &RedisStore) -> Calls {
    let (calls, is_over) = (Arc::new(Calls::default()), Arc::new(AtomicBool::new(false)));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (store, calls, is_over) = (store.clone(), Arc::clone(&calls), Arc::clone(&is_over));
        callers.spawn(async move {
            let policy = Policy::new("p", Quota::per_day(1_000_000));
            let name = format!("caller-{caller}");
            while !is_over.load(Ordering::Relaxed) {
                match try_acquire(&store, &policy, &name, 1).await {
                    Ok(_) => drop(calls.granted.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        calls.count(&error);
                        sleep(Duration::from_millis(300)).await;
                    }
                }
            }
        });
    }
    let (rotations, pause) = short_or_long((4, Duration::from_millis(500)), (30, Duration::from_secs(2)));
    for _ in 0..rotations {
        sleep(pause).await;
        rotation.rotate();
        let before = calls.granted.load(Ordering::Relaxed);
        eventually("calls go through", async || {
            calls.granted.load(Ordering::Relaxed) > before || calls.refused.load(Ordering::Relaxed) > 0
        })
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    callers.join_all().await;
    Arc::into_inner(calls).unwrap()
}

async fn no_call_fails_for_want_of_credentials(servers: Vec<&Server>, builder: RedisStoreBuilder) {
    let mut rotation = Rotation::new(servers);
    let store = rotation.store(builder).await;
    let calls = through(&mut rotation, &store).await;
    assert_eq!(calls.refused.load(Ordering::Relaxed), 0, "{calls:?}");
    assert!(calls.granted.load(Ordering::Relaxed) > 0, "{calls:?}");
}

#[tokio::test]
async fn no_call_to_a_server_fails_while_its_password_changes() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    no_call_fails_for_want_of_credentials(vec![&server], RedisStore::builder(&server.url())).await;
}

/// So the test above could fail.
#[tokio::test]
async fn calls_with_a_fixed_password_fail_once_it_changes() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let mut rotation = Rotation::new([&server]);
    let fixed = RedisStore::builder(&format!("redis://app:p0@{}", server.address()));
    let store = fixed.prefix(prefix()).connect().await.unwrap();
    let calls = through(&mut rotation, &store).await;
    assert!(calls.refused.load(Ordering::Relaxed) > 0, "{calls:?}");
}

#[tokio::test]
async fn an_outage_by_a_fixed_password_ends_when_the_password_is_right_again() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let mut rotation = Rotation::new([&server]);
    let fixed = RedisStore::builder(&format!("redis://app:p0@{}", server.address()));
    let store = fixed.prefix(prefix()).connect().await.unwrap();
    let policy = Policy::new("p", Quota::per_day(1_000_000));
    rotation.rotate();
    rotation.rotate();
    eventually("calls fail", async || try_acquire(&store, &policy, "ada", 1).await.is_err()).await;
    rotation.each(&["ACL", "SETUSER", "app", ">p0"]);
    eventually("calls pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
}

#[tokio::test]
async fn no_call_to_a_master_of_sentinels_fails_while_its_password_changes() {
    let sentinel = Sentinel::start(Kind::Redis8_2).unwrap();
    let at = sentinel.sentinels()[0].address();
    let builder = RedisStore::builder(&format!("redis-sentinel://{at}/{}", sentinel.master_name()));
    no_call_fails_for_want_of_credentials(sentinel.servers().iter().collect(), builder).await;
}

#[tokio::test]
async fn no_call_to_a_cluster_fails_while_its_password_changes() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let builder = RedisStore::builder(&format!("redis-cluster://{}", cluster.nodes()[0].address()));
    no_call_fails_for_want_of_credentials(cluster.nodes().iter().collect(), builder).await;
}

#[tokio::test]
async fn no_call_over_tls_fails_while_the_password_changes() {
    let (server, authority) = (Server::start(Kind::Redis8_2).unwrap(), Authority::new());
    let at = before(&server, authority.identity("localhost"), None).await;
    let builder = RedisStore::builder(&format!("rediss://localhost:{}", at.port()));
    let builder = builder.root_certificates(authority.pem());
    no_call_fails_for_want_of_credentials(vec![&server], builder).await;
}

/// The numbers of the store's connections.
fn connections(server: &Server) -> BTreeSet<String> {
    let list = server.command(&["CLIENT", "LIST"]).unwrap();
    let of_store = list.lines().filter(|line| line.contains(" name=tollgate:"));
    of_store.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

/// How often connections logged in after they were made.
fn logins(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_connection_authenticates_again_before_its_token_ends() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let server = Server::start(kind).unwrap();
        let rotation = Rotation::new([&server]);
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let source = move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Credentials::new("app", "p0").valid_for(Duration::from_secs(1))) }
        };
        let builder = RedisStore::builder(&server.url()).prefix(prefix()).credentials(source);
        let store = builder.connect().await.unwrap();
        let policy = Policy::new("p", Quota::per_day(1_000_000));
        let before = connections(&server);
        assert_eq!(logins(&server), 0, "{kind}: the first login is part of HELLO");
        eventually("it logs in again", async || {
            acquire(&store, &policy, "ada", 1).await;
            logins(&server) >= 3
        })
        .await;
        assert!(before.is_subset(&connections(&server)), "{kind}: the connections stay");
        // Once for each token, however many connections there are.
        assert!(asked.load(Ordering::Relaxed) >= 4, "{kind}");
        drop(rotation);
    }
}

#[tokio::test]
async fn a_refused_password_is_asked_for_once_more() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let _rotation = Rotation::new([&server]);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let source = move || {
        // A token that is still kept, and not valid any more.
        let password = if count.fetch_add(1, Ordering::Relaxed) == 0 { "old" } else { "p0" };
        async move { Ok::<_, Infallible>(Credentials::new("app", password).valid_for(Duration::from_secs(3_600))) }
    };
    let builder = RedisStore::builder(&server.url()).prefix(prefix()).credentials(source);
    let store = builder.connect().await.unwrap();
    acquire(&store, &Policy::new("p", Quota::per_day(9)), "ada", 1).await;
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_password_that_is_refused_twice_is_a_configuration_error() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let _rotation = Rotation::new([&server]);
    let source = async || Ok::<_, Infallible>(Credentials::new("app", "hunter2"));
    let Err(error) = RedisStore::builder(&server.url()).credentials(source).connect().await else {
        panic!("the password is wrong");
    };
    assert!(error.is_configuration(), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_source_that_fails_is_an_outage_that_ends_with_it() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let _rotation = Rotation::new([&server]);
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let source = move || {
        let is_up = up.load(Ordering::Relaxed);
        async move { if is_up { Ok(Credentials::new("app", "p0")) } else { Err("no token today") } }
    };
    let store =
        RedisStore::builder(&server.url()).prefix(prefix()).credentials(source).connect().await.unwrap();
    let policy = Policy::new("p", Quota::per_day(9));
    let error = try_acquire(&store, &policy, "ada", 1).await.unwrap_err();
    assert!(error.is_transient() && error.executed_nothing(), "{error}");
    assert!(error.to_string().contains("no token today"), "{error}");
    is_up.store(true, Ordering::Relaxed);
    eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
}
