//! Versions of a bucket in random orders: each answer equals the oracle's, and what versions admit
//! together and how long each waits are bounded.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_conformance::oracle::{Mark, Oracle};
use tollgate_conformance::random::Random;
use tollgate_core::algorithm::State;
use tollgate_core::{Policy, Quota, Stamp, Times, Timestamp, Wait};

/// A tenth of them without `TOLLGATE_LONG=1`.
fn plays(long: u64) -> u64 {
    let is_long = std::env::var_os("TOLLGATE_LONG").is_some();
    if is_long { long } else { (long / 10).max(1) }
}

/// What a play may contain, in addition to requests, looks and the passage of time.
#[derive(Clone, Copy, Default)]
struct Mix {
    refunds: bool,
    debt: bool,
    clock: bool,
}

struct Granted {
    version: usize,
    units: u64,
    stamp: Stamp,
    mark: Mark,
}

/// A key that versions ask for, in the implementation and in the oracle.
struct Play {
    versions: Vec<Policy>,
    state: State,
    oracle: Oracle,
    start: u64,
    now: u64,
    grants: Vec<Granted>,
    /// Units granted, less those that were given back before time refilled them. Scaled by the
    /// window.
    net: i128,
    passed: Vec<u64>,
    /// Whether a debt was made, or the clock has stepped back.
    is_ahead: bool,
}

impl Play {
    fn new(versions: Vec<Policy>) -> Play {
        let (start, passed) = (1_767_225_600_000_000, vec![0; versions.len()]);
        Play {
            state: State::new(&versions[0]),
            oracle: Oracle::new(&versions[0]),
            versions,
            start,
            now: start,
            grants: Vec::new(),
            net: 0,
            passed,
            is_ahead: false,
        }
    }

    /// Whether all have a place in the record.
    fn has_places(&self) -> bool {
        let name = |policy: &Policy| (policy.quota().limit(), policy.numbers().version_burst());
        self.versions.iter().map(name).collect::<HashSet<_>>().len() <= 4
    }

    /// Asks for `cost` units. Returns the wait, or `None` if they are granted.
    fn ask(&mut self, version: usize, cost: u64, times: Times) -> Option<Duration> {
        let (policy, now) = (self.versions[version].clone(), Timestamp::from_micros(self.now));
        let look = self.state.look(&policy, now);
        assert_eq!(look, self.oracle.look(&policy, now), "the look of {policy:?}");
        let granted = times.max().min(look.times(&policy, cost));
        if granted == 0 {
            let status = self.state.refuse(&policy, now, look, cost, times);
            assert_eq!(status.wait(), self.oracle.wait(&policy, now, cost), "the wait of {policy:?}");
            assert_eq!(status.reset_after(), self.oracle.reset_after(&policy, now), "the reset");
            if times.max() > 0 && cost > look.room {
                self.oracle.refuse(&policy, now);
            }
            let Wait::For(wait) = status.wait() else { return None };
            self.check_wait(&policy, cost, wait, times);
            return Some(wait);
        }
        let units = cost * u64::from(granted);
        let charge = self.state.charge(&policy, now, look, units);
        let (mark, _) = self.oracle.charge(&policy, now, units);
        assert_eq!(charge.status.remaining(), self.oracle.remaining(&policy, now), "what is left");
        assert_eq!(charge.status.reset_after(), self.oracle.reset_after(&policy, now), "the reset");
        self.grants.push(Granted { version, units, stamp: charge.status.stamp(), mark });
        self.net += i128::from(units) * self.window();
        self.passed[version] += units;
        self.check_net();
        None
    }

    /// A version waits for its own units alone, and those that a class leaves to others, and passes
    /// at the end of its wait.
    fn check_wait(&self, policy: &Policy, cost: u64, wait: Duration, times: Times) {
        let units = u128::from(cost + policy.numbers().headroom());
        let own = (units * policy.quota().window().as_micros()).div_ceil(policy.quota().limit().into());
        assert!(self.is_ahead || wait.as_micros() <= own, "{wait:?} for {cost} units of {policy:?}");
        if times.max() > 0 && self.has_places() {
            let later = |at: u64| self.state.clone().look(policy, Timestamp::from_micros(at)).room;
            assert!(later(self.now + micros(wait)) >= cost, "denied after {wait:?} by {policy:?}");
            assert!(later(self.now + micros(wait) - 1) < cost, "passed before {wait:?} by {policy:?}");
        }
    }

