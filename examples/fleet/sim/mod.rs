//! A fleet of processes that share one store: the stores of this workspace, on simulated time and a
//! simulated network.

pub mod bounds;
mod link;
mod plan;
mod traffic;

pub use link::{Lost, answer_of};
pub use plan::{Faults, Load, Mode, Plan};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::scale::{LeaseStats, Leases};
use tollgate::store::{Check, Reply, Store, Times, Verdict};
use tollgate::time::Clock;
use tollgate::{Key, Lease, ManualClock, MemoryStore, Policy, StoreExt, Timestamp};

use link::{Link, Network};
use traffic::Traffic;

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub admitted: Vec<Admission>,
    pub denied: u64,
    pub failed: u64,
    /// Requests that were sent to the store: checks, fetches and refunds.
    pub round_trips: u64,
    /// The processes that ever ran.
    pub nodes: u32,
    /// The most units of one key that one process ever held.
    pub most_held: u64,
    /// Units of all keys and processes that were held, at each sample.
    pub stranded: Vec<(u64, u64)>,
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// The time of the decision, in microseconds.
    pub at: u64,
    pub key: u32,
    /// The stamp of the grant: of a fixed window, its start.
    pub stamp: u64,
}

/// The time at which each simulation starts: an odd microsecond in 2026.
pub const START: u64 = 1_767_225_600_123_457;

/// Simulated time: that of a paused runtime.
#[derive(Clone, Copy)]
struct Time(tokio::time::Instant);

impl Time {
    fn start() -> Time {
        Time(tokio::time::Instant::now())
    }

    fn micros(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    async fn until(self, micros: u64) {
        tokio::time::sleep_until(self.0 + Duration::from_micros(micros)).await;
    }
}

/// A process: its store, and its clock, which is off by a constant.
struct Node {
    way: Way,
    clock: ManualClock,
    offset: u64,
}

/// How a process decides.
enum Way {
    Exact(Link),
    Leased(Leases<Link>),
    Local(MemoryStore),
}

impl Node {
    fn leased(&self) -> Option<&Leases<Link>> {
        match &self.way {
            Way::Leased(leased) => Some(leased),
            _ => None,
        }
    }
}

struct World {
    plan: Plan,
    policy: Policy,
    time: Time,
    network: Arc<Network>,
    nodes: Mutex<Vec<Arc<Node>>>,
    outcome: Arc<Mutex<Outcome>>,
}

/// Runs a plan to its end. `progress` gets the simulated microseconds.
///
/// # Panics
/// If the plan has no policy: see [`Plan::policy`].
pub fn run(plan: &Plan, progress: impl FnMut(u64)) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    // Within the runtime, so that simulated time starts at its paused clock.
    runtime.block_on(async { World::new(plan).run(progress).await })
}

impl World {
    fn new(plan: &Plan) -> World {
        let time = Time::start();
        let outcome = Arc::<Mutex<Outcome>>::default();
        World {
            policy: plan.policy_of_a_node(),
            network: Arc::new(Network::new(plan, time, Arc::clone(&outcome))),
            nodes: Mutex::default(),
            plan: plan.clone(),
            time,
            outcome,
        }
    }

    async fn run(self, mut progress: impl FnMut(u64)) -> Outcome {
        let world = Arc::new(self);
        for _ in 0..world.plan.nodes {
            world.join();
        }
        let mut traffic = Traffic::new(&world.plan);
        let (mut sample, mut joined) = (0, 0);
        while let Some(event) = traffic.next(world.running()) {
            world.time.until(event.at).await;
            if event.at >= sample {
                world.sample(event.at);
                progress(event.at);
                sample = event.at + world.plan.length_us() / 200;
            }
            while event.at * u64::from(world.plan.joins) > joined * world.plan.length_us() {
                world.join();
                joined += 1;
            }
            world.network.weather(event.at);
            if event.crash {
                world.crash(event.node);
            }
            let node = Arc::clone(&lock(&world.nodes)[event.node]);
            world.request(&node, event.key);
        }
        // Until all answers have come, and all leases have ended.
        for _ in 0..20 {
            tokio::time::sleep(world.plan.life.max(Duration::from_millis(100))).await;
            for node in lock(&world.nodes).iter() {
                world.set_clock(node);
            }
        }
        world.sample(world.time.micros());
        lock(&world.outcome).clone()
    }

