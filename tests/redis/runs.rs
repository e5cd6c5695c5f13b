//! Logs of runs against the same algorithms in memory: refunds in any order, clocks that step back,
//! many runs, large costs.

use std::time::Duration;

use tollgate::store::{Check, Grant, Stamp, Store, Times};
use tollgate::{Algorithm, Key, ManualClock, MemoryStore, Policy, Quota, Timestamp};
use tollgate_conformance::random::Random;
use tollgate_redis::SlidingLogLayout;
use tollgate_test_servers::{Kind, Server, short_or_long};

use crate::redis::{Fresh, acquire, shared};

const START: u64 = 1_767_225_600_123_457;

/// The same key in both stores, by one clock.
struct Both {
    memory: MemoryStore,
    fresh: Fresh,
    clock: ManualClock,
    policy: Policy,
    grants: Vec<(u64, Stamp)>,
}

impl Both {
    async fn new(kind: Kind, policy: Policy, layout: SlidingLogLayout) -> Both {
        let clock = ManualClock::new(Timestamp::from_micros(START));
        let memory = MemoryStore::builder().clock(&clock).build();
        let fresh = Fresh::with(shared(kind), layout, |builder| builder.clock(&clock)).await;
        Both { memory, fresh, clock, policy, grants: Vec::new() }
    }

    /// Asks both, and compares their whole answers.
    async fn acquire(&mut self, cost: u64, times: Times, what: &str) -> bool {
        let key = Key::from("ada");
        let check = [Check::new(&self.policy, &key, cost)];
        let here = self.memory.acquire(&check, times).wait().await.unwrap();
        let there = self.fresh.store.acquire(&check, times).wait().await.unwrap();
        assert_eq!(here.times(), there.times(), "{what}");
        assert_eq!(here.wait(), there.wait(), "{what}");
        let is_granted = here.is_granted();
        let (here, there) = (here.each()[0], there.each()[0]);
        assert_eq!(here.remaining(), there.remaining(), "{what}");
        assert_eq!(here.reset_after(), there.reset_after(), "{what}");
        if is_granted {
            assert_eq!(here.stamp(), there.stamp(), "{what}");
            self.grants.push((cost, here.stamp()));
        }
        is_granted
    }

    async fn refund(&mut self, at: usize, units: u64) {
        let (_, stamp) = self.grants[at];
        let key = Key::from("ada");
        let grant = Grant { policy: &self.policy, key: &key, units, stamp, share: None };
        self.memory.refund(&[grant]).await.unwrap();
        let grant = Grant { policy: &self.policy, key: &key, units, stamp, share: None };
        self.fresh.store.refund(&[grant]).await.unwrap();
    }

    /// Acts like one caller after another, at random. `span` is about the time between two steps.
    async fn live(&mut self, seed: u64, steps: u32, span: u64, largest: u64) {
        let mut random = Random::new(seed);
        for step in 0..steps {
            let what = format!("seed {seed}, step {step} of {:?}", self.policy);
            match random.below(16) {
                0..=5 => {
                    let cost = if random.below(4) == 0 { random.below(largest) + 1 } else { 1 };
                    let was_granted = self.acquire(cost, Times::ONCE, &what).await;
                    // Only now have both dropped what has expired. A step back could revive it.
                    if was_granted && random.below(40) == 0 {
                        let now = self.clock.now().as_micros();
                        self.clock.set(Timestamp::from_micros(now - random.below(20 * span) - 1));
                    }
                }
                6..=10 if !self.grants.is_empty() => {
                    // Usually one of the last grants, and as often whole as in part.
                    let bound =
                        if random.below(3) == 0 { self.grants.len() } else { self.grants.len().min(8) };
                    let at = self.grants.len() - 1 - usize::try_from(random.below(bound as u64)).unwrap();
                    let units = self.grants[at].0;
                    let units = if random.below(2) == 0 { units } else { units / 2 + 1 };
                    self.refund(at, units).await;
                }
                11 => {
                    let cost = random.below(self.policy.capacity()) + 1;
                    self.acquire(cost, Times::LOOK, &what).await;
                }
                12 => self.clock.advance(Duration::from_micros(random.below(span * 30))),
                _ => self.clock.advance(Duration::from_micros(random.below(span * 2))),
            }
            self.acquire(1, Times::LOOK, &what).await;
            let all = self.policy.capacity();
            self.acquire(all, Times::LOOK, &what).await;
        }
    }
}

/// The policies whose state is a log of runs.
fn logs(limit: u64) -> Vec<(Policy, SlidingLogLayout, u64)> {
    let of = |name: &str, algorithm| {
        Policy::new(name, Quota::new(limit, Duration::from_secs(10))).with_algorithm(algorithm)
    };
    let buckets = |buckets| of("ring", Algorithm::SlidingBuckets { buckets });
    vec![
        (of("list", Algorithm::SLIDING_LOG), SlidingLogLayout::List, 10_000),
        (of("set", Algorithm::SLIDING_LOG), SlidingLogLayout::SortedSet, 10_000),
        // Several at the same microsecond, and most at one of a few times.
        (of("dense", Algorithm::SLIDING_LOG), SlidingLogLayout::List, 2),
        (buckets(10), SlidingLogLayout::List, 50_000),
        (buckets(1_000), SlidingLogLayout::List, 10_000),
    ]
}

