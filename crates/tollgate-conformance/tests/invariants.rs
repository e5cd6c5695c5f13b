//! Checks each algorithm's guarantee on the requests that it allowed, without an oracle.

use std::time::Duration;

use tollgate_conformance::random::Random;
use tollgate_core::algorithm::State;
use tollgate_core::{Algorithm, Policy, Quota, Stamp, Timestamp, Wait};

/// A thirtieth of them without `TOLLGATE_LONG=1`.
fn cases() -> u64 {
    if std::env::var_os("TOLLGATE_LONG").is_some() { 30_000 } else { 1_000 }
}

/// An allowed request. In i128, where no sum or product overflows.
struct Allowed {
    at: i128,
    leaves: i128,
    units: i128,
}

/// Sends requests at random times with random costs, mostly as early and as large as possible.
fn drive(random: &mut Random, policy: &Policy) -> Vec<Allowed> {
    let window = micros(policy.quota().window());
    let mut now = Timestamp::from_micros(random.magnitude(0, 1 << 51));
    let mut state = State::new(policy);
    let mut allowed = Vec::new();
    for _ in 0..80 {
        let look = state.look(policy, now);
        let room = look.room;
        let cost = if random.below(3) == 0 { room } else { random.cost(policy) };
        if cost > 0 && cost <= room {
            let charge = state.charge(policy, now, look, cost);
            let at = i128::from(now.as_micros());
            let leaves = at + i128::from(micros(charge.delay));
            allowed.push(Allowed { at, leaves, units: i128::from(cost) });
        }
        state.look(policy, now);
        let wait = match state.wait(policy, now, random.magnitude(1, policy.largest_cost())) {
            Wait::For(wait) => micros(wait),
            _ => 0,
        };
        let some = random.magnitude(0, window * 2);
        let edge = window - now.as_micros() % window;
        let span =
            random.one_of(&[0, 0, 1, wait, wait, wait.saturating_sub(1), edge, edge - 1, some, window / 10]);
        now = now.saturating_add(Duration::from_micros(span));
    }
    allowed
}

fn drives(algorithm: Algorithm, holds: impl Fn(&Policy, i128, i128, &[Allowed])) {
    let mut random = Random::new(1);
    for _ in 0..cases() {
        let policy = random.policy("invariant", algorithm);
        let allowed = drive(&mut random, &policy);
        let (limit, window) = (policy.quota().limit(), micros(policy.quota().window()));
        holds(&policy, i128::from(limit), i128::from(window), &allowed);
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("a span of time of tollgate's domain is far below 2^64 µs")
}

fn units(allowed: &[Allowed]) -> i128 {
    allowed.iter().map(|allowed| allowed.units).sum()
}

/// Checks that no window, wherever it begins, contains more than the limit.
fn no_window_exceeds_the_limit(policy: &Policy, limit: i128, window: i128, allowed: &[Allowed]) {
    for (i, first) in allowed.iter().enumerate() {
        let within: Vec<_> = allowed[i..].iter().filter(|later| later.at - first.at < window).collect();
        let sum: i128 = within.iter().map(|allowed| allowed.units).sum();
        assert!(sum <= limit, "{sum} units from {} on under {policy:?}", first.at);
    }
}

#[test]
fn sliding_log_keeps_the_limit_in_every_window() {
    drives(Algorithm::SlidingLog { max_limit: u32::MAX }, no_window_exceeds_the_limit);
}

#[test]
fn sliding_buckets_keep_the_limit_in_every_window() {
    drives(Algorithm::SLIDING_BUCKETS, no_window_exceeds_the_limit);
}

#[test]
fn fixed_windows_keep_the_limit_in_each_window() {
    drives(Algorithm::FIXED_WINDOW_ALIGNED, |policy, limit, window, allowed| {
        for of_one in allowed.chunk_by(|a, b| a.at / window == b.at / window) {
            assert!(units(of_one) <= limit, "{} units under {policy:?}", units(of_one));
        }
    });
    drives(Algorithm::FIXED_WINDOW, |policy, limit, window, allowed| {
        let mut rest = allowed;
        while let Some(first) = rest.first() {
            let of_one = rest.partition_point(|later| later.at - first.at < window);
            assert!(units(&rest[..of_one]) <= limit, "{} units under {policy:?}", units(&rest[..of_one]));
            rest = &rest[of_one..];
        }
    });
}

#[test]
fn the_sliding_window_keeps_the_limit_in_aligned_windows() {
    drives(Algorithm::SlidingWindow, |policy, limit, window, allowed| {
        for of_one in allowed.chunk_by(|a, b| a.at / window == b.at / window) {
            assert!(units(of_one) <= limit, "{} units under {policy:?}", units(of_one));
        }
    });
}

#[test]
fn the_token_bucket_keeps_burst_plus_rate_in_any_time() {
    drives(Algorithm::Gcra, |policy, limit, window, allowed| {
        let burst = i128::from(policy.capacity());
        for (i, first) in allowed.iter().enumerate() {
            let mut sum = 0;
            for last in &allowed[i..] {
                sum += last.units;
                let most = burst * window + (last.at - first.at) * limit;
                assert!(sum * window <= most, "{sum} units in {} µs under {policy:?}", last.at - first.at);
            }
        }
    });
}

/// Units that were granted, or given back: then they are negative.
struct Change {
    at: i128,
    units: i128,
    /// The place of the grant among the changes.
    grant: usize,
}

/// A grant that can be refunded.
struct Held {
    grant: usize,
    units: u64,
    stamp: Stamp,
}

/// A caller that chooses the order of its refunds.
struct Hoarder<'a> {
    policy: &'a Policy,
    state: State,
    now: Timestamp,
    changes: Vec<Change>,
    held: Vec<Held>,
}

