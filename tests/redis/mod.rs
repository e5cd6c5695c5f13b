//! The store in Redis and Valkey, against real servers: the contract, the stored keys and their
//! lives, lost scripts, lost replies, dead servers, and errors when connecting.
//!
//! Most tests share one server of each kind and use a prefix each. Tests that kill, pause or
//! reconfigure a server, or that count its commands, start their own.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod alone;
mod blocks;
mod calls;
mod close;
mod cluster;
mod connect;
mod contract;
mod credentials;
mod decided_at;
mod denials;
mod evictions;
mod healing;
mod jobs;
mod kept;
mod late_claims;
mod life;
mod load;
mod lost;
mod names;
mod proxies;
mod queue;
mod returns;
mod runs;
mod scripts;
mod sentinel;
mod shadow;
mod slot_faults;
mod slots;
mod tiers;
mod timeouts;
mod tls;
mod usage;
mod versions;
mod windows;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::Boundaries;
use tollgate::store::{Check, Store, Times, Verdict};
use tollgate::time::Clock;
use tollgate::{Algorithm, Key, Policy, Quota, Timestamp};
use tollgate_redis::{Error, RedisStore, RedisStoreBuilder, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};

/// A server of that kind, shared by all tests that leave it unchanged.
pub(crate) fn shared(kind: Kind) -> &'static Server {
    static SERVERS: [OnceLock<Server>; 4] = [const { OnceLock::new() }; 4];
    let at = Kind::EVERY.iter().position(|one| *one == kind).expect("a known kind");
    SERVERS[at].get_or_init(|| Server::start(kind).expect("a server"))
}

/// A builder of stores that wait for an answer for longer than a busy machine takes. A test that
/// needs a late answer chooses a shorter timeout.
fn builder(url: &str) -> RedisStoreBuilder {
    let patience = Duration::from_secs(60);
    RedisStore::builder(url).connect_timeout(patience).response_timeout(patience)
}

/// A prefix that no other test has.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store without used quota, by the server's clock, and how its keys are named.
struct Fresh {
    store: RedisStore,
    prefix: String,
    layout: SlidingLogLayout,
    _left: Left,
}

/// The keys that a test leaves under its prefix. When the test is over, each must have an end;
/// `life.rs` tests how long they live.
struct Left {
    urls: Vec<String>,
    prefix: String,
}

impl Drop for Left {
    fn drop(&mut self) {
        // Servers that were killed or paused are skipped.
        for mut server in self.urls.iter().filter_map(|url| connect_to(url)) {
            let names: Vec<String> =
                cmd("KEYS").arg(format!("{}:*", self.prefix)).query(&mut server).unwrap_or_default();
            for name in names {
                // A replica in a Cluster answers with its master's address. The master is in the
                // list too.
                let left: Result<i64, _> = cmd("PTTL").arg(&name).query(&mut server);
                assert!(thread::panicking() || left != Ok(-1), "{name} lives for ever");
            }
        }
    }
}

fn connect_to(url: &str) -> Option<redis::Connection> {
    let second = Duration::from_secs(1);
    let connection = redis::Client::open(url).ok()?.get_connection_with_timeout(second).ok()?;
    connection.set_read_timeout(Some(second)).ok()?;
    Some(connection)
}

impl Fresh {
    async fn on(server: &Server) -> Fresh {
        Fresh::with(server, SlidingLogLayout::List, |builder| builder).await
    }

    /// Another handle to the same limits, like another process, possibly through another URL.
    async fn again(&self, url: &str) -> RedisStore {
        let builder = builder(url).prefix(&*self.prefix).sliding_log(self.layout);
        builder.connect().await.expect("a store")
    }

    async fn with(
        server: &Server,
        layout: SlidingLogLayout,
        choose: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
    ) -> Fresh {
        let prefix = prefix();
        let builder = builder(&server.url()).prefix(&*prefix).sliding_log(layout);
        let _left = Left { urls: vec![server.url()], prefix: prefix.clone() };
        Fresh { store: choose(builder).connect().await.expect("a store"), prefix, layout, _left }
    }

    /// The name of a key's state on the server.
    fn name(&self, policy: &Policy, key: &str) -> String {
        let form = match (policy.algorithm(), self.layout) {
            (Algorithm::SlidingLog { .. }, SlidingLogLayout::SortedSet) => "~sums~sorted-set",
            (Algorithm::SlidingLog { .. } | Algorithm::SlidingBuckets { .. }, _) => "~sums",
            (Algorithm::CalendarWindow { .. }, _) => "~ends",
            _ => "",
        };
        format!("{}:2:{{={key}}}:{}{form}", self.prefix, policy.scope())
    }
}

