//! Attacks on the limiter by cheap requests: Redis is 3 ms away, calls have 50 ms, and the store fails open. However fast
//! the requests of an attacker are, the victim's limit holds and the circuit stays closed.
//!
//! A binary of its own, so that no other test makes calls late.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::failure::{Breaking, CircuitView, Event, OnFailure, Source, Timeout};
use tollgate::{
    Algorithm, Check, CircuitBreaker, CircuitState, FailureExt, Grant, Key, Policy, Quota, Store, Times,
    Verdict,
};
use tollgate_conformance::servers::{Kind, Server};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_tests::{Proxy, Way};

type Guarded = OnFailure<Breaking<Timeout<RedisStore>>>;

const AWAY: Duration = Duration::from_millis(3);
const TIMEOUT: Duration = Duration::from_millis(50);
const ATTACK: Duration = Duration::from_secs(4);

/// How long an attacker pauses between two requests, so that the attack is on Redis and not on this process.
const PAUSE: Duration = Duration::from_millis(50);

/// A service whose Redis is 3 ms away.
struct Scene {
    store: Guarded,
    circuit: CircuitView,
    /// Requests that passed because the store failed.
    undecided: Arc<AtomicU32>,
    _server: Server,
    _proxy: Proxy,
}

impl Scene {
    async fn new(layout: SlidingLogLayout) -> Scene {
        let server = Server::start(Kind::Redis8_2).unwrap();
        let proxy = Proxy::before(server.address()).await;
        let url = format!("redis://{}/", proxy.address());
        let store = RedisStore::builder(&url).sliding_log(layout).connect().await.unwrap();
        proxy.set(Way::IsSlow(AWAY));
        let store = store.timeout(TIMEOUT).circuit_breaker(CircuitBreaker::default());
        let circuit = store.circuit();
        let undecided = Arc::<AtomicU32>::default();
        let count = Arc::clone(&undecided);
        let store = store.fail_open().observe(move |event| {
            if event == Event::Decided(Source::Policy) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Scene { store, circuit, undecided, _server: server, _proxy: proxy }
    }

    /// A victim's log-in is guessed while `attackers` tasks attack: 3 guesses an hour pass, and no other.
    async fn holds<F>(&self, attackers: u32, attack: impl Fn(Guarded, u32) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let calm = self.guess("calm", Duration::from_secs(1)).await;
        let mut tasks = JoinSet::new();
        let is_over = Arc::new(AtomicBool::new(false));
        for attacker in 0..attackers {
            let (attack, is_over) = (attack(self.store.clone(), attacker), Arc::clone(&is_over));
            tasks.spawn(async move {
                tokio::select! {
                    () = attack => {}
                    () = async { while !is_over.load(Ordering::Relaxed) { sleep(TIMEOUT).await } } => {}
                }
            });
        }
        let attacked = self.guess("attacked", ATTACK).await;
        is_over.store(true, Ordering::Relaxed);
        tasks.join_all().await;
        println!("p99 of a check: {:?} in calm, {:?} under attack", calm.p99, attacked.p99);
        assert_eq!((calm.passed, attacked.passed), (3, 3), "guesses that passed");
        assert_eq!(self.circuit.state(), CircuitState::Closed);
        assert_eq!(self.undecided.load(Ordering::Relaxed), 0, "requests that no limit decided");
    }

    /// Guesses every two milliseconds, without waiting for the answers.
    async fn guess(&self, victim: &str, time: Duration) -> Guesses {
        let end = Instant::now() + time;
        let mut guesses = JoinSet::new();
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
        Guesses { passed, p99: waits[waits.len() * 99 / 100] }
    }
}

struct Guesses {
    passed: u32,
    p99: Duration,
}

async fn acquire(store: &Guarded, policy: &Policy, key: &Key, cost: u32) -> Verdict {
    // An open circuit answers at once: an attacker must not hold its worker for ever.
    yield_now().await;
    let Ok(verdict) = store.acquire(&[Check::new(policy, key, cost)], Times::ONCE).wait().await;
    verdict
}

/// Charge, then refund: what the guide recommends for log-ins that succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_ins_that_are_refunded_do_not_lift_the_limit_on_guesses() {
    let scene = Scene::new(SlidingLogLayout::List).await;
    let attack = async |store: Guarded, attacker: u32| {
        let policy = Policy::new("log-ins", Quota::per_hour(3)).with_algorithm(Algorithm::FIXED_WINDOW);
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
                let Ok(()) = store.refund(&[grant]).wait().await;
            }
        }
    };
    scene.holds(80, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_large_cost_do_not_lift_the_limit_on_guesses() {
    for layout in [SlidingLogLayout::List, SlidingLogLayout::SortedSet] {
        let scene = Scene::new(layout).await;
        let attack = async |store: Guarded, attacker: u32| {
            let policy =
                Policy::new("bytes", Quota::per_second(100_000)).with_algorithm(Algorithm::SLIDING_LOG);
            let key = Key::from(attacker);
            loop {
                acquire(&store, &policy, &key, 100_000).await;
                sleep(PAUSE).await;
            }
        };
        scene.holds(512, attack).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_by_a_ring_of_a_thousand_do_not_lift_the_limit_on_guesses() {
    let scene = Scene::new(SlidingLogLayout::List).await;
    let attack = async |store: Guarded, attacker: u32| {
        let buckets = Algorithm::SlidingBuckets { buckets: 1_000 };
        let policy = Policy::new("ring", Quota::per_hour(2)).with_algorithm(buckets);
        let key = Key::from(attacker);
        loop {
            acquire(&store, &policy, &key, 1).await;
            sleep(PAUSE).await;
        }
    };
    scene.holds(200, attack).await;
}
