//! A Redis that is killed, paused or flushed under leased load, behind each failure policy.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep, timeout};
use tollgate::failure::Guarded;
use tollgate::scale::Leases;
use tollgate::store::{BoxStore, Check, Store, StoreError, Times, Verdict};
use tollgate::{Algorithm, CircuitBreaker, Key, Lease, MemoryStore, Policy, Quota, Share, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{clock, lateness};

use crate::scale::prefix;

/// Nothing of it comes back within a test.
const LIMIT: u64 = 1_000_000;

const UNITS: u64 = 200;
const LIFE: Duration = Duration::from_millis(250);
const TIMEOUT: Duration = Duration::from_millis(50);

/// How much longer than its timeout a request may take, in addition to the lateness of sleeping
/// tasks. On a busy machine some requests take longer.
const SLACK: Duration = Duration::from_millis(10);

/// How many of a hundred requests must be in time.
const IN_TIME: usize = 90;

const CALLERS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(4);
const LASTS: Duration = Duration::from_millis(1_000);

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

const SHARE: Share = Share::new(1, 10);

fn policy() -> Policy {
    Policy::new("p", Quota::per_day(LIMIT)).with_algorithm(Algorithm::FIXED_WINDOW)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Paused,
    Flushed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instead {
    Open,
    Closed,
    Fallback,
}

const EVERY_POLICY: [Instead; 3] = [Instead::Open, Instead::Closed, Instead::Fallback];

impl Instead {
    fn of<S: Store<Error: StoreError>>(self, store: S) -> BoxStore<Infallible> {
        match self {
            Instead::Open => store.fail_open().boxed(),
            Instead::Closed => store.fail_closed().boxed(),
            Instead::Fallback => store.fall_back_to(MemoryStore::new(), SHARE).boxed(),
        }
    }

    /// Whether a verdict is what the policy decides while the store is away.
    fn has_decided(self, verdict: &Verdict) -> bool {
        match self {
            Instead::Open => verdict.each().is_empty() && verdict.is_granted(),
            Instead::Closed => verdict.each().is_empty() && !verdict.is_granted(),
            Instead::Fallback => verdict.share() == Some(SHARE),
        }
    }
}

/// Whether the store or a lease has decided.
fn is_of_the_store(verdict: &Verdict) -> bool {
    !verdict.each().is_empty() && verdict.share().is_none()
}

/// A store with leases and a failure policy, as users write it.
struct Scene {
    store: BoxStore<Infallible>,
    leased: Leases<Guarded<RedisStore>>,
    redis: RedisStore,
}

impl Scene {
    async fn new(server: &Server, instead: Instead, lease: Lease) -> Scene {
        let redis = RedisStore::builder(&server.url()).prefix(prefix()).connect().await.unwrap();
        let breaker =
            CircuitBreaker::default().probe_after(Duration::from_millis(50), Duration::from_millis(200));
        let leased = redis.clone().timeout(TIMEOUT).circuit_breaker(breaker).leased(lease);
        Scene { store: instead.of(leased.clone()), leased, redis }
    }

    async fn ask(&self, key: &Key) -> Verdict {
        let Ok(verdict) = self.store.acquire(&[Check::new(&policy(), key, 1)], Times::ONCE).wait().await;
        verdict
    }

    /// What Redis has charged to a key.
    async fn used(&self, key: &Key) -> u64 {
        let look = || self.redis.acquire(&[Check::new(&policy(), key, 1)], Times::LOOK).wait();
        let used = async {
            loop {
                if let Ok(verdict) = look().await {
                    return LIMIT - verdict.each()[0].remaining();
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, used).await.expect("Redis answers again")
    }

    /// Asks until units are held.
    async fn lease(&self, key: &Key, units: u64) -> u64 {
        let held = async {
            loop {
                self.ask(key).await;
                let held = self.leased.held(&policy(), key).map_or(0, |held| held.units);
                if held >= units {
                    return held;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, held).await.expect("a key in demand is leased")
    }
}

/// What callers saw of a store.
struct Seen {
    asked: Instant,
    took: Duration,
    verdict: Verdict,
}

async fn start(durable: bool) -> Server {
    let arguments: &[&str] = if durable { &["--appendonly", "yes", "--appendfsync", "always"] } else { &[] };
    block_in_place(|| Server::start_with(Kind::Redis8_2, arguments)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_policy_keeps_deadline_and_bound_in_an_outage() {
    let mut running = JoinSet::new();
    for fault in [Fault::Killed, Fault::Paused, Fault::Flushed] {
        running.spawn(outage(fault));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

async fn outage(fault: Fault) {
    let server = start(true).await;
    let ada = Key::from("ada");
    let is_over = Arc::<AtomicBool>::default();
    let sleepers = tokio::spawn(lateness(CALLERS, PAUSE, Arc::clone(&is_over)));
    let mut cells = Vec::new();
    for instead in EVERY_POLICY {
        let scene = Arc::new(Scene::new(&server, instead, Lease::at_most(UNITS).lasting(LIFE)).await);
        let callers: JoinSet<Vec<Seen>> =
            (0..CALLERS).map(|_| calls(Arc::clone(&scene), Arc::clone(&is_over))).collect();
        cells.push((instead, scene, callers));
    }
    let all_lease = async {
        while !cells.iter().all(|(_, scene, _)| scene.leased.stats().leased_units() > 200) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, all_lease).await.expect("busy keys are leased");

    match fault {
        Fault::Killed => server.kill(),
        Fault::Paused => server.pause().unwrap(),
        Fault::Flushed => drop(block_in_place(|| server.command(&["FLUSHALL"])).unwrap()),
    }
    let begun = Instant::now();
    sleep(LASTS).await;
    let ending = Instant::now();
    match fault {
        Fault::Killed => block_in_place(|| server.restart()).unwrap(),
        Fault::Paused => server.resume().unwrap(),
        Fault::Flushed => {}
    }
    // Leases again, after the outage.
    for (_, scene, _) in &cells {
        let before = scene.leased.stats().leased_units();
        let again = async {
            while scene.leased.stats().leased_units() < before + 100 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, again).await.expect("leases are fetched again");
    }
    is_over.store(true, Ordering::Relaxed);
    let lateness = sleepers.await.unwrap();

    for (instead, scene, callers) in cells {
        let seen: Vec<Seen> = callers.join_all().await.into_iter().flatten().collect();
        let what = format!("{fault:?}, {instead:?}");
        let in_time = seen.iter().filter(|seen| seen.took <= TIMEOUT + SLACK + lateness).count();
        let percent = in_time * 100 / seen.len();
        assert!(percent >= IN_TIME, "{what}: {percent}% in time, where sleepers are {lateness:?} late");
        let others = seen.iter().filter(|seen| !is_of_the_store(&seen.verdict));
        assert!(others.clone().all(|seen| instead.has_decided(&seen.verdict)), "{what}: {:?}", {
            others.map(|seen| &seen.verdict).find(|verdict| !instead.has_decided(verdict))
        });
        let during = |seen: &&Seen| seen.asked > begun + LIFE && seen.asked + TIMEOUT < ending;
        let of_the_store = seen.iter().filter(during).filter(|seen| is_of_the_store(&seen.verdict)).count();
        let is_away = fault != Fault::Flushed;
        assert_eq!(of_the_store == 0, is_away, "{what}: {of_the_store} after the last lease has ended");

        // Each unit was charged before it was spent. What is held survives a flush.
        let (since, held) = if fault == Fault::Flushed { (Some(begun), UNITS) } else { (None, 0) };
        let counts = |seen: &&Seen| since.is_none_or(|since| seen.asked >= since);
        let of_the_store = seen.iter().filter(counts).filter(|seen| is_of_the_store(&seen.verdict));
        let granted: u64 = of_the_store.map(|seen| u64::from(seen.verdict.times())).sum();
        let used = scene.used(&ada).await;
        assert!(granted <= used + held, "{what}: {granted} granted, {used} charged");
    }
}

async fn calls(scene: Arc<Scene>, is_over: Arc<AtomicBool>) -> Vec<Seen> {
    let ada = Key::from("ada");
    let mut seen = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let verdict = scene.ask(&ada).await;
        seen.push(Seen { asked, took: asked.elapsed(), verdict });
        sleep(PAUSE).await;
    }
    seen
}

/// Leases end by a clock that the test moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_spent_without_the_store_until_they_end() {
    let server = start(true).await;
    let (ada, bob) = (Key::from("ada"), Key::from("bob"));
    let time = clock();
    let mut scenes = Vec::new();
    for instead in EVERY_POLICY {
        let lease = Lease::at_most(UNITS).lasting(Duration::from_secs(10)).clock(&time);
        let scene = Scene::new(&server, instead, lease).await;
        for key in [&ada, &bob] {
            scene.lease(key, 20).await;
        }
        // Until no fetch is on its way.
        sleep(2 * TIMEOUT).await;
        scenes.push((instead, scene));
    }
    server.kill();
    for (instead, scene) in &scenes {
        let held = scene.leased.held(&policy(), &ada).expect("a lease").units;
        for n in 0..held {
            let verdict = scene.ask(&ada).await;
            assert!(is_of_the_store(&verdict) && verdict.is_granted(), "{instead:?}: unit {n} of {held}");
        }
        let verdict = scene.ask(&ada).await;
        assert!(instead.has_decided(&verdict), "{instead:?}: {verdict:?}, and all units are spent");
    }
    time.advance(Duration::from_secs(10));
    for (instead, scene) in &scenes {
        let verdict = scene.ask(&bob).await;
        assert!(instead.has_decided(&verdict), "{instead:?}: {verdict:?}, and the lease has ended");
    }
    server.restart().unwrap();
    for (instead, scene) in &scenes {
        let back = async {
            while !is_of_the_store(&scene.ask(&ada).await) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, back).await.unwrap_or_else(|_| panic!("{instead:?}: the store decides again"));
    }
}