    /// The number of processes that run now.
    fn running(&self) -> usize {
        lock(&self.nodes).len()
    }

    fn join(&self) {
        let node = self.start();
        lock(&self.nodes).push(node);
    }

    /// Starts a process.
    fn start(&self) -> Arc<Node> {
        let number = {
            let mut outcome = lock(&self.outcome);
            outcome.nodes += 1;
            outcome.nodes
        };
        // Far from the others: no process may depend on the clock of another.
        let offset = u64::from(number) * 3_600_000_000;
        let clock = ManualClock::new(Timestamp::from_micros(START + offset + self.time.micros()));
        let link = Link::new(Arc::clone(&self.network));
        let lease =
            Lease::at_most(self.plan.lease_units.into()).lasting(self.plan.life).clock(Clock::from(&clock));
        let way = match self.plan.mode {
            Mode::Exact => Way::Exact(link),
            Mode::Leases => Way::Leased(link.leased(lease)),
            Mode::LocalShare => Way::Local(MemoryStore::builder().clock(Clock::from(&clock)).build()),
        };
        Arc::new(Node { way, clock, offset })
    }

    /// Kills a process, and starts another one in its place. What it held is lost.
    fn crash(&self, node: usize) {
        let started = self.start();
        let gone = std::mem::replace(&mut lock(&self.nodes)[node], started);
        match &gone.way {
            Way::Exact(link) => link.cut(),
            Way::Leased(leased) => leased.get_ref().cut(),
            Way::Local(_) => {}
        }
    }

    /// Moves the clock of a process to the simulated time, which it returns.
    fn set_clock(&self, node: &Node) -> u64 {
        let now = self.time.micros();
        node.clock.set(Timestamp::from_micros(START + node.offset + now));
        now
    }

    fn request(self: &Arc<Self>, node: &Arc<Node>, key: u32) {
        let now = self.set_clock(node);
        let user = Key::from(u64::from(key));
        let set = [Check::new(&self.policy, &user, 1)];
        match &node.way {
            Way::Local(store) => {
                let verdict = answer_of(store.acquire(&set, Times::ONCE));
                self.answered(&Ok(verdict), Some(now), key);
            }
            Way::Exact(store) => self.send(store.acquire(&set, Times::ONCE), now, key),
            Way::Leased(store) => {
                self.send(store.acquire(&set, Times::ONCE), now, key);
                if let Some(held) = store.held(&self.policy, &user) {
                    let mut outcome = lock(&self.outcome);
                    outcome.most_held = outcome.most_held.max(held.units);
                }
            }
        }
    }

    fn send<F>(self: &Arc<Self>, reply: Reply<Result<Verdict, Lost>, F>, now: u64, key: u32)
    where
        F: Future<Output = Result<Verdict, Lost>> + Send + 'static,
    {
        match reply {
            Reply::Now(answer) => self.answered(&answer, Some(now), key),
            Reply::Later(answer) => {
                let world = Arc::clone(self);
                // The network records when the store grants it.
                tokio::spawn(async move { world.answered(&answer.await, None, key) });
            }
        }
    }

    fn answered(&self, answer: &Result<Verdict, Lost>, at: Option<u64>, key: u32) {
        let mut outcome = lock(&self.outcome);
        match answer {
            Ok(verdict) if verdict.is_granted() => {
                let stamp = verdict.each()[0].stamp().micros();
                outcome.admitted.extend(at.map(|at| Admission { at: START + at, key, stamp }));
            }
            Ok(_) => outcome.denied += 1,
            Err(_) => outcome.failed += 1,
        }
    }

    fn sample(&self, now: u64) {
        let nodes: Vec<_> = lock(&self.nodes).clone();
        let stats = nodes.iter().filter_map(|node| node.leased()).map(Leases::stats);
        let held = stats.map(|LeaseStats { held_units, .. }| held_units).sum();
        lock(&self.outcome).stranded.push((now, held));
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
