//! Many processes that lose the same server at the same moment.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::Key;
use tollgate::store::{Check, Store, Times};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::Proxy;

use crate::faults::run::policy;

const STORES: u32 = 200;

/// The number of callers of each store, and so of its connections.
const CALLERS: u32 = 2;

/// The longest pause between two attempts of a store. The shortest is half of it.
const LONGEST: Duration = Duration::from_millis(500);

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_millis(50);

/// envoy's rate limit service and others reconnect from all processes at once and without pauses,
/// which keeps the server down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_server_is_not_flooded_with_connection_attempts() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let proxy = Proxy::before(server.address()).await;
    let url = format!("redis://{}/", proxy.address());
    let mut stores = Vec::new();
    for n in 0..STORES {
        let builder = RedisStore::builder(&url).prefix(format!("store{n}")).connections(CALLERS);
        // On a busy machine a late answer is no fault, which would replace the connection.
        let builder = builder.connect_timeout(PATIENCE).response_timeout(PATIENCE);
        stores.push(builder.connect().await.unwrap());
    }
    assert_eq!(proxy.accepted(), STORES, "to connect takes one connection");
    let (policy, key) = (policy(), Key::from("ada"));
    for store in stores.iter().flat_map(|store| [store; 10]) {
        store.acquire(&[Check::new(&policy, &key, 0)], Times::ONCE).wait().await.unwrap();
    }
    assert_eq!(proxy.accepted(), STORES, "nor does a caller that asks again at once need another");
    let mut callers = JoinSet::new();
    for store in (0..CALLERS).flat_map(|_| &stores) {
        let store = store.clone();
        let (policy, key) = (policy.clone(), key.clone());
        callers.spawn(async move {
            loop {
                let _ = store.acquire(&[Check::new(&policy, &key, 0)], Times::ONCE).wait().await;
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    sleep(10 * TICK).await;

    // Until the pauses are at their longest. Then for four of those.
    let pauses_since =
        |start: Instant| u32::try_from(2 * start.elapsed().as_millis() / LONGEST.as_millis()).unwrap();
    server.kill();
    let start = Instant::now();
    let lost = attempts(&proxy, 2 * LONGEST).await;
    let first_pauses = pauses_since(start);
    let start = Instant::now();
    let down = attempts(&proxy, 4 * LONGEST).await;
    let shortest_pauses = pauses_since(start);
    server.restart().unwrap();
    let (back, mut of_back) = (proxy.accepted(), Vec::new());
    loop {
        of_back.extend(attempts(&proxy, TICK).await);
        if all_decide(&stores).await {
            break;
        }
        assert!(of_back.len() < 600, "not all are back in half a minute");
    }
    let back = proxy.accepted() - back;
    println!(
        "{STORES} stores; attempts to connect each 50 ms: {lost:?} {down:?}; to come back {back}: {of_back:?}"
    );

    // Eight attempts while the pauses grow, and the connections themselves.
    let sum = |attempts: &[u32]| attempts.iter().sum::<u32>();
    let most = (8 + first_pauses) * STORES;
    assert!(sum(&lost) <= most, "{} attempts at first where {most} would be the most", sum(&lost));
    // Two more may begin before the first has failed.
    let most = 2 * (shortest_pauses + 1) * STORES;
    assert!(sum(&down) <= most, "{} attempts where {most} would be the most", sum(&down));
    assert!(back <= 4 * STORES, "{back} attempts when the server was back");
    callers.shutdown().await;
}

/// The number of connections in each tick.
async fn attempts(proxy: &Proxy, time: Duration) -> Vec<u32> {
    let (start, mut before, mut attempts) = (Instant::now(), proxy.accepted(), Vec::new());
    while start.elapsed() < time {
        sleep(TICK).await;
        let now = proxy.accepted();
        attempts.push(now - std::mem::replace(&mut before, now));
    }
    attempts
}

async fn all_decide(stores: &[RedisStore]) -> bool {
    let (policy, key) = (policy(), Key::from("ada"));
    for store in stores {
        if store.acquire(&[Check::new(&policy, &key, 0)], Times::ONCE).wait().await.is_err() {
            return false;
        }
    }
    true
}
