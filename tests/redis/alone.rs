//! Callers that do not poll their answer, leave early, or await it in another runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::store::{Check, Grant, Stamp, Store, StoreError, Times};
use tollgate::{Key, Policy, Quota};
use tollgate_redis::{RedisStore, RedisStoreBuilder};
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_tests::Proxy;

use crate::redis::{Fresh, acquire, builder, cluster, eventually, prefix, shared, try_acquire, used};

fn a_day(limit: u64) -> Policy {
    Policy::new("p", Quota::per_day(limit))
}

/// Polls once. There is no answer yet.
async fn poll_once(what: &mut (impl Future + Unpin)) {
    let mut what = pin!(what);
    poll_fn(|cx| {
        assert!(what.as_mut().poll(cx).is_pending(), "nobody has answered yet");
        Poll::Ready(())
    })
    .await;
}

/// The task that carries a call ends with it.
#[tokio::test]
async fn lone_and_concurrent_callers_share_a_connection_and_leave_no_task() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let fresh = Fresh::with(&server, Default::default(), |builder| builder.connections(1)).await;
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    let set = [Check::new(&policy, &key, 1)];
    let tasks = || Handle::current().metrics().num_alive_tasks();
    acquire(&fresh.store, &policy, "bob", 1).await;
    let before = tasks();
    let mut charged = 0;
    for callers in [1, 4].repeat(10) {
        let replies: Vec<_> = (0..callers).map(|_| fresh.store.acquire(&set, Times::ONCE)).collect();
        for reply in replies {
            assert!(reply.wait().await.unwrap().is_granted());
        }
        charged += callers;
        assert_eq!(used(&fresh.store, &policy, "ada").await, charged);
        eventually("no task is left", async || tasks() <= before).await;
    }
    let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
    assert_eq!(clients.matches("cmd=evalsha").count(), 1, "{clients}");
}

/// A caller that asks and does not poll delays no other caller and is charged: both when its call
/// was sent and when its call still waits for a connection.
async fn holds_up_nobody(store: &RedisStore, servers: &[&Server]) {
    let key = Key::from("ada");
    for name in ["sent", "connects"] {
        let policy = Policy::new(name, Quota::per_day(10_000));
        let set = [Check::new(&policy, &key, 1)];
        acquire(store, &policy, "ada", 1).await;
        if name == "connects" {
            servers.iter().for_each(|server| drop(server.command(&["CLIENT", "KILL", "TYPE", "normal"])));
            // Until the store has noticed it.
            sleep(Duration::from_millis(50)).await;
        }
        servers.iter().for_each(|server| server.pause().unwrap());
        let mut unheard = Box::pin(store.acquire(&set, Times::ONCE).wait());
        poll_once(&mut unheard).await;
        servers.iter().for_each(|server| server.resume().unwrap());
        for _ in 0..3 {
            let mut others = JoinSet::new();
            for _ in 0..200 {
                let (store, policy) = (store.clone(), policy.clone());
                others.spawn(async move { acquire(&store, &policy, "ada", 1).await.is_granted() });
            }
            // An old refund, which returns nothing.
            let grant = Grant { policy: &policy, key: &key, units: 1, stamp: Stamp::new(1, 0), share: None };
            timeout(Duration::from_secs(20), store.refund(&[grant])).await.expect("an end").unwrap();
            let all = timeout(Duration::from_secs(20), others.join_all()).await.expect("an end");
            assert!(all.into_iter().all(|granted| granted), "{name}");
        }
        assert!(unheard.await.unwrap().is_granted());
        assert_eq!(used(store, &policy, "ada").await, 602, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_poll_does_not_delay_later_callers() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    for connections in [1, 4] {
        let choose = |builder: RedisStoreBuilder| builder.connections(connections);
        let fresh = Fresh::with(&server, Default::default(), choose).await;
        holds_up_nobody(&fresh.store, &[&server]).await;
    }
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let store = cluster::store(&cluster, &prefix()).await;
    holds_up_nobody(&store, &cluster.nodes().iter().collect::<Vec<_>>()).await;
}

/// A caller that asked earlier, whose connection is not open yet.
#[tokio::test]
async fn a_caller_that_does_not_poll_does_not_delay_earlier_callers() {
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    let set = [Check::new(&policy, &key, 1)];
    let kill = |server: &Server| drop(server.command(&["CLIENT", "KILL", "TYPE", "normal"]));
    let full = Server::start_with(Kind::Redis8_2, &["--maxclients", "1"]).unwrap();
    let full = Fresh::on(&full).await;
    let pool = full.store.clone();
    eventually("there is a connection", async || try_acquire(&pool, &policy, "ada", 1).await.is_ok()).await;
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let slots = cluster::store(&cluster, &prefix()).await;
    for store in [pool, slots.clone()] {
        for _ in 0..5 {
            acquire(&store, &policy, "ada", 1).await;
            cluster.nodes().iter().for_each(kill);
            // Until the store has noticed it.
            sleep(Duration::from_millis(50)).await;
            let before = store.reset(&key, &[&policy]);
            let unheard = store.acquire(&set, Times::ONCE);
            timeout(Duration::from_secs(20), before).await.expect("an end").unwrap();
            assert!(unheard.wait().await.unwrap().is_granted());
        }
    }
}

/// The delay of one caller is not an error of another.
#[tokio::test]
async fn a_caller_that_does_not_poll_does_not_fail_other_callers() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let builder = builder(&cluster::url(&cluster)).prefix(prefix());
    let store = builder.connect_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    let set = [Check::new(&policy, &key, 1)];
    for n in 1..=5 {
        let unheard = store.acquire(&set, Times::ONCE);
        sleep(Duration::from_millis(500)).await;
        assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap().is_granted());
        assert!(unheard.wait().await.unwrap().is_granted());
        assert_eq!(used(&store, &policy, "ada").await, 2 * n);
        cluster.nodes().iter().for_each(|node| drop(node.command(&["CLIENT", "KILL", "TYPE", "normal"])));
        // Until the store has noticed it.
        sleep(Duration::from_millis(50)).await;
    }
}