/// Two stores, because a store has one layout for all its logs.
struct BothLayouts([Fresh; 2]);

impl BothLayouts {
    async fn on(server: &Server) -> BothLayouts {
        let list = Fresh::on(server).await;
        BothLayouts([list, Fresh::with(server, SlidingLogLayout::SortedSet, |builder| builder).await])
    }

    fn of(&self, layout: SlidingLogLayout) -> &Fresh {
        &self.0[usize::from(layout == SlidingLogLayout::SortedSet)]
    }
}

/// One policy of each algorithm that grants `limit` units at once, with its layout if it is a log.
/// The second leaky bucket queues as much again. No two of them share state.
fn every_policy(limit: u64, window: Duration) -> Vec<(Policy, SlidingLogLayout)> {
    let quota = Quota::new(limit, window);
    let list = SlidingLogLayout::List;
    let leaky = |name: &str, max_wait| {
        let policy = Policy::new(&format!("{name} {limit}"), quota.burst(limit));
        (policy.with_algorithm(Algorithm::LeakyBucket { max_wait }), list)
    };
    let plain =
        |name: &str, algorithm| Policy::new(&format!("{name} {limit}"), quota).with_algorithm(algorithm);
    vec![
        (plain("bucket", Algorithm::Gcra), list),
        leaky("strict", Duration::ZERO),
        leaky("queue", window),
        (plain("fixed", Algorithm::FIXED_WINDOW), list),
        (plain("aligned", Algorithm::FIXED_WINDOW_ALIGNED), list),
        (plain("calendar", calendar(window)), list),
        (plain("sliding", Algorithm::SlidingWindow), list),
        (plain("buckets", Algorithm::SLIDING_BUCKETS), list),
        (plain("log", Algorithm::SLIDING_LOG), list),
        (plain("log", Algorithm::SLIDING_LOG), SlidingLogLayout::SortedSet),
    ]
}

/// Windows of this length, for longer than a test runs.
fn calendar(window: Duration) -> Algorithm {
    let window = u64::try_from(window.as_micros()).unwrap();
    let first = Clock::system().now().as_micros() / window;
    let times = (first..first + 20_000).map(|number| number * window);
    let times: Vec<u64> = times.take_while(|time| *time <= Timestamp::MAX.as_micros()).collect();
    Algorithm::CalendarWindow { boundaries: Boundaries::new(times.leak()) }
}

/// The longest time that a policy remembers anything.
fn longest(policy: &Policy) -> Duration {
    let window = policy.quota().window();
    match policy.algorithm() {
        Algorithm::SlidingWindow => 2 * window,
        Algorithm::SlidingBuckets { buckets } => window + window / buckets,
        // Its burst is its limit here.
        Algorithm::LeakyBucket { max_wait } => window + max_wait,
        _ => window,
    }
}

async fn try_acquire(store: &RedisStore, policy: &Policy, key: &str, cost: u64) -> Result<Verdict, Error> {
    store.acquire(&[Check::new(policy, &Key::from(key), cost)], Times::ONCE).wait().await
}

/// Whether so many checks are decided one after another.
async fn all_pass(store: &RedisStore, policy: &Policy, checks: u32) -> bool {
    for _ in 0..checks {
        if try_acquire(store, policy, "bob", 1).await.is_err() {
            return false;
        }
    }
    true
}

async fn acquire(store: &RedisStore, policy: &Policy, key: &str, cost: u64) -> Verdict {
    try_acquire(store, policy, key, cost).await.expect("a verdict")
}

async fn look(store: &RedisStore, policy: &Policy, key: &str) -> Verdict {
    store.acquire(&[Check::new(policy, &Key::from(key), 1)], Times::LOOK).wait().await.expect("a verdict")
}

/// How much of a policy is used, if nothing comes back during a test.
async fn used(store: &RedisStore, policy: &Policy, key: &str) -> u64 {
    policy.capacity() - look(store, policy, key).await.each()[0].remaining()
}

/// Looks three times at once, and two of these looks share a call. So the next caller does not
/// count as alone, and the callers after it share a call.
async fn crowd(store: &RedisStore) {
    let (policy, key) = (Policy::new("crowd", Quota::per_day(1)), Key::from("crowd"));
    let replies = [(); 3].map(|()| store.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK));
    for reply in replies {
        reply.wait().await.expect("a verdict");
    }
}

/// Runs a test on several kinds of servers at once. For tests that mostly wait.
async fn at_once<F>(kinds: &[Kind], test: impl Fn(Kind) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tests: JoinSet<()> = kinds.iter().map(|&kind| test(kind)).collect();
    tests.join_all().await;
}

/// Waits until the condition holds, for a minute at most.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so().await {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("not in a minute: {what}");
}
