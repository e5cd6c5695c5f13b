//! Runs a history on the implementation and on the oracle.

use std::collections::HashSet;
use std::time::Duration;

use tollgate_core::algorithm::State;
use tollgate_core::{Algorithm, Policy, Stamp, Times, Timestamp, Wait};

use super::{History, Step, Used, micros};
use crate::oracle::{Mark, Oracle, largest_cost};

/// Runs the history on a [`State`] and on an [`Oracle`] and compares all answers. Also checks that
/// a retry passes exactly at the reported wait and not a microsecond before.
///
/// If the limit changes under a leaky bucket and an emission interval is not a whole number of
/// microseconds, the state is rounded once, by less than a microsecond. From then on, only the
/// waits are checked: each exists, is bounded and is exact.
///
/// # Panics
/// If an answer differs, with the step and both answers.
pub fn check(history: &History) {
    let mut run = Run {
        state: State::new(&history.policy),
        oracle: Some(Oracle::new(&history.policy)),
        policy: history.policy.clone(),
        longest_wait: longest_wait(&history.policy),
        versions: HashSet::new(),
        is_ahead: false,
        now: history.start,
        latest: Timestamp::EPOCH,
        grants: Vec::new(),
        last_wait: 0,
        last_reset: 0,
        at: String::new(),
    };
    run.note_version();
    for (i, step) in history.steps.iter().enumerate() {
        run.at = format!("step {i}, {step:?}, at {}", run.now.as_micros());
        run.play(step);
        run.compare(1);
        run.compare(run.policy.largest_cost());
    }
}

struct Run {
    state: State,
    /// `None` once the two may differ by rounding.
    oracle: Option<Oracle>,
    policy: Policy,
    /// The longest of all versions of the policy.
    longest_wait: Duration,
    /// Limits and bursts of all versions of the policy.
    versions: HashSet<(u64, u64)>,
    /// Whether debt was made, or the clock has stepped back.
    is_ahead: bool,
    now: Timestamp,
    latest: Timestamp,
    grants: Vec<Granted>,
    last_wait: u64,
    last_reset: u64,
    at: String,
}

struct Granted {
    policy: Policy,
    units: u64,
    stamp: Stamp,
    mark: Option<Mark>,
}

impl Run {
    fn play(&mut self, step: &Step) {
        match step {
            Step::Advance(span) => {
                self.now = span.after(self.now, &self.policy, self.last_wait, self.last_reset);
            }
            Step::StepBack(span) => {
                self.is_ahead = true;
                self.now = Timestamp::from_micros(self.now.as_micros().saturating_sub(*span));
            }
            Step::Acquire { cost, times } => self.acquire(*cost, *times),
            Step::Refund { latest, short_by } => {
                let Some(at) = self.grants.len().checked_sub(latest + 1) else { return };
                let Granted { policy, units: granted, stamp, mark } = &mut self.grants[at];
                let units = *granted - (*granted).min(*short_by);
                let refund = (policy.clone(), units, *stamp, *mark);
                *granted -= units;
                *stamp = stamp.after_refund(policy, units);
                *mark = mark.map(|mark| mark.after_refund(policy, units));
                self.refund(refund);
            }
            Step::Change(policy) => {
                let whole =
                    |policy: &Policy| micros(policy.quota().window()).is_multiple_of(policy.quota().limit());
                let in_time = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
                let same_limit = policy.quota().limit() == self.policy.quota().limit();
                if in_time && !same_limit && !(whole(policy) && whole(&self.policy)) {
                    self.oracle = None;
                }
                self.policy = policy.clone();
                self.longest_wait = self.longest_wait.max(longest_wait(policy));
                self.note_version();
            }
            Step::Settle { grants, used } => self.settle(*grants, *used),
            Step::Credit(units) => self.credit(*units),
            Step::LookAs(policy) => {
                let look = self.state.look(policy, self.now);
                if let Some(oracle) = &mut self.oracle {
                    assert_eq!(look, oracle.look(policy, self.now), "the look as {policy:?}: {}", self.at);
                }
            }
        }
    }

