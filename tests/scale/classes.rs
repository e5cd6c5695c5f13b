//! Classes that leave units to others, while leases hold units of the quota.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use tollgate_test_servers::short_or_long;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::scale::Leases;
use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, Lease, ManualClock, MemoryStore, Policy, Quota, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_redis::RedisStore;
use tollgate_tests::{EVERY_ALGORITHM, Later, clock, store};

use crate::scale::{prefix, shared};

fn histories() -> u64 {
    short_or_long(1_000, 10_000)
}

const LIFE: Duration = Duration::from_millis(100);

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A quota that does not come back within a test, and its classes: the first leaves nothing to
/// others.
fn classes(algorithm: Algorithm, limit: u64, floors: [u64; 2]) -> [Policy; 3] {
    let quota = Quota::per_day(limit);
    let is_bucket = matches!(algorithm, Algorithm::Gcra | Algorithm::LeakyBucket { .. });
    let quota = if is_bucket { quota.burst(limit) } else { quota };
    let policy = Policy::new("classes", quota).with_algorithm(algorithm);
    let [one, other] = floors.map(|floor| policy.leaving(floor).unwrap());
    [policy, one, other]
}

async fn ask<S: Store>(store: &S, policy: &Policy, cost: u64) -> bool {
    let key = Key::from("all callers");
    match store.acquire(&[Check::new(policy, &key, cost)], Times::ONCE).wait().await {
        Ok(verdict) => verdict.is_granted(),
        Err(_) => panic!("the store answers"),
    }
}

/// The units that the store inside has left.
async fn left<S: Store>(store: &S, policy: &Policy) -> u64 {
    let key = Key::from("all callers");
    let Ok(verdict) = store.acquire(&[Check::new(policy, &key, 1)], Times::LOOK).wait().await else {
        panic!("the store answers")
    };
    verdict.each()[0].remaining()
}

/// Processes that share a store in memory, and what they have granted.
struct Fleet<S> {
    time: ManualClock,
    inside: MemoryStore,
    processes: Vec<Leases<S>>,
    classes: [Policy; 3],
    /// The most units of a lease.
    most: u64,
    limit: u64,
    granted: u64,
    seen: Seen,
}

/// What some histories have shown.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fetches: u64,
    /// The most units that were left when the first class was refused, in percent of N × C.
    stranded: u64,
    /// Grants and refusals of the classes that leave units to others.
    lower: [u64; 2],
}

impl<S: Store + Clone> Fleet<S> {
    fn new(random: &mut Random, algorithm: Algorithm, wrap: impl Fn(MemoryStore) -> S) -> Fleet<S> {
        let time = clock();
        let (inside, most, limit) = (store(&time), random.magnitude(1, 30), 20 + random.below(150));
        let floor = 1 + random.below(limit - 2);
        let higher = floor + 1 + random.below(limit - 1 - floor);
        let lease = || Lease::at_most(most).lasting(LIFE).clock(&time);
        let process = |_| wrap(inside.clone()).leased(lease());
        Fleet {
            processes: (0..2 + random.below(3)).map(process).collect(),
            classes: classes(algorithm, limit, [floor, higher]),
            most,
            limit,
            granted: 0,
            seen: Seen::default(),
            inside,
            time,
        }
    }

    async fn ask(&mut self, process: usize, class: usize, cost: u64) -> bool {
        let policy = &self.classes[class];
        let floor = policy.numbers().headroom();
        let is_granted = ask(&self.processes[process], policy, cost).await;
        let stranded = self.most * self.processes.len() as u64;
        let left = self.limit - self.granted;
        if is_granted {
            assert!(left >= cost + floor, "{cost} granted with {left} left, and {floor} for others");
            self.granted += cost;
        } else {
            assert!(left < cost + floor + stranded, "{cost} refused with {left} left: {floor}, {stranded}");
        }
        if class > 0 {
            self.seen.lower[usize::from(!is_granted)] += 1;
        } else if !is_granted {
            self.seen.stranded = self.seen.stranded.max(100 * left / stranded);
        }
        is_granted
    }