    /// All bursts, and the fastest rate.
    fn check_net(&self) {
        if self.is_ahead {
            return;
        }
        let bursts: u64 = self.versions.iter().map(|version| version.numbers().version_burst()).sum();
        let fastest = self.versions.iter().map(|policy| policy.quota().limit()).max().unwrap_or(0);
        let refilled = i128::from(fastest) * i128::from(self.now - self.start);
        let most = i128::from(bursts) * self.window() + refilled;
        assert!(self.net <= most, "{} of {most} by {:?}", self.net, self.versions);
    }

    fn window(&self) -> i128 {
        i128::from(micros(self.versions[0].quota().window()))
    }

    fn refund(&mut self, random: &mut Random) {
        let count = self.grants.len() as u64;
        if count == 0 {
            return;
        }
        let at = usize::try_from(random.below(count)).expect("an index");
        let Granted { version, units, stamp, mark } = self.grants.swap_remove(at);
        let policy = self.versions[version].clone();
        let back = if random.below(2) == 0 { units } else { random.magnitude(0, units) };
        let limit = i128::from(policy.quota().limit());
        let fraction = i128::from(stamp.fraction()) * limit / i128::from(policy.numbers().parts());
        let owed = (i128::from(stamp.micros()) - i128::from(self.now)) * limit + fraction;
        self.net -= owed.clamp(0, i128::from(back) * self.window());
        let now = Timestamp::from_micros(self.now);
        self.state.refund(&policy, now, back, stamp);
        self.oracle.refund(&policy, now, back, mark);
    }

    fn settle(&mut self, version: usize, units: u64) {
        let policy = self.versions[version].clone();
        let (Some(twice), now) = (policy.numbers().with_debt(), Timestamp::from_micros(self.now)) else {
            return;
        };
        let look = self.state.look(&twice, now);
        let charged = look.room.min(units);
        if charged == 0 {
            self.state.refuse(&twice, now, look, 1, Times::ONCE);
        }
        self.state.charge(&twice, now, look, charged);
        assert_eq!(charged, self.oracle.charge_beyond(&policy, now, units).charged, "the units charged");
        self.is_ahead |= charged > 0;
    }

    fn random_steps(&mut self, random: &mut Random, mix: Mix, steps: u64) {
        for _ in 0..steps {
            let version = usize::try_from(random.below(self.versions.len() as u64)).expect("an index");
            let largest = self.versions[version].largest_cost();
            let cost = random.magnitude(1, largest);
            for _ in 0..random.one_of(&[1, 1, 2, 7]) {
                let times = random.one_of(&[Times::ONCE, Times::ONCE, Times::up_to(9), Times::LOOK]);
                if self.ask(version, random.one_of(&[1, cost, 0]), times).is_some() {
                    break;
                }
            }
            match random.below(8) {
                0..=2 if mix.refunds => self.refund(random),
                3 if mix.debt => self.settle(version, random.magnitude(1, 2 * largest)),
                4 if mix.clock && random.below(4) == 0 => {
                    self.is_ahead = true;
                    self.now -= random.magnitude(0, 7_200_000_000);
                }
                _ => {}
            }
            let far = random.magnitude(0, 7_200_000_000);
            self.now += random.one_of(&[0, 0, 1, 1_000_000, 6_000_000, 36_000_000, far]);
            self.check_net();
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("a short span")
}

fn hourly(limit: u64, burst: u64) -> Policy {
    Policy::new("versions", Quota::per_hour(limit).burst(burst))
}

/// Four rates, of which two have parts of a microsecond, with six bursts.
fn twenty_four() -> Vec<Policy> {
    let bursts = [1, 2, 10, 50, 200, 1_000];
    [10, 7, 600, 3_599].into_iter().flat_map(|limit| bursts.map(|burst| hourly(limit, burst))).collect()
}

fn play(versions: Vec<Policy>, mix: Mix, seed: u64) {
    let mut random = Random::new(seed);
    Play::new(versions).random_steps(&mut random, mix, 80);
}

const REFUNDS: Mix = Mix { refunds: true, debt: false, clock: false };

#[test]
fn all_pairs_of_versions_keep_their_bounds() {
    let all = twenty_four();
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            for seed in 0..plays(20) {
                play(vec![a.clone(), b.clone()], REFUNDS, seed);
            }
        }
    }
}