impl Hoarder<'_> {
    fn new(policy: &Policy, now: Timestamp) -> Hoarder<'_> {
        Hoarder { policy, state: State::new(policy), now, changes: Vec::new(), held: Vec::new() }
    }

    fn change(&mut self, units: i128, grant: usize) {
        self.changes.push(Change { at: i128::from(self.now.as_micros()), units, grant });
    }

    fn room(&mut self) -> u64 {
        self.state.look(self.policy, self.now).room
    }

    /// Takes at most the room.
    fn take(&mut self, units: u64) {
        let look = self.state.look(self.policy, self.now);
        let units = units.min(look.room);
        if units > 0 {
            let stamp = self.state.charge(self.policy, self.now, look, units).status.stamp();
            let grant = self.changes.len();
            self.change(i128::from(units), grant);
            self.held.push(Held { grant, units, stamp });
        }
    }

    /// Gives back so many units of a grant.
    fn refund(&mut self, at: usize, units: u64) {
        let Held { grant, units: granted, stamp } = self.held.remove(at);
        self.state.refund(self.policy, self.now, units, stamp);
        self.change(-i128::from(units), grant);
        if units < granted {
            let stamp = stamp.after_refund(self.policy, units);
            self.held.insert(at, Held { grant, units: granted - units, stamp });
        }
    }

    /// Takes a unit on top of all others, whose debt ends last, and gives those below back.
    fn hoard(&mut self) {
        let below = self.room().saturating_sub(1);
        if below > 0 {
            self.take(below);
            self.take(1);
            self.refund(self.held.len() - 2, below);
        }
    }

    /// Gives back all grants from the oldest to the newest, and takes each time what there is.
    fn spend(&mut self) {
        let hoarded = self.held.len();
        self.take(u64::MAX);
        for _ in 0..hoarded {
            self.refund(0, self.held[0].units);
            self.take(u64::MAX);
        }
    }

    fn play(&mut self, random: &mut Random) {
        let count = self.held.len() as u64;
        match random.below(8) {
            0 => self.take(u64::MAX),
            1 => self.take(random.cost(self.policy)),
            2..=4 => (0..random.below(12)).for_each(|_| self.hoard()),
            5 if count < 40 => self.spend(),
            6 | 7 if count > 0 => {
                let some = random.below(count);
                let at = usize::try_from(random.one_of(&[0, 0, some, count - 1])).expect("an index");
                let units = self.held[at].units;
                let part = random.magnitude(1, units);
                self.refund(at, random.one_of(&[units, units, part]));
            }
            _ => {}
        }
        let interval = micros(self.policy.quota().window()) / self.policy.quota().limit();
        let end = self.held.last().map_or(0, |held| held.stamp.micros().saturating_sub(self.now.as_micros()));
        let some = random.magnitude(0, 2 * end.max(1));
        let span = random.one_of(&[0, 0, 1, end.saturating_sub(interval), end, some]);
        self.now = self.now.saturating_add(Duration::from_micros(span));
    }
}

