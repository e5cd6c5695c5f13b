//! Attacks on the limiter by cheap requests. Redis is 3 ms away, calls may take 50 ms, and the
//! store fails open. The victim's limit holds and the circuit stays closed, however fast the
//! attacker is. If that fails while the machine stalls for a quarter of that time, calls may take
//! twice as long.
//!
//! A binary of its own, so that no other test makes calls late.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};
use tokio::sync::Mutex;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::failure::CircuitState;
use tollgate::failure::{Answering, CircuitView, Event, Fixed, Guarded};
use tollgate::store::Source;
use tollgate::store::{Check, Grant, Store, Times, Verdict};
use tollgate::{Algorithm, CircuitBreaker, Key, Limiter, Policy, Quota, StoreExt};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Proxy, Way};

type GuardedRedis = Answering<Guarded<RedisStore>, Fixed>;

const AWAY: Duration = Duration::from_millis(3);
const TIMEOUT: Duration = Duration::from_millis(50);
const ATTACK: Duration = Duration::from_secs(4);

/// For comparison, printed only.
const CALM: Duration = Duration::from_millis(200);

/// Each has twice the timeout of the one before.
const ATTEMPTS: u32 = 8;

/// Held by the test that runs: another attack would make its calls late.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The pause of an attacker between two requests, so that the attack loads Redis and not this
/// process.
const PAUSE: Duration = Duration::from_millis(50);

/// A service whose Redis is 3 ms away.
struct Scene {
    store: GuardedRedis,
    circuit: CircuitView,
    /// Requests that passed because the store failed.
    undecided: Arc<AtomicU32>,
    /// A connection to another server at the same distance. Its answers are late only if the
    /// machine is.
    control: MultiplexedConnection,
    timeout: Duration,
    /// The attacked one is the first.
    servers: [Server; 2],
    _proxies: [Proxy; 2],
}