    /// What each process holds, and the same with units that it has not returned in time.
    fn held(&self) -> impl Iterator<Item = (u64, u64)> {
        self.processes.iter().map(|process| {
            let held = process.held(&self.classes[0], &Key::from("all callers"));
            (held.map_or(0, |held| held.units), process.stats().held_units)
        })
    }

    /// Moves the clock on, until leases that have ended are returned.
    async fn advance(&self, span: Duration) {
        self.time.advance(span);
        sleep(LIFE).await;
        while self.held().any(|(held, all)| held < all) {
            self.time.advance(LIFE / 16);
            sleep(LIFE).await;
        }
    }

    /// Returns all units that leases hold. No unit is lost.
    async fn end_leases(&mut self) {
        // Fetches that are on their way are answered first.
        sleep(LIFE).await;
        self.advance(2 * LIFE).await;
        let returned = async {
            while left(&self.inside, &self.classes[0]).await != self.limit - self.granted {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, returned).await.expect("unused units are refunded");
    }

    async fn play(mut self, random: &mut Random) -> Seen {
        let any =
            |random: &mut Random, count: usize| usize::try_from(random.below(count as u64)).expect("a few");
        for _ in 0..20 + random.below(100) {
            let process = any(random, self.processes.len());
            match random.below(12) {
                0 => self.advance(LIFE / 8 * random.small(1, 16)).await,
                1 => tokio::task::yield_now().await,
                // The others ask more often, so that they are leased.
                n => drop(self.ask(process, usize::from(n == 2) + 2 * usize::from(n == 3), 1 + n / 10).await),
            }
            assert!(self.held().all(|(held, _)| held <= self.most), "more than a lease is held");
        }
        self.end_leases().await;
        // Alone, each class gets exactly what it need not leave to others.
        for class in [2, 1] {
            let due = (self.limit - self.granted).saturating_sub(self.classes[class].numbers().headroom());
            for n in 0..=due {
                let process = any(random, self.processes.len());
                assert_eq!(self.ask(process, class, 1).await, n < due, "{n} of {due}");
            }
        }
        while self.granted < self.limit {
            for process in 0..self.processes.len() {
                while self.ask(process, 0, 1).await {}
            }
            self.end_leases().await;
        }
        self.seen.fetches = self.processes.iter().map(|process| process.stats().fetches).sum();
        self.seen
    }
}

fn history(seed: u64) -> Seen {
    let algorithm = EVERY_ALGORITHM[usize::try_from(seed % 7).expect("it is small")];
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let random = &mut Random::new(seed);
        if random.below(2) == 0 {
            Fleet::new(random, algorithm, |store| store).play(random).await
        } else {
            Fleet::new(random, algorithm, Later::deciding_first).play(random).await
        }
    })
}

#[test]
fn thousands_of_histories_of_three_classes_keep_the_headroom() {
    let threads = thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let seen: Vec<Seen> = thread::scope(|scope| {
        let histories = |first| {
            move || {
                (first..histories()).step_by(usize::try_from(threads).expect("a few")).map(history).collect()
            }
        };
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(histories(first))).collect();
        let seen = |thread: ScopedJoinHandle<'_, Vec<Seen>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        running.into_iter().flat_map(seen).collect()
    });
    let sum = |count: fn(&Seen) -> u64| seen.iter().map(count).sum::<u64>();
    let (fetches, granted, refused) =
        (sum(|seen| seen.fetches), sum(|seen| seen.lower[0]), sum(|seen| seen.lower[1]));
    let stranded = seen.iter().map(|seen| seen.stranded).max().unwrap();
    println!(
        "{fetches} fetches; classes: {granted} granted, {refused} refused; at most {stranded} % stranded"
    );
    let least = histories();
    assert!(fetches > least && granted > least && refused > least, "the test shows nothing");
    assert!(stranded > 20, "no request was refused for want of stranded units");
}

