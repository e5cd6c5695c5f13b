//! Random histories of one key, compared with the oracle.

use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Grant, Key, Policy, Stamp, Times, Timestamp, Wait};

use super::case::{Case, micros, nothing};
use crate::history::{History, Mix, Step, Used};
use crate::oracle::{Ledger, Mark};
use crate::random::Random;

/// Histories of a store. Each begins at the latest time of the one before.
pub(super) const OF_A_STORE: usize = 100;

/// Runs the histories of these numbers, at most [`OF_A_STORE`].
pub(super) async fn match_the_oracle(case: &Case, algorithm: Algorithm, numbers: Range<u32>) {
    // A cached denial does not know that the clock stepped back.
    let is_exact = !case.excuses.cached_denials && case.excuses.leases.is_none();
    // Another limit rounds the queue of a leaky bucket.
    let change = is_exact && algorithm == Algorithm::Gcra;
    let mix = Mix { debt: true, step_back: !case.excuses.cached_denials, change };
    for number in numbers.take(OF_A_STORE) {
        let mut random = Random::new(number.into());
        let words: Vec<u64> = (0..2 + random.below(16)).map(|_| random.next_u64()).collect();
        let history = History::of_words(algorithm, mix, &words);
        let mut run = Run {
            case,
            ledger: Ledger::default(),
            policy: history.policy,
            key: Key::from(u64::from(number)),
            latest: case.time.now(),
            unused_at: case.time.now(),
            grants: Vec::new(),
            last_wait: 0,
            last_reset: 0,
        };
        for step in &history.steps {
            run.play(step).await;
            run.look().await;
        }
        case.time.set(run.latest);
    }
}

struct Run<'a> {
    case: &'a Case,
    ledger: Ledger,
    policy: Policy,
    key: Key,
    latest: Timestamp,
    /// All usage is of this time or later.
    unused_at: Timestamp,
    grants: Vec<Granted>,
    last_wait: u64,
    last_reset: u64,
}

struct Granted {
    policy: Policy,
    units: u64,
    stamp: Stamp,
    mark: Mark,
}

impl Run<'_> {
    async fn play(&mut self, step: &Step) {
        let now = self.case.time.now();
        match step {
            Step::Advance(span) => {
                let to = span.after(now, &self.policy, self.last_wait, self.last_reset);
                // The other histories of the store need time too.
                let room = (Timestamp::MAX.as_micros() - now.as_micros()) / 64;
                self.case.time.set(to.min(now.saturating_add(Duration::from_micros(room))));
                self.latest = self.latest.max(self.case.time.now());
            }
            Step::StepBack(_) if !self.is_all_stored() => {}
            Step::StepBack(span) => {
                self.case.time.set(Timestamp::from_micros(now.as_micros().saturating_sub(*span)));
            }
            Step::Acquire { cost, times } => {
                let policy = self.policy.clone();
                self.acquire(&policy, *cost, *times).await;
            }
            // Such a look cuts a state that lies too far ahead. A cached denial does not know that.
            Step::LookAs(_) if self.case.excuses.cached_denials => {}
            Step::LookAs(policy) => self.acquire(policy, 1, Times::LOOK).await,
            Step::Settle { grants, used } => self.settle(*grants, *used).await,
            Step::Credit(units) => {
                self.ledger.credit(&self.policy, &self.key, *units, now);
                self.case.credit(&self.policy, &self.key, *units).await;
            }
            Step::Refund { latest, short_by } => self.refund(*latest, *short_by).await,
            Step::Change(policy) => self.policy = policy.clone(),
        }
    }

    async fn look(&mut self) {
        let policy = self.policy.clone();
        self.acquire(&policy, 1, Times::LOOK).await;
        let now = self.case.time.now();
        self.unused_at = if self.last_reset == 0 { now } else { now.min(self.unused_at) };
    }

    /// Whether no usage has expired. After a step back, a store may count that again, or not.
    fn is_all_stored(&self) -> bool {
        let slides = matches!(
            self.policy.algorithm(),
            Algorithm::SlidingWindow | Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog { .. }
        );
        let span = self.case.time.now().saturating_since(self.unused_at);
        self.last_reset > 0 && (!slides || span < self.policy.quota().window())
    }

    async fn refund(&mut self, latest: usize, short_by: u64) {
        let Some(at) = self.grants.len().checked_sub(latest + 1) else { return };
        let Granted { policy, units: granted, stamp, mark } = &mut self.grants[at];
        let units = *granted - (*granted).min(short_by);
        self.ledger.refund(policy, &self.key, units, *mark, self.case.time.now());
        self.case.refund(policy, &self.key, units, *stamp).await;
        *granted -= units;
        (*stamp, *mark) = (stamp.after_refund(policy, units), mark.after_refund(policy, units));
    }

    async fn settle(&mut self, grants: usize, used: Used) {
        let mut settled = self.grants.split_off(self.grants.len().saturating_sub(grants));
        // Those of one version: a settlement is of one policy.
        settled.retain(|grant| grant.policy == self.policy);
        let (policy, key) = (&self.policy, &self.key);
        let total = used.of(settled.iter().map(|grant| grant.units).sum());
        let marks: Vec<(u64, Mark)> = settled.iter().map(|grant| (grant.units, grant.mark)).collect();
        let nothing = nothing(policy, key);
        let grants = settled.iter().map(|grant| Grant { units: grant.units, stamp: grant.stamp, ..nothing });
        let grants: Vec<Grant<'_>> = [nothing].into_iter().chain(grants).collect();
        let due = self.ledger.settle(policy, key, &marks, total, self.case.time.now());
        let settled = self.case.settle(&grants, total).await;
        self.case.same(&format!("{total} used of {marks:?} by {policy:?}"), settled, due);
    }

    async fn acquire(&mut self, policy: &Policy, cost: u64, times: Times) {
        let set = [Check::new(policy, &self.key, cost)];
        let now = self.case.time.now();
        let mut due = self.ledger.acquire(&set, times, now);
        let verdict = self.case.acquire(&set, times).await;
        if self.case.excuses.cached_denials {
            self.case.denials.relax(&mut due, &set, &verdict, now);
        }
        if let Some(difference) = due.difference(&verdict) {
            self.case.fail(&format!("{difference}; {times:?} of {set:#?}"));
        }
        let status = verdict.each()[0];
        if let Wait::For(wait) = status.wait() {
            self.last_wait = micros(wait);
        }
        self.last_reset = micros(status.reset_after());
        if let Some(mark) = due.each[0].mark {
            let units = cost * u64::from(due.times);
            self.grants.push(Granted { policy: policy.clone(), units, stamp: status.stamp(), mark });
        }
    }
}