impl Scene {
    async fn new(layout: SlidingLogLayout, timeout: Duration) -> Scene {
        let servers = [(); 2].map(|()| Server::start(Kind::Redis8_2).unwrap());
        let [server, other] = &servers;
        let proxies = [Proxy::before(server.address()).await, Proxy::before(other.address()).await];
        let [url, other] = proxies.each_ref().map(|proxy| format!("redis://{}/", proxy.address()));
        let store = RedisStore::builder(&url).sliding_log(layout).connect().await.unwrap();
        let control = Client::open(other).unwrap().get_multiplexed_async_connection().await.unwrap();
        proxies.iter().for_each(|proxy| proxy.set(Way::IsSlow(AWAY)));
        let store = store.timeout(timeout).circuit_breaker(CircuitBreaker::default());
        let circuit = store.circuit();
        let undecided = Arc::<AtomicU32>::default();
        let count = Arc::clone(&undecided);
        let store = store.fail_open().observe(move |event| {
            if event == Event::Decided(Source::FailurePolicy) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Scene { store, circuit, undecided, control, timeout, servers, _proxies: proxies }
    }

    /// Guesses a victim's password while `attackers` tasks attack. Exactly 3 guesses an hour pass.
    /// Returns `false` if they did not and the machine stalled, which proves nothing.
    async fn holds<F>(&self, attackers: u32, attack: &impl Fn(GuardedRedis, u32) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let calm = self.guess("calm", CALM).await;
        let mut tasks = JoinSet::new();
        (0..attackers).for_each(|attacker| drop(tasks.spawn(attack(self.store.clone(), attacker))));
        let undecided = self.undecided.swap(0, Ordering::Relaxed);
        let attacked = self.guess("attacked", ATTACK).await;
        let circuit = self.circuit.state();
        assert!(tasks.try_join_next().is_none(), "an attacker has ended");
        tasks.shutdown().await;
        println!("{undecided} undecided in calm; {calm:?}; under attack {attacked:?}");
        let undecided = self.undecided.load(Ordering::Relaxed);
        if (attacked.passed, circuit, undecided) == (3, CircuitState::Closed, 0) {
            return true;
        }
        // A server that is not attacked answers sooner while the machine keeps up, and Redis waits
        // for a processor for less than this within a timeout.
        let stall = self.timeout / 4;
        let stalled = attacked.stall >= stall || attacked.starved >= stall;
        assert!(stalled, "it does not hold: {circuit:?}, {undecided} requests that no limit decided");
        false
    }

    /// Guesses every two milliseconds, without waiting for the answers.
    async fn guess(&self, victim: &str, time: Duration) -> Guesses {
        let end = Instant::now() + time;
        let mut guesses = JoinSet::new();
        let stall = tokio::spawn(slowest_ping(self.control.clone(), end));
        let starved = tokio::spawn(longest_starved(self.servers[0].pid(), self.timeout, end));
        while Instant::now() < end {
            let (store, key) = (self.store.clone(), Key::from(victim));
            guesses.spawn(async move {
                let policy =
                    Policy::new("log-ins", Quota::per_hour(3)).with_algorithm(Algorithm::FIXED_WINDOW);
                let asked = Instant::now();
                let verdict = acquire(&store, &policy, &key, 1).await;
                (verdict.times(), asked.elapsed())
            });
            sleep(Duration::from_millis(2)).await;
        }
        let guesses = guesses.join_all().await;
        let mut waits: Vec<Duration> = guesses.iter().map(|(_, wait)| *wait).collect();
        waits.sort_unstable();
        let passed = guesses.iter().map(|(times, _)| times).sum();
        Guesses {
            passed,
            p99: waits[waits.len() * 99 / 100],
            stall: stall.await.unwrap(),
            starved: starved.await.unwrap(),
        }
    }
}

/// The limit holds during an attack. On a machine that stalls, calls may take longer.
async fn holds<F>(layout: SlidingLogLayout, attackers: u32, attack: impl Fn(GuardedRedis, u32) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for attempt in 0..ATTEMPTS {
        if Scene::new(layout, TIMEOUT * 2_u32.pow(attempt)).await.holds(attackers, &attack).await {
            return;
        }
    }
    panic!("it does not hold, and this machine stalled in each of {ATTEMPTS} attempts");
}

#[derive(Debug)]
#[expect(dead_code, reason = "the 99th percentile is printed")]
struct Guesses {
    passed: u32,
    p99: Duration,
    /// The longest time that a server that is not attacked took to answer.
    stall: Duration,
    /// The longest time that the attacked server waited for a processor within a timeout.
    starved: Duration,
}

/// The slowest of the answers until then.
async fn slowest_ping(mut control: MultiplexedConnection, end: Instant) -> Duration {
    let mut slowest = Duration::ZERO;
    while Instant::now() < end {
        let asked = Instant::now();
        // No answer in time is a stall, too.
        let _: Result<String, _> = cmd("PING").query_async(&mut control).await;
        slowest = slowest.max(asked.elapsed());
    }
    slowest
}

/// The longest time that a process waited for a processor within a timeout, until then. The control
/// does not show that: the kernel runs a process that is mostly idle before one that is busy.
async fn longest_starved(pid: Option<u32>, timeout: Duration, end: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    let mut before = waited_for_processor(pid);
    while Instant::now() < end {
        sleep(timeout).await;
        let waited = waited_for_processor(pid);
        longest = longest.max(waited.saturating_sub(before));
        before = waited;
    }
    longest
}

/// By the kernel's statistics of a process. Zero if it keeps none.
fn waited_for_processor(pid: Option<u32>) -> Duration {
    let text = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok());
    let nanos = text.and_then(|text| text.split(' ').nth(1)?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn log_ins() -> Policy {
    Policy::new("log-ins", Quota::per_hour(3)).with_algorithm(Algorithm::FIXED_WINDOW)
}

async fn acquire(store: &GuardedRedis, policy: &Policy, key: &Key, cost: u64) -> Verdict {
    // An open circuit answers at once, and an attacker must not occupy its worker for ever.
    yield_now().await;
    let Ok(verdict) = store.acquire(&[Check::new(policy, key, cost)], Times::ONCE).wait().await;
    verdict
}

/// Each byte of the keys is escaped in the names of Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_400_kb_do_not_lift_the_limit_on_guesses() {
    let _alone = ALONE.lock().await;
    let attack = async |store: GuardedRedis, attacker: u32| {
        let policies = ["second", "minute", "hour"].map(|name| Policy::new(name, Quota::per_hour(10)));
        let mut keys = [0_u8, 1].map(|n| Key::from(format!("{attacker}{n}{}", ",".repeat(400_000))));
        loop {
            keys.swap(0, 1);
            let set = policies.each_ref().map(|policy| Check::new(policy, &keys[0], 1));
            let Ok(_) = store.acquire(&set, Times::ONCE).wait().await;
            // The processors are for the attacked service.
            sleep(PAUSE).await;
        }
    };
    holds(SlidingLogLayout::List, 8, attack).await;
}

/// Charges, then refunds: what the guide recommends for log-ins that succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunded_log_ins_do_not_lift_the_limit_on_guesses() {
    let _alone = ALONE.lock().await;
    let attack = async |store: GuardedRedis, attacker: u32| {
        let policy = log_ins();
        let key = Key::from(attacker);
        loop {
            let verdict = acquire(&store, &policy, &key, 1).await;
            if let (true, [status]) = (verdict.is_granted(), verdict.each()) {
                let grant = Grant {
                    policy: &policy,
                    key: &key,
                    units: 1,
                    stamp: status.stamp(),
                    share: verdict.share(),
                };
                let Ok(()) = store.refund(&[grant]).await;
            }
        }
    };
    holds(SlidingLogLayout::List, 80, attack).await;
}

/// Streams that are reserved and left: what they did not use is refunded, and what they used beyond
/// that is owed. Most are refused, and ask again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_nobody_settles_do_not_lift_the_limit_on_guesses() {
    let _alone = ALONE.lock().await;
    let attack = async |store: GuardedRedis, attacker: u32| {
        let tokens = Limiter::new([Policy::new("tokens", Quota::per_minute(10_000))]).store(store);
        let key = Key::from(attacker);
        loop {
            yield_now().await;
            if let Ok(mut permit) = tokens.check(&key, 100).await {
                let charge = permit.charge("tokens");
                charge.used(if attacker.is_multiple_of(2) { 1 } else { 150 });
            }
        }
    };
    holds(SlidingLogLayout::List, 80, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_large_cost_do_not_lift_the_limit_on_guesses() {
    let _alone = ALONE.lock().await;
    for layout in [SlidingLogLayout::List, SlidingLogLayout::SortedSet] {
        let attack = async |store: GuardedRedis, attacker: u32| {
            let policy =
                Policy::new("bytes", Quota::per_second(100_000)).with_algorithm(Algorithm::SLIDING_LOG);
            let key = Key::from(attacker);
            loop {
                acquire(&store, &policy, &key, 100_000).await;
                sleep(PAUSE).await;
            }
        };
        holds(layout, 512, attack).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_by_a_ring_of_a_thousand_do_not_lift_the_limit_on_guesses() {
    let _alone = ALONE.lock().await;
    let attack = async |store: GuardedRedis, attacker: u32| {
        let buckets = Algorithm::SlidingBuckets { buckets: 1_000 };
        let policy = Policy::new("ring", Quota::per_hour(2)).with_algorithm(buckets);
        let key = Key::from(attacker);
        loop {
            acquire(&store, &policy, &key, 1).await;
            sleep(PAUSE).await;
        }
    };
    holds(SlidingLogLayout::List, 512, attack).await;
}
