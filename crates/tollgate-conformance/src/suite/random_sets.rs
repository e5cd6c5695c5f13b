//! Random sets over a few keys and policies, compared with the oracle.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Grant, Key, Policy, Stamp, Times, Verdict, Wait};

use super::case::{Case, micros, nothing};
use crate::calendar::CALENDAR_WINDOW;
use crate::oracle::{Answer, Ledger, Mark};
use crate::random::Random;

pub(super) const EVERY: [Algorithm; 8] = [
    Algorithm::Gcra,
    Algorithm::LeakyBucket { max_wait: Duration::ZERO },
    Algorithm::FIXED_WINDOW,
    Algorithm::FIXED_WINDOW_ALIGNED,
    CALENDAR_WINDOW,
    Algorithm::SlidingWindow,
    Algorithm::SLIDING_BUCKETS,
    // Smaller than the default: some stores keep an entry for each unit.
    Algorithm::SlidingLog { max_limit: 1_000 },
];

struct Granted {
    policy: usize,
    key: usize,
    units: u64,
    stamp: Stamp,
    mark: Mark,
}

pub(super) async fn match_the_oracle(case: &Case, algorithm: Algorithm, steps: u32, across_keys: bool) {
    let mut random = Random::new(0x7011_6a7e);
    // Policies change regularly, because many of them are too large or too slow for any denial.
    const STEPS_PER_SCENARIO: u32 = 100;
    for round in 0..steps.div_ceil(STEPS_PER_SCENARIO) {
        // Tracking changes no decision.
        let some = |policy: Policy| if round % 3 == 1 { policy.track_usage() } else { policy };
        let policies: Vec<Policy> =
            (0..3).map(|n| some(random.policy(&format!("{round}.{n}"), algorithm))).collect();
        // A leaky bucket delays each request by itself, so it is not leased.
        let is_leaky = matches!(algorithm, Algorithm::LeakyBucket { .. });
        let leases = case.excuses.leases.filter(|_| !is_leaky);
        let bound = |policy: &Policy| leases.map_or(policy.clone(), |leases| leases.bound(policy));
        let mut scenario = Scenario {
            case,
            ledger: Ledger::default(),
            is_bound: leases.is_some(),
            bounds: policies.iter().map(bound).collect(),
            policies,
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

struct Scenario<'a> {
    case: &'a Case,
    ledger: Ledger,
    /// The oracle knows a bound of what is granted, not the answers.
    is_bound: bool,
    /// What the oracle counts by: the policies, or their bounds.
    bounds: Vec<Policy>,
    policies: Vec<Policy>,
    keys: Vec<Key>,
    across_keys: bool,
    grants: Vec<Granted>,
    last_wait: u64,
}

impl Scenario<'_> {
    async fn step(&mut self, random: &mut Random) {
        match random.below(20) {
            0..=3 => self.advance(random),
            4 => {
                let (policy, key) = (self.any(random), &self.keys[self.any(random)]);
                self.ledger.reset(&self.bounds[policy], key);
                self.case.reset(key, &[&self.policies[policy]]).await;
            }
            5..=7 => self.refund(random).await,
            8 => self.settle(random).await,
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
        self.ledger.refund(&self.bounds[granted.policy], key, units, granted.mark, self.case.time.now());
        let grant = Grant { policy, key, units, stamp: granted.stamp, share: None };
        self.case.refund_all(&[grant]).await;
    }

    async fn settle(&mut self, random: &mut Random) {
        let (mut of, mut key) = (self.any(random), self.any(random));
        let mut grants = Vec::new();
        for _ in 0..random.below(4) {
            let latest =
                self.grants.pop_if(|latest| grants.is_empty() || (latest.policy, latest.key) == (of, key));
            let Some(latest) = latest else { break };
            (of, key) = (latest.policy, latest.key);
            grants.insert(0, latest);
        }
        let (policy, bound, key) = (&self.policies[of], &self.bounds[of], &self.keys[key]);
        let granted: u64 = grants.iter().map(|grant| grant.units).sum();
        let total = random.used(policy).of(granted);
        let marks: Vec<(u64, Mark)> = grants.iter().map(|grant| (grant.units, grant.mark)).collect();
        let mut grants: Vec<Grant<'_>> = grants
            .iter()
            .map(|grant| Grant { policy, key, units: grant.units, stamp: grant.stamp, share: None })
            .collect();
        if grants.is_empty() {
            grants.push(nothing(policy, key));
        }
        let settled = self.case.settle(&grants, total).await;
        // A lease grants units in debt that were paid before the charge. So the bound ignores the
        // charge: it is weaker then, but it holds.
        if !self.is_bound || total <= granted {
            let due = self.ledger.settle(bound, key, &marks, total, self.case.time.now());
            self.case.same(&format!("{total} used of {marks:?} by {policy:?}"), settled, due);
        }
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
        let (due, verdict) = if self.is_bound {
            let verdict = self.case.acquire(&set, times).await;
            let bounds: Vec<Policy> = pairs.iter().map(|(policy, _)| self.bounds[*policy].clone()).collect();
            (within_the_bound(self.case, &mut self.ledger, &bounds, &set, times, &verdict), verdict)
        } else {
            let mut due = self.ledger.acquire(&set, times, now);
            let verdict = self.case.acquire(&set, times).await;
            if self.case.excuses.cached_denials {
                self.case.denials.relax(&mut due, &set, &verdict, now);
            }
            if let Some(difference) = due.difference(&verdict) {
                self.case.fail(&format!("{difference}; {times:?} of {set:#?}"));
            }
            (due, verdict)
        };
        if let Wait::For(wait) = verdict.wait() {
            self.last_wait = micros(wait);
        }
        for (i, (policy, key)) in pairs.iter().enumerate() {
            let named_once = pairs.iter().filter(|pair| **pair == (*policy, *key)).count() == 1;
            if let (Some(mark), true) = (due.each[i].mark, named_once) {
                let units = set[i].cost * u64::from(due.times);
                let stamp = verdict.each()[i].stamp();
                self.grants.push(Granted { policy: *policy, key: *key, units, stamp, mark });
            }
        }
    }
}

/// Charges what was granted to the bounds, which must have room for it.
fn within_the_bound(
    case: &Case,
    ledger: &mut Ledger,
    bounds: &[Policy],
    set: &[Check<'_>],
    times: Times,
    verdict: &Verdict,
) -> Answer {
    let granted = verdict.times();
    let of_bounds = bounds.iter().zip(set);
    let of_bounds: Vec<Check<'_>> =
        of_bounds.map(|(policy, check)| Check::new(policy, check.key, check.cost)).collect();
    let due = ledger.acquire(&of_bounds, Times::between(granted, granted), case.time.now());
    let is_meant = granted == 0 || (times.min()..=times.max()).contains(&granted);
    if !is_meant || due.times != granted {
        case.fail(&format!("granted {granted} times, beyond the bound; {times:?} of {set:#?}"));
    }
    if granted == 0 && times.min() > 0 {
        case.same("a denial has a wait", verdict.wait() != Wait::None, true);
    }
    case.same("the delay", verdict.delay(), Duration::ZERO);
    due
}