/// In Redis.
const LIMIT: u64 = 600;
const FLOORS: [u64; 2] = [100, 250];
const PROCESSES: u64 = 3;

/// Asks so often from each of five tasks of each process. Returns the grants of each class.
async fn load(processes: &[Leases<RedisStore>], classes: &[Policy; 3], asked: [u64; 3]) -> [u64; 3] {
    let mut tasks = JoinSet::new();
    for task in 0..5 * PROCESSES {
        let process = processes[usize::try_from(task % PROCESSES).unwrap()].clone();
        let classes = classes.clone();
        tasks.spawn(async move {
            let (mut random, mut granted) = (Random::new(task), [0; 3]);
            let mut asks: Vec<usize> =
                (0..3).flat_map(|class| vec![class; asked[class].try_into().unwrap()]).collect();
            while !asks.is_empty() {
                let at = usize::try_from(random.below(asks.len() as u64)).unwrap();
                let class = asks.swap_remove(at);
                granted[class] += u64::from(ask(&process, &classes[class], 1).await);
            }
            granted
        });
    }
    let all = tasks.join_all().await;
    [0, 1, 2].map(|class| all.iter().map(|granted| granted[class]).sum())
}

/// Processes that share a quota in Redis, which no other test has.
async fn processes(lease: &Lease) -> Vec<Leases<RedisStore>> {
    let prefix = prefix();
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let store = RedisStore::builder(&shared().url()).prefix(prefix.clone());
        processes.push(store.connect().await.unwrap().leased(lease.clone()));
    }
    processes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_over_redis_keep_the_headroom_while_units_are_leased() {
    const UNITS: u64 = 40;
    let mut all_stranded = 0;
    for algorithm in EVERY_ALGORITHM {
        let classes = classes(algorithm, LIMIT, FLOORS);
        let processes = processes(&Lease::at_most(UNITS).lasting(PATIENCE)).await;
        // Requests that arrive together are merged.
        let granted = load(&processes, &classes, [12, 10, 15]).await;
        let at_first = granted.iter().sum::<u64>();
        assert!(granted[2] <= LIMIT - FLOORS[1], "{algorithm:?}: {granted:?}");
        assert!(granted[1] + granted[2] <= LIMIT - FLOORS[0], "{algorithm:?}: {granted:?}");
        for process in &processes {
            assert!(process.stats().held_units <= UNITS, "{algorithm:?}");
        }
        let mut rest = 0;
        while ask(&processes[0], &classes[0], 1).await {
            rest += 1;
        }
        let stranded = LIMIT - at_first - rest;
        println!("{algorithm:?}: {granted:?} at once, {rest} by one process, {stranded} are stranded");
        assert!(stranded <= UNITS * (PROCESSES - 1), "{algorithm:?}: {stranded} units are stranded");
        all_stranded += stranded;
        for class in &classes[1..] {
            assert!(!ask(&processes[1], class, 1).await, "{algorithm:?}");
        }
        for process in &processes {
            assert!(process.close(PATIENCE).await.is_nothing(), "what is held is returned");
        }
        for n in 0..=stranded {
            assert_eq!(ask(&processes[2], &classes[0], 1).await, n < stranded, "{algorithm:?}: {n}");
        }
    }
    assert!(all_stranded > 0, "no unit was stranded: the test shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_without_higher_traffic_gets_all_but_the_headroom_in_redis() {
    for algorithm in EVERY_ALGORITHM {
        let classes = classes(algorithm, LIMIT, FLOORS);
        let processes = processes(&Lease::default()).await;
        assert_eq!(load(&processes, &classes, [0, 0, 40]).await, [0, 0, 350], "{algorithm:?}");
        assert_eq!(load(&processes, &classes, [0, 20, 5]).await, [0, 150, 0], "{algorithm:?}");
        assert_eq!(left(processes[0].get_ref(), &classes[0]).await, 100, "{algorithm:?}");
    }
}
