//! A replica with a slow clock becomes the master.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::store::{Check, Store, Times, Verdict};
use tollgate::{Algorithm, Key, Policy, Quota, Wait};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{EVERY_ALGORITHM, Proxy};

const BEHIND: Duration = Duration::from_secs(300);

const LIMIT: u64 = 10;

/// A window that no caller waits for, and one that callers wait for.
const WINDOWS: [Duration; 2] = [Duration::from_secs(1_000), Duration::from_secs(2)];

fn policies(window: Duration) -> Vec<Policy> {
    let of = |algorithm: Algorithm| {
        let quota = Quota::new(LIMIT, window);
        let is_leaky = matches!(algorithm, Algorithm::LeakyBucket { .. });
        let quota = if is_leaky { quota.burst(LIMIT) } else { quota };
        Policy::new(&format!("of {window:?}"), quota).with_algorithm(algorithm)
    };
    EVERY_ALGORITHM.into_iter().map(of).collect()
}

async fn ask(store: &RedisStore, policy: &Policy, key: &str) -> Verdict {
    store.acquire(&[Check::new(policy, &Key::from(key), 1)], Times::ONCE).wait().await.unwrap()
}

/// spring-cloud-gateway and others refilled, or blocked all callers until the old time was reached
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_with_a_slow_clock_keeps_the_limit() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2] {
        let master = Server::start(kind).unwrap();
        let replica = Server::start_behind(kind, BEHIND, &[]).unwrap();
        replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).unwrap();
        let proxy = Proxy::before(master.address()).await;
        let store = RedisStore::connect(&format!("redis://{}/", proxy.address())).await.unwrap();

        for policy in WINDOWS.into_iter().flat_map(policies) {
            while ask(&store, &policy, "ada").await.is_granted() {}
        }
        in_step(&master, &replica).await;
        master.kill();
        replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        proxy.lead_to(replica.address());
        proxy.cut();
        sleep(Duration::from_millis(100)).await;

        let [long, short] = WINDOWS;
        for policy in policies(long) {
            let what = format!("{:?} on {kind}", policy.algorithm());
            // In the longest window a unit comes back each 100 s. An aligned window may have just
            // ended.
            let mut granted = 0;
            let wait = loop {
                let verdict = ask(&store, &policy, "ada").await;
                if !verdict.is_granted() {
                    break verdict.wait();
                }
                granted += 1;
            };
            println!("{what}: {granted} granted again, and then a wait of {wait:?}");
            assert!(granted < LIMIT, "{what}: a second quota");
            let Wait::For(wait) = wait else { panic!("{what}: {wait:?}") };
            // A queue may be that of another version, so it waits for the clock.
            let is_leaky = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
            let behind = if is_leaky { BEHIND } else { Duration::ZERO };
            assert!(wait <= longest(&policy) + behind, "{what}: {wait:?}");
            let mut fresh = 0;
            while ask(&store, &policy, "bob").await.is_granted() {
                fresh += 1;
            }
            assert_eq!(fresh, LIMIT, "{what}: somebody who is new");
        }
        // Callers that wait pass, long before the old time is reached again, but for a queue.
        let start = Instant::now();
        let mut waiting = policies(short);
        waiting.retain(|policy| !matches!(policy.algorithm(), Algorithm::LeakyBucket { .. }));
        while !waiting.is_empty() {
            assert!(start.elapsed() < BEHIND / 5, "locked out on {kind}: {waiting:?}");
            sleep(Duration::from_millis(50)).await;
            let mut still = Vec::new();
            for policy in waiting {
                if !ask(&store, &policy, "ada").await.is_granted() {
                    still.push(policy);
                }
            }
            waiting = still;
        }
        println!("{kind}: all of a window of {short:?} pass again after {:?}", start.elapsed());
    }
}

/// The longest wait that a policy may report.
fn longest(policy: &Policy) -> Duration {
    let window = policy.quota().window();
    match policy.algorithm() {
        Algorithm::SlidingWindow => 2 * window,
        Algorithm::SlidingBuckets { buckets } => window + window / buckets,
        _ => window,
    }
}

async fn in_step(master: &Server, replica: &Server) {
    let number = |server: &Server, name: &str| {
        let info = server.command(&["INFO", "replication"]).unwrap();
        info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    };
    for _ in 0..6_000 {
        let is_up = replica.command(&["INFO", "replication"]).unwrap().contains("master_link_status:up");
        if is_up && number(master, "master_repl_offset:") == number(replica, "slave_repl_offset:") {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the replica is not in step within a minute");
}