    fn acquire(&mut self, cost: u64, times: Times) {
        let policy = self.policy.clone();
        let look = self.state.look(&policy, self.now);
        let most = u64::from(times.max());
        let granted = look.room.checked_div(cost).map_or(most, |fit| fit.min(most));
        if granted == 0 || granted < u64::from(times.min()) {
            let wanted = cost.saturating_mul(u64::from(times.min().max(1)));
            self.compare(wanted);
            let status = self.state.refuse(&policy, self.now, look, cost, times);
            if let Some(oracle) = self.oracle.as_mut().filter(|_| times.max() > 0 && wanted > look.room) {
                oracle.refuse(&policy, self.now);
            }
            let expires = self.state.expires(&policy, self.now);
            let resets = self.now.saturating_add(status.reset_after());
            let is_new = times.max() > 0 && self.versions.len() <= 4;
            assert!(expires >= resets || !is_new, "it expires before the reset: {}", self.at);
            self.compare(wanted);
            return;
        }
        let units = granted * cost;
        let charge = self.state.charge(&policy, self.now, look, units);
        let mut mark = None;
        if let Some(oracle) = &mut self.oracle {
            oracle.look(&self.policy, self.now);
            let (at, delay) = oracle.charge(&self.policy, self.now, units);
            assert_eq!(charge.delay, delay, "the delay (left: state, right: oracle): {}", self.at);
            mark = Some(at);
        }
        // A fifth version has no entry, and sees what another has left.
        let is_shared = self.versions.len() > 4;
        let remaining = self.state.look(&policy, self.now).remaining;
        assert!(
            is_shared || charge.status.remaining() == remaining,
            "remaining after the charge: {}",
            self.at
        );
        assert_eq!(charge.status.wait(), Wait::None, "a grant has no wait: {}", self.at);
        let reset = self.state.reset_after(&policy, self.now);
        assert!(is_shared || charge.status.reset_after() == reset, "the reset after the charge: {}", self.at);
        assert_eq!(charge.expires, self.state.expires(&policy, self.now), "the expiry: {}", self.at);
        let resets = self.now.saturating_add(reset);
        let outlives = (self.state.is_record() || units == 0) && charge.expires > resets;
        let is_stored = !is_shared && units > 0;
        assert!(
            charge.expires == resets || outlives || !is_stored,
            "the expiry is not the reset: {}",
            self.at
        );
        self.grants.push(Granted { policy, units, stamp: charge.status.stamp(), mark });
    }

    fn refund(&mut self, (policy, units, stamp, mark): (Policy, u64, Stamp, Option<Mark>)) {
        self.state.refund(&policy, self.now, units, stamp);
        match (&mut self.oracle, mark) {
            (Some(oracle), Some(mark)) => oracle.refund(&policy, self.now, units, mark),
            _ => self.oracle = None,
        }
    }

    /// As `credit` of the core.
    fn credit(&mut self, units: u64) {
        let most = self.policy.capacity();
        for part in [units.min(most), units.saturating_sub(most)] {
            self.state.refund(&self.policy, self.now, part, Stamp::NEWEST);
        }
        if let Some(oracle) = &mut self.oracle {
            oracle.credit(&self.policy, self.now, units);
        }
    }

    fn settle(&mut self, grants: usize, used: Used) {
        let grants = self.grants.split_off(self.grants.len().saturating_sub(grants));
        let granted: u64 = grants.iter().map(|grant| grant.units).sum();
        let total = used.of(granted);
        if total > granted {
            return self.charge_beyond(total - granted);
        }
        let mut unused = granted - total;
        for Granted { policy, units, stamp, mark } in grants.into_iter().rev() {
            let back = unused.min(units);
            unused -= back;
            self.refund((policy, back, stamp, mark));
        }
    }

    /// Charges as a store does: what fits under twice the capacity.
    fn charge_beyond(&mut self, units: u64) {
        let should = self.oracle.as_mut().map(|oracle| oracle.charge_beyond(&self.policy, self.now, units));
        let Some(policy) = self.policy.numbers().with_debt() else {
            let charged = should.map_or(0, |due| due.charged);
            return assert_eq!(charged, 0, "no debt: {}", self.at);
        };
        let look = self.state.look(&policy, self.now);
        let charged = look.room.min(units);
        if charged == 0 && units > 0 {
            self.state.refuse(&policy, self.now, look, 1, Times::ONCE);
        }
        self.state.charge(&policy, self.now, look, charged);
        if let Some(due) = should {
            assert_eq!(charged, due.charged, "the units charged (left: state, right: oracle): {}", self.at);
        }
        if charged > 0 {
            self.longest_wait = self.longest_wait.max(longest_wait(&policy));
            self.is_ahead = true;
        }
    }