/// Checks the bounds of [`Store::refund`](tollgate_core::Store::refund). Returns the most units in
/// one moment that were kept or of earlier grants.
fn no_order_of_refunds_exceeds_its_bounds(policy: &Policy, changes: &[Change]) -> i128 {
    let (limit, window) = (i128::from(policy.quota().limit()), i128::from(micros(policy.quota().window())));
    let burst = i128::from(policy.capacity()) * window;
    let mut at_once = 0;
    for (i, first) in changes.iter().enumerate() {
        let (mut net, mut gross) = (0, 0);
        for last in &changes[i..] {
            net += last.units;
            gross += if last.grant < i { 0 } else { last.units };
            let most = burst + (last.at - first.at) * limit;
            assert!(net * window <= most, "net {net} units in {} µs: {policy:?}", last.at - first.at);
            // One burst for each refill before the first.
            let refilled = (first.at - changes[0].at) * limit;
            assert!(gross * window <= most + refilled, "gross {gross} units: {policy:?}");
            if last.at == first.at {
                at_once = at_once.max(gross);
            }
        }
    }
    at_once
}

#[test]
fn no_order_of_refunds_lifts_the_limit_of_a_token_bucket() {
    let mut random = Random::new(1);
    for number in 0..cases() {
        let policy = if number % 2 == 0 {
            random.policy("refunds", Algorithm::Gcra)
        } else {
            let quota = Quota::new(1 + random.below(30), Duration::from_micros(1_000_000 + random.below(9)));
            Policy::new("refunds", quota.burst(1 + random.below(30)))
        };
        let mut hoarder = Hoarder::new(&policy, Timestamp::from_micros(random.magnitude(0, 1 << 51)));
        while hoarder.changes.len() < 120 {
            hoarder.play(&mut random);
        }
        no_order_of_refunds_exceeds_its_bounds(&policy, &hoarder.changes);
    }
}

/// The bound is reached: what was hoarded in so many refills is used at once.
#[test]
fn hoarded_grants_give_one_burst_more_after_each_refill() {
    let policy = Policy::new("refunds", Quota::per_second(100));
    for refills in 0..4 {
        let mut hoarder = Hoarder::new(&policy, Timestamp::from_micros(1_000_000));
        for _ in 0..refills {
            let earlier = hoarder.held.len();
            (0..99).for_each(|_| hoarder.hoard());
            for _ in 0..earlier {
                hoarder.refund(0, 1);
                hoarder.hoard();
            }
            hoarder.now = hoarder.now.saturating_add(Duration::from_millis(990));
        }
        hoarder.spend();
        let at_once = no_order_of_refunds_exceeds_its_bounds(&policy, &hoarder.changes);
        assert_eq!(at_once, 100 + 99 * refills);
    }
}

#[test]
fn departures_from_the_queue_keep_the_rate() {
    drives(Algorithm::LeakyBucket { max_wait: Duration::ZERO }, |policy, limit, window, allowed| {
        let Algorithm::LeakyBucket { max_wait } = policy.algorithm() else { unreachable!() };
        let burst = i128::from(policy.capacity());
        for (i, first) in allowed.iter().enumerate() {
            let delay = first.leaves - first.at;
            assert!(delay <= i128::from(micros(max_wait)), "a delay of {delay} under {policy:?}");
            let mut after = 0;
            for last in &allowed[i + 1..] {
                after += last.units;
                assert!(last.leaves >= first.leaves, "a request overtakes another under {policy:?}");
                // Departures round up, so two may be closer by less than a microsecond.
                let passed = last.leaves - first.leaves + 1;
                let most = (burst - first.units.min(burst)) * window + passed * limit;
                assert!(
                    after * window <= most,
                    "{after} units in {passed} µs after {first_units} under {policy:?}",
                    first_units = first.units
                );
            }
        }
    });
}