/// Its connection must not count as alive.
#[tokio::test]
async fn a_caller_that_does_not_poll_does_not_hide_an_outage() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    acquire(&fresh.store, &policy, "ada", 1).await;
    server.pause().unwrap();
    let mut unheard = Box::pin(fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait());
    poll_once(&mut unheard).await;
    drop(server);
    for _ in 0..5 {
        let asked = timeout(Duration::from_secs(20), try_acquire(&fresh.store, &policy, "bob", 1));
        assert!(asked.await.expect("an end").unwrap_err().is_transient());
        let reset = timeout(Duration::from_secs(20), fresh.store.reset(&key, &[&policy]));
        assert!(reset.await.expect("an end").unwrap_err().is_transient());
    }
    assert!(unheard.await.unwrap_err().is_transient());
}

/// The store reads each answer even if its caller has left. Otherwise it would not notice that the
/// connection is silent.
#[tokio::test]
async fn callers_that_leave_early_still_reveal_a_silent_connection() {
    let server = shared(Kind::Installed);
    let proxy = Proxy::before(server.address()).await;
    let builder = RedisStore::builder(&format!("redis://{}/", proxy.address())).prefix(prefix());
    let store = builder.response_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let store = store.with_deadline(Some(Duration::from_millis(40)));
    let policy = a_day(1_000_000);
    eventually("requests pass", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
    proxy.strand();
    assert!(try_acquire(&store, &policy, "ada", 1).await.unwrap_err().is_timeout());
    eventually("requests pass again", async || try_acquire(&store, &policy, "ada", 1).await.is_ok()).await;
}

#[tokio::test]
async fn a_caller_that_leaves_after_its_call_was_sent_is_charged_once() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let fresh = Fresh::on(&server).await;
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    acquire(&fresh.store, &policy, "ada", 1).await;
    for n in 0..5 {
        server.pause().unwrap();
        let mut asked = Box::pin(fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait());
        poll_once(&mut asked).await;
        // By then the call has been sent.
        sleep(Duration::from_millis(50)).await;
        drop(asked);
        server.resume().unwrap();
        acquire(&fresh.store, &policy, "bob", 1).await;
        eventually("it is charged", async || used(&fresh.store, &policy, "ada").await == 2 + n).await;
    }
}

/// The caller asks in the store's runtime and awaits the answer in a runtime without a timer. The
/// server has forgotten the script, so the call is made twice.
#[test]
fn an_answer_can_be_awaited_in_another_runtime() {
    let theirs = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ours: Runtime = Builder::new_current_thread().build().unwrap();
    let server = Server::start(Kind::Redis6_2).unwrap();
    let fresh = theirs.block_on(Fresh::on(&server));
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    for n in 1..=5 {
        theirs.block_on(acquire(&fresh.store, &policy, "bob", 1));
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        server.pause().unwrap();
        let asked =
            theirs.block_on(async { fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE) });
        let mut asked = Box::pin(asked.wait());
        if n % 2 == 0 {
            ours.block_on(poll_once(&mut asked));
            server.resume().unwrap();
        } else {
            server.resume().unwrap();
            // By then the server has answered that it does not know the script.
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(ours.block_on(asked).unwrap().each()[0].remaining(), 1_000 - n);
    }
}

/// The store's runtime has ended, so there is no timer and no task to wait for.
#[test]
fn a_caller_in_an_ended_runtime_gets_an_error() {
    let theirs = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ours = Builder::new_current_thread().enable_time().build().unwrap();
    let server = Server::start(Kind::Installed).unwrap();
    let fresh = theirs.block_on(Fresh::on(&server));
    let store = &fresh.store;
    let (policy, key) = (a_day(1_000), Key::from("ada"));
    theirs.block_on(acquire(store, &policy, "ada", 1));
    let handle = theirs.handle().clone();
    theirs.shutdown_timeout(Duration::from_secs(20));
    for _ in 0..10 {
        let set = [Check::new(&policy, &key, 1)];
        let context = handle.enter();
        let mut asked = Box::pin(store.acquire(&set, Times::ONCE).wait());
        let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(context);
        let answer = match polled {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                ours.block_on(async { timeout(Duration::from_secs(20), asked).await.expect("an end") })
            }
        };
        answer.unwrap_err();
    }
}
