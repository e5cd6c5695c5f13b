//! The network between the processes and the store.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::store::{Check, End, ErrorKind, Grant, Reply, Store, StoreError, Times, Verdict};
use tollgate::time::Clock;
use tollgate::{Key, ManualClock, MemoryStore, Policy, Timestamp};
use tollgate_conformance::random::Random;

use super::{Admission, Faults, Outcome, Plan, START, Time, lock};

/// After this time without an answer, a process gives up.
const TIMEOUT: Duration = Duration::from_millis(200);

/// How long slowness and partitions last.
const SPELL_US: u64 = 100_000;

/// Probabilities are in parts of a million.
const PARTS: u64 = 1_000_000;

/// The store, and the way to it.
pub(super) struct Network {
    store: MemoryStore,
    clock: ManualClock,
    time: Time,
    round_trip: Duration,
    faults: Faults,
    state: Mutex<State>,
    outcome: Arc<Mutex<Outcome>>,
}

struct State {
    random: Random,
    spell_ends: u64,
    slow: bool,
    partitioned: bool,
}

impl Network {
    pub(super) fn new(plan: &Plan, time: Time, outcome: Arc<Mutex<Outcome>>) -> Network {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let random = Random::new(plan.seed ^ 0x5EED);
        Network {
            store: MemoryStore::builder().clock(Clock::from(&clock)).build(),
            clock,
            time,
            round_trip: plan.round_trip,
            faults: plan.faults,
            state: Mutex::new(State { random, spell_ends: 0, slow: false, partitioned: false }),
            outcome,
        }
    }

    /// Chooses for some time whether the store is slow, or out of reach.
    pub(super) fn weather(&self, now: u64) {
        let mut state = lock(&self.state);
        if now >= state.spell_ends {
            state.spell_ends = now + SPELL_US;
            state.slow = state.random.below(PARTS) < self.faults.slow.into();
            state.partitioned = state.random.below(PARTS) < self.faults.partition.into();
        }
    }

    /// Half of a round trip. Fails if the message is lost.
    async fn travel(&self, lost: u32) -> Result<(), Lost> {
        let (wait, is_lost) = {
            let state = &mut *lock(&self.state);
            let half = u64::try_from(self.round_trip.as_micros()).unwrap_or(u64::MAX) / 2;
            let half = half / 2 + state.random.below(half + 1);
            let is_lost = state.partitioned || state.random.below(PARTS) < lost.into();
            (Duration::from_micros(half * if state.slow { 50 } else { 1 }), is_lost)
        };
        if is_lost || wait > TIMEOUT {
            tokio::time::sleep(TIMEOUT).await;
            return Err(Lost);
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// There, the decision at the store's own time, and back.
    async fn round_trip<T>(&self, decide: impl FnOnce(&MemoryStore) -> T) -> Result<(T, u64), Lost> {
        lock(&self.outcome).round_trips += 1;
        self.travel(self.faults.lost_requests).await?;
        let now = START + self.time.micros();
        self.clock.set(Timestamp::from_micros(now));
        let decided = decide(&self.store);
        self.travel(self.faults.lost_answers).await?;
        Ok((decided, now))
    }
}

/// A process's way to the store.
#[derive(Clone)]
pub(super) struct Link {
    network: Arc<Network>,
    is_cut: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn new(network: Arc<Network>) -> Link {
        Link { network, is_cut: Arc::default() }
    }

    /// The process is gone: nothing that it sends arrives, and no answer reaches it.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    async fn send<T>(self, decide: impl FnOnce(&MemoryStore) -> T) -> Result<(T, u64), Lost> {
        if self.is_cut.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let answer = self.network.round_trip(decide).await;
        if self.is_cut.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        answer
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Lost>> + Send>>;

impl Store for Link {
    type Error = Lost;
    type Acquire = Answer<Verdict>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Lost>, Answer<Verdict>> {
        let [check] = set else { return Reply::Now(Err(Lost)) };
        let (policy, key, cost) = (check.policy.clone(), check.key.clone(), check.cost);
        let link = self.clone();
        Reply::Later(Box::pin(async move {
            let outcome = Arc::clone(&link.network.outcome);
            let acquire =
                |store: &MemoryStore| answer_of(store.acquire(&[Check::new(&policy, &key, cost)], times));
            let (verdict, at) = link.send(acquire).await?;
            // A request that the store itself decided was admitted at the store's time.
            if times == Times::ONCE && verdict.is_granted() {
                let key = key.to_string().parse().expect("keys are numbers");
                let stamp = verdict.each()[0].stamp().micros();
                lock(&outcome).admitted.push(Admission { at, key, stamp });
            }
            Ok(verdict)
        }))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Lost> + use<> {
        let link = self.clone();
        let grants: Vec<_> = grants
            .iter()
            .map(|grant| (grant.policy.clone(), grant.key.clone(), grant.units, grant.stamp))
            .collect();
        async move {
            let [(policy, key, units, stamp)] = &grants[..] else { return Err(Lost) };
            let (units, stamp) = (*units, *stamp);
            // A store in memory has done it before it is awaited.
            let refund =
                |store: &MemoryStore| drop(store.refund(&[Grant { policy, key, units, stamp, share: None }]));
            link.send(refund).await.map(|_| ())
        }
    }

    fn reset(&self, _: &Key, _: &[&Policy]) -> impl End<(), Lost> + use<> {
        ready(Err(Lost))
    }
}

/// The answer of a store in memory.
pub fn answer_of<T, F>(reply: Reply<Result<T, std::convert::Infallible>, F>) -> T {
    match reply {
        Reply::Now(Ok(answer)) => answer,
        Reply::Now(Err(never)) => match never {},
        Reply::Later(_) => unreachable!("a store in memory answers at once"),
    }
}

/// A message that was lost, or came too late.
#[derive(Clone, Copy, Debug)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no answer within 200 ms")
    }
}

impl std::error::Error for Lost {}

impl StoreError for Lost {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Timeout
    }
}