#[test]
fn triples_and_quadruples_of_versions_keep_their_bounds() {
    let all = twenty_four();
    for seed in 0..plays(20_000) {
        let mut random = Random::new(seed);
        let count = 3 + random.below(2);
        let version = |random: &mut Random| all[usize::try_from(random.below(24)).expect("an index")].clone();
        play((0..count).map(|_| version(&mut random)).collect(), REFUNDS, seed);
    }
}

/// Versions of any limit and burst, and classes of them; more than have a place.
#[test]
fn versions_in_random_orders_match_the_oracle() {
    for seed in 0..plays(100_000) {
        let mut random = Random::new(seed);
        let window = Duration::from_micros(random.one_of(&[1_000_000, 60_000_000, 3_600_000_000, 999_983]));
        let versions = (0..1 + random.below(6)).map(|_| {
            let limit = random.magnitude(1, 5_000_000);
            // What reaches further than 1,024 windows is cut by a version that does not.
            let burst = random.magnitude(1, (1_000 * limit).min(1_000_000));
            let policy = Policy::new("versions", Quota::new(limit, window).burst(burst));
            let headroom = random.magnitude(0, burst);
            if random.below(4) == 0 { policy.leaving(headroom).unwrap_or(policy) } else { policy }
        });
        let versions = versions.collect();
        let mix = Mix { refunds: true, debt: random.below(2) == 0, clock: random.below(2) == 0 };
        play(versions, mix, seed);
    }
}

/// 600 an hour at once, asked for once in 3,606 s, and a version with a burst of 10 that is asked
/// all the time: ten hours.
#[test]
fn a_slow_version_gets_no_bucket_each_hour_beside_a_fast_one() {
    let mut key = Play::new(vec![hourly(600, 600), hourly(600, 10)]);
    for second in (0..36_000).step_by(6) {
        key.now = key.start + second * 1_000_000;
        if second % 3_606 == 0 {
            while key.ask(0, 1, Times::ONCE).is_none() {}
        }
        key.ask(1, 1, Times::ONCE);
    }
    let sum: u64 = key.passed.iter().sum();
    assert!(sum <= 6_610, "{:?} pass", key.passed);
}

#[test]
fn a_raised_version_passes_at_its_rate_during_a_deployment() {
    let version = |limit| Policy::new("versions", Quota::per_minute(limit).burst(100));
    let mut key = Play::new(vec![version(600), version(6_000)]);
    for tick in 0..6_000 {
        key.now = key.start + tick * 10_000;
        key.ask(0, 1, Times::ONCE);
        key.ask(1, 1, Times::ONCE);
    }
    let sum: u64 = key.passed.iter().sum();
    assert!(key.passed[1] >= 5_300 && sum <= 200 + 6_000, "{:?} pass", key.passed);
}

#[test]
fn a_clock_an_hour_off_costs_a_full_bucket_at_most() {
    for (limit, burst) in [(600, 1), (600, 50), (10, 50), (3_599, 1_000)] {
        for ahead in [true, false] {
            let mut key = Play::new(vec![hourly(limit, burst)]);
            key.is_ahead = true;
            while key.ask(0, 1, Times::ONCE).is_none() {}
            key.now = if ahead { key.now + 3_600_000_000 } else { key.now - 3_600_000_000 };
            let full = micros(key.versions[0].quota().window()) * burst / limit + 1;
            if let Some(wait) = key.ask(0, burst, Times::ONCE).map(micros) {
                assert!(wait <= full, "{wait} µs of {full} for a full bucket");
                key.now += wait;
                assert_eq!(key.ask(0, burst, Times::ONCE), None, "it passes after its wait");
            }
        }
    }
}

#[test]
fn a_refused_class_forgives_nothing_while_the_clock_is_behind() {
    let base = hourly(600, 100);
    let mut key = Play::new(vec![base.leaving(80).unwrap(), base]);
    key.ask(1, 100, Times::ONCE);
    key.is_ahead = true;
    for _ in 0..20 {
        key.now -= 1_000_000;
        key.ask(0, 20, Times::ONCE);
        key.ask(1, 1, Times::ONCE);
    }
    assert_eq!(key.passed, [0, 100]);
}
