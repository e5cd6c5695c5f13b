//! Random sets over a few keys and policies, compared with the oracle.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Grant, Key, Policy, Stamp, Store, Times, Wait};

use super::case::{Case, micros};
use crate::oracle::{Ledger, Mark};
use crate::random::Random;

pub(super) const EVERY: [Algorithm; 7] = [
    Algorithm::Gcra,
    Algorithm::LeakyBucket { max_wait: Duration::ZERO },
    Algorithm::FIXED_WINDOW,
    Algorithm::FIXED_WINDOW_ALIGNED,
    Algorithm::SlidingWindow,
    Algorithm::SLIDING_BUCKETS,
    // Smaller than the default: some stores keep an entry for each unit.
    Algorithm::SlidingLog { max_limit: 1_000 },
];

struct Granted {
    policy: usize,
    key: usize,
    units: u32,
    stamp: Stamp,
    mark: Mark,
}

pub(super) async fn match_the_oracle<S: Store<Error: Debug>>(
    case: &Case<S>,
    algorithm: Algorithm,
    steps: u32,
    across_keys: bool,
) {
    let mut random = Random::new(0x7011_6a7e);
    // Policies change regularly, because many of them are too large or too slow for any denial.
    const STEPS_PER_SCENARIO: u32 = 100;
    for round in 0..steps.div_ceil(STEPS_PER_SCENARIO) {
        let mut scenario = Scenario {
            case,
            ledger: Ledger::default(),
            policies: (0..3).map(|n| random.policy(&format!("{round}.{n}"), algorithm)).collect(),
            keys: (0..3).map(|n| Key::from(format!("{round}.{n}"))).collect(),
            across_keys,
            grants: Vec::new(),
            last_wait: 0,
        };
        for _ in 0..STEPS_PER_SCENARIO.min(steps - round * STEPS_PER_SCENARIO) {
            scenario.step(&mut random).await;
        }
    }
}

struct Scenario<'a, S> {
    case: &'a Case<S>,
    ledger: Ledger,
    policies: Vec<Policy>,
    keys: Vec<Key>,
    across_keys: bool,
    grants: Vec<Granted>,
    last_wait: u64,
}

impl<S: Store<Error: Debug>> Scenario<'_, S> {
    async fn step(&mut self, random: &mut Random) {
        match random.below(20) {
            0..=3 => self.advance(random),
            4 => {
                let (policy, key) = (&self.policies[self.any(random)], &self.keys[self.any(random)]);
                self.ledger.reset(policy, key);
                self.case.reset(key, &[policy]).await;
            }
            5..=7 => self.refund(random).await,
            _ => self.acquire(random).await,
        }
    }

    /// The index of one of three policies or keys.
    fn any(&self, random: &mut Random) -> usize {
        random.one_of(&[0, 1, 2])
    }

    fn advance(&self, random: &mut Random) {
        let window = micros(self.policies[self.any(random)].quota().window());
        let far = random.magnitude(1, window * 2);
        let span =
            random.one_of(&[1, self.last_wait, self.last_wait.saturating_sub(1), window, window / 10, far]);
        // Stays before the end of time, where the clock stands still and refills nothing.
        let room = (1_u64 << 51).saturating_sub(self.case.time.now().as_micros());
        self.case.advance(span.min(room / 8));
    }

    async fn refund(&mut self, random: &mut Random) {
        let Some(granted) = self.grants.pop() else { return };
        let (policy, key) = (&self.policies[granted.policy], &self.keys[granted.key]);
        let units = random.one_of(&[granted.units, granted.units / 2, granted.units.min(1)]);
        self.ledger.refund(policy, key, units, granted.mark, self.case.time.now());
        let grant = Grant { policy, key, units, stamp: granted.stamp, share: None };
        self.case.refund_all(&[grant]).await;
    }

    async fn acquire(&mut self, random: &mut Random) {
        let one_key = self.any(random);
        // Rarely 0: a store need not decide an empty set.
        let checks = if random.below(20) == 0 { 0 } else { 1 + random.below(4) };
        let pairs: Vec<(usize, usize)> = (0..checks)
            .map(|_| (self.any(random), if self.across_keys { self.any(random) } else { one_key }))
            .collect();
        let set: Vec<Check<'_>> = pairs
            .iter()
            .map(|(policy, key)| {
                let policy = &self.policies[*policy];
                Check::new(policy, &self.keys[*key], random.cost(policy))
            })
            .collect();
        let times = if random.below(2) == 0 { Times::ONCE } else { random.times() };
        let now = self.case.time.now();
        let due = self.ledger.acquire(&set, times, now);
        let verdict = self.case.acquire(&set, times).await;
        if let Some(difference) = due.difference(&verdict) {
            self.case.fail(&format!("{difference}; {times:?} of {set:#?}"));
        }
        if let Wait::For(wait) = verdict.wait() {
            self.last_wait = micros(wait);
        }
        for (i, (policy, key)) in pairs.iter().enumerate() {
            let named_once = pairs.iter().filter(|pair| **pair == (*policy, *key)).count() == 1;
            if let (Some(mark), true) = (due.each[i].mark, named_once) {
                let units = set[i].cost * due.times;
                let stamp = verdict.each()[i].stamp();
                self.grants.push(Granted { policy: *policy, key: *key, units, stamp, mark });
            }
        }
    }
}
