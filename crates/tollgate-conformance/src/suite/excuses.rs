//! What a store is excused from, and what is checked instead.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Status, Times, Timestamp, Verdict, Wait};

use crate::oracle::{Answer, Standing};

/// See the methods of [`Suite`](super::Suite).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excuses {
    pub(super) cached_denials: bool,
    pub(super) leases: Option<Leases>,
}

/// The most units that a store holds of a key ahead of demand, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leases {
    pub(super) units: u64,
    pub(super) life: Duration,
}

/// The smallest denied cost of each policy and key, and the time of the first answer. The cost is
/// the largest there is if none was denied.
#[derive(Debug, Default)]
pub(super) struct Denials(Mutex<HashMap<(String, Key), (u64, Timestamp)>>);

impl Denials {
    /// Whether a store may answer by an earlier denial of a smaller cost.
    pub(super) fn has_smaller(&self, check: &Check<'_>) -> bool {
        self.of(check).is_some_and(|(cost, _)| cost < check.cost)
    }

    fn of(&self, check: &Check<'_>) -> Option<(u64, Timestamp)> {
        let denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        denials.get(&(check.policy.scope().to_owned(), check.key.clone())).copied()
    }

    pub(super) fn note(&self, set: &[Check<'_>], times: Times, verdict: &Verdict, now: Timestamp) {
        let is_denied = times == Times::ONCE && !verdict.is_granted();
        if !is_denied && !verdict.is_granted() {
            return;
        }
        let mut denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for check in &summed(set) {
            let pair = (check.policy.scope().to_owned(), check.key.clone());
            let denied = if is_denied { check.cost } else { u64::MAX };
            let (cost, _) = denials.entry(pair).or_insert((denied, now));
            *cost = denied.min(*cost);
        }
    }

    /// Whether a status of a denial may differ from the expected one: `remaining` may be old, and
    /// the wait of a larger cost is a lower bound.
    pub(super) fn excuse(
        &self,
        check: &Check<'_>,
        got: &Status,
        remaining: u64,
        wait: Wait,
        now: Timestamp,
    ) -> bool {
        let Some((cost, first)) = self.of(check) else { return false };
        let is_old = first < now && got.remaining() < remaining;
        let is_lower = cost < check.cost && got.wait() != Wait::Never && is_shorter(got.wait(), wait);
        (is_old || got.remaining() == remaining) && (is_lower || got.wait() == wait)
    }

    /// Takes what is excused of a verdict over into the expected answer.
    pub(super) fn relax(&self, due: &mut Answer, set: &[Check<'_>], verdict: &Verdict, now: Timestamp) {
        let is_denied = verdict.times() == 0 && due.times == 0 && verdict.wait() != Wait::None;
        if !is_denied || verdict.each().len() != due.each.len() {
            return;
        }
        for ((check, got), due) in summed(set).iter().zip(verdict.each()).zip(&mut due.each) {
            // Another check denies the set, and nothing is remembered of this one.
            if (got.remaining(), got.reset_after()) == (0, Duration::ZERO) {
                let wait = if due.wait == Wait::Never { Wait::Never } else { Wait::None };
                *due = Standing { remaining: 0, wait, reset_after: Duration::ZERO, ..*due };
            } else if self.excuse(check, got, due.remaining, due.wait, now) {
                (due.remaining, due.wait) = (got.remaining(), got.wait());
            }
        }
    }
}

/// The checks of a set with the sum of the costs of their policy and key.
fn summed<'a>(set: &[Check<'a>]) -> Vec<Check<'a>> {
    let sum = |check: &Check<'a>| {
        let same =
            |other: &&Check<'a>| other.key == check.key && other.policy.scope() == check.policy.scope();
        let cost = set.iter().filter(same).fold(0_u64, |sum, other| sum.saturating_add(other.cost));
        Check::new(check.policy, check.key, cost)
    };
    set.iter().map(sum).collect()
}

fn is_shorter(wait: Wait, than: Wait) -> bool {
    match (wait, than) {
        (Wait::For(wait), Wait::For(than)) => wait < than,
        (Wait::None, Wait::For(_) | Wait::Never) | (Wait::For(_), Wait::Never) => true,
        _ => false,
    }
}

impl Leases {
    /// A policy that grants at least what leases of `policy` may admit.
    pub(super) fn bound(self, policy: &Policy) -> Policy {
        let quota = policy.quota();
        let (limit, window) = (quota.limit(), quota.window());
        let units = |units: u128| u64::try_from(units).unwrap_or(u64::MAX);
        let of = |limit: u64| Quota::new(limit.min(Quota::MAX_UNITS), window);
        let quota = match policy.algorithm() {
            Algorithm::Gcra => {
                let of_a_life = (u128::from(limit) * self.life.as_micros()).div_ceil(window.as_micros());
                quota.try_burst(units(u128::from(policy.capacity()) + of_a_life)).unwrap_or(quota)
            }
            Algorithm::LeakyBucket { .. }
            | Algorithm::FixedWindow { aligned: true }
            | Algorithm::CalendarWindow { .. } => quota,
            // The first request opens a window of the oracle. A lease may open one of the store
            // earlier, and the oracle's overlaps two of those.
            Algorithm::FixedWindow { .. } => of(limit * 2),
            _ => of(limit.saturating_add(self.units)),
        };
        let algorithm = match policy.algorithm() {
            Algorithm::SlidingLog { .. } => Algorithm::SlidingLog { max_limit: u32::MAX },
            algorithm => algorithm,
        };
        Policy::try_from_parts(policy.name(), quota, algorithm).unwrap_or_else(|_| policy.clone())
    }
}