#[tokio::test]
async fn refunds_leave_a_log_in_redis_equal_to_one_in_memory() {
    for (n, &kind) in (1..).zip(Kind::EVERY) {
        for limit in [3, 40, 5_000] {
            for (policy, layout, span) in logs(limit) {
                let mut both = Both::new(kind, policy, layout).await;
                both.live(n * limit, short_or_long(50, 500), span, limit / 3 + 1).await;
            }
        }
    }
}

/// What is newer is written again, and no call may take long. A ring has fewer sub-windows.
#[tokio::test]
async fn refunds_of_a_log_reach_back_1024_times() {
    for (policy, layout, _) in logs(5_000) {
        let is_log = matches!(policy.algorithm(), Algorithm::SlidingLog { .. });
        let mut both = Both::new(Kind::Redis8_2, policy.clone(), layout).await;
        for _ in 0..1_026 {
            assert!(both.acquire(3, Times::ONCE, "a charge").await);
            both.clock.advance(Duration::from_millis(1));
        }
        for (at, of_log) in [(0, 0), (1, 0), (2, 2), (3, 2), (1_025, 2)] {
            let before = crate::redis::used(&both.fresh.store, &policy, "ada").await;
            both.refund(at, 2).await;
            let what = format!("a refund of grant {at} of {policy:?}");
            both.acquire(5_000, Times::LOOK, &what).await;
            let back = before - crate::redis::used(&both.fresh.store, &policy, "ada").await;
            assert_eq!(back, if is_log { of_log } else { 2 }, "{what}");
        }
    }
}

/// How many entries a log has.
fn length(server: &Server, name: &str) -> u64 {
    let length = if name.ends_with("sorted-set") { "ZCARD" } else { "LLEN" };
    server.command(&[length, name]).unwrap().parse().unwrap()
}

/// Log-ins that succeed are refunded while others are in flight, so none of them is the newest run.
#[tokio::test]
async fn refunded_requests_do_not_grow_a_log() {
    for (policy, layout, span) in logs(40) {
        let mut both = Both::new(Kind::Redis8_2, policy.clone(), layout).await;
        for _ in 0..3 {
            both.acquire(5, Times::ONCE, "before").await;
            both.clock.advance(Duration::from_micros(span));
            both.refund(both.grants.len() - 1, 2).await;
        }
        let name = both.fresh.name(&policy, "ada");
        for round in 0..400 {
            let what = format!("round {round} of {policy:?}");
            assert!(both.acquire(1, Times::ONCE, &what).await, "{what}");
            both.clock.advance(Duration::from_micros(span));
            if round > 0 {
                both.refund(both.grants.len() - 2, 1).await;
            }
            both.acquire(1, Times::LOOK, &what).await;
            both.acquire(40, Times::LOOK, &what).await;
            // A list has two elements for each run.
            assert!(length(shared(Kind::Redis8_2), &name) <= 2 * (2 * 11 + 2), "{what}");
        }
    }
}

/// Lua's numbers are exact up to 2^53, and a busy log may never be empty.
#[tokio::test]
async fn a_log_with_a_large_counter_restarts_counting() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        for (policy, layout, _) in logs(40) {
            let fresh = Fresh::with(server, layout, |builder| builder).await;
            let name = fresh.name(&policy, "ada");
            acquire(&fresh.store, &policy, "ada", 5).await;
            let (time, most) = match layout {
                SlidingLogLayout::SortedSet => {
                    (server.command(&["ZRANGE", &name, "0", "0", "WITHSCORES"]), 1)
                }
                _ => (server.command(&["LINDEX", &name, "0"]), 0),
            };
            let time = time.unwrap().lines().nth(most).unwrap().to_owned();
            server.command(&["DEL", &name]).unwrap();
            let far = (1_u64 << 52) - 3;
            let (before, until) = (far.to_string(), (far + 2).to_string());
            let add: &[&str] = match layout {
                SlidingLogLayout::SortedSet => &["ZADD", &name, "-1", &before, &time, &until],
                _ => &["RPUSH", &name, "-1", &before, &time, &until],
            };
            server.command(add).unwrap();
            server.command(&["PEXPIRE", &name, "10000"]).unwrap();
            let left = acquire(&fresh.store, &policy, "ada", 30).await.each()[0].remaining();
            assert_eq!(left, 8, "{name} on {kind}");
            let last = if layout == SlidingLogLayout::SortedSet { "ZRANGE" } else { "LRANGE" };
            assert_eq!(server.command(&[last, &name, "-1", "-1"]).unwrap(), "32", "{name} on {kind}");
        }
    }
}