    fn compare(&mut self, units: u64) {
        self.latest = self.latest.max(self.now);
        let (policy, now) = (&self.policy.clone(), self.now);
        let look = self.state.look(policy, now);
        let wait = self.state.wait(policy, now, units);
        let reset = self.state.reset_after(policy, now);
        if let Some(oracle) = &mut self.oracle {
            let sides = "(left: state, right: oracle)";
            assert_eq!(look, oracle.look(policy, now), "the look {sides}: {}", self.at);
            let should = oracle.wait(policy, now, units);
            assert_eq!(wait, should, "the wait for {units} {sides}: {}", self.at);
            assert_eq!(reset, oracle.reset_after(policy, now), "the reset {sides}: {}", self.at);
        }
        assert_eq!(policy.largest_cost(), largest_cost(policy), "the largest cost: {}", self.at);
        let fits = units <= look.room;
        assert_eq!(wait == Wait::None, fits, "a wait for {units} with room for {}: {}", look.room, self.at);
        let impossible = units > policy.largest_cost();
        assert_eq!(
            wait == Wait::Never,
            impossible,
            "`Never` is only for costs that can never pass: {}",
            self.at
        );
        if let Wait::For(wait) = wait {
            assert!(
                wait <= self.most_wait(policy),
                "a wait of {wait:?} is longer than the longest possible wait: {}",
                self.at
            );
            self.retry(policy, wait, units);
            self.last_wait = micros(wait);
        }
        self.last_reset = micros(reset);
    }

    /// The longest possible wait of a policy. A token bucket has its own, whatever other versions
    /// did. In debt, or after the clock stepped back, it lies twice as far ahead.
    fn most_wait(&self, policy: &Policy) -> Duration {
        match policy.algorithm() {
            Algorithm::Gcra if self.is_ahead => longest_wait(policy) * 2,
            Algorithm::Gcra => longest_wait(policy),
            // Its queue may be that of another version.
            Algorithm::LeakyBucket { .. } => self.longest_wait + self.latest.saturating_since(self.now),
            _ => self.longest_wait,
        }
    }

    fn note_version(&mut self) {
        let policy = &self.policy;
        self.versions.insert((policy.quota().limit(), policy.numbers().version_burst()));
    }

    /// Checks that a retry passes exactly at `wait`, and not a microsecond before.
    fn retry(&self, policy: &Policy, wait: Duration, units: u64) {
        let is_bucket = policy.algorithm() == Algorithm::Gcra;
        if is_bucket && self.versions.len() > 4 {
            // A fifth version gets what one of the others has left.
            return;
        }
        // The wait counts from a refusal.
        let mut refused = self.state.clone();
        let look = refused.look(policy, self.now);
        refused.refuse(policy, self.now, look, units, Times::ONCE);
        let later = |span: u64| {
            let at = self.now.saturating_add(Duration::from_micros(span));
            refused.clone().look(policy, at).room
        };
        // After [`Timestamp::MAX`] there is no retry.
        if self.now.as_micros() + micros(wait) <= Timestamp::MAX.as_micros() {
            assert!(later(micros(wait)) >= units, "denied after the wait of {wait:?}: {}", self.at);
            assert!(later(micros(wait) - 1) < units, "passed 1 µs before the wait of {wait:?}: {}", self.at);
        }
    }
}

/// The longest possible wait under this policy, whatever the clock did: that of the fullest state.
pub fn longest_wait(policy: &Policy) -> Duration {
    let quota = policy.quota();
    let refill = |burst: u64| {
        let span = u128::from(burst) * quota.window().as_micros();
        Duration::from_micros(u64::try_from(span.div_ceil(u128::from(quota.limit()))).unwrap_or(u64::MAX))
    };
    match policy.algorithm() {
        Algorithm::Gcra => refill(policy.capacity()),
        Algorithm::LeakyBucket { max_wait } => refill(policy.capacity()) + max_wait,
        Algorithm::SlidingWindow => quota.window() * 2,
        Algorithm::SlidingBuckets { buckets } => Duration::from_micros(
            micros(quota.window()).div_ceil(u64::from(buckets)) * u64::from(buckets + 1),
        ),
        // Its last window has no end: so long is the time from the epoch to there.
        Algorithm::CalendarWindow { .. } => Duration::from_micros(1 << 53),
        _ => quota.window(),
    }
}
