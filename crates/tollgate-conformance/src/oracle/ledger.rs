//! The oracles of many keys, for the sets that a store decides.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::{Check, Key, Policy, Settled, Times, Timestamp, Verdict, Wait};

use super::{Mark, Oracle};

/// Computes the expected answers of a store, with an [`Oracle`] for each policy and key.
///
/// ```
/// use tollgate_conformance::oracle::Ledger;
/// use tollgate_core::{Check, Key, Policy, Quota, Times, Timestamp};
///
/// let (policy, key) = (Policy::new("api", Quota::per_second(3)), Key::from("caller"));
/// let mut ledger = Ledger::default();
/// let answer = ledger.acquire(&[Check::new(&policy, &key, 2)], Times::ONCE, Timestamp::EPOCH);
/// assert_eq!((answer.times, answer.each[0].remaining), (1, 1));
/// ```
#[derive(Debug, Default)]
pub struct Ledger {
    oracles: HashMap<(String, Key), Oracle>,
}

/// The expected contents of a [`Verdict`].
#[derive(Clone, Debug)]
pub struct Answer {
    /// How often the set is granted.
    pub times: u32,
    /// How long to delay the request.
    pub delay: Duration,
    /// One for each check.
    pub each: Vec<Standing>,
}

/// The expected contents of a [`Status`](tollgate_core::Status).
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Units left.
    pub remaining: u64,
    /// The wait, if this policy refuses.
    pub wait: Wait,
    /// The time until the full quota is available.
    pub reset_after: Duration,
    /// Identifies the grant for a refund; `None` without a grant.
    pub mark: Option<Mark>,
}

impl Ledger {
    /// Returns the expected answer of [`Store::acquire`](tollgate_core::Store::acquire) at `now`.
    pub fn acquire(&mut self, set: &[Check<'_>], times: Times, now: Timestamp) -> Answer {
        // A pair that is named twice costs the sum, and both checks get the same answer.
        let same = |a: &Check<'_>, b: &Check<'_>| a.key == b.key && a.policy.scope() == b.policy.scope();
        let cost = |check: &Check<'_>| -> u64 {
            let same = set.iter().filter(|other| same(check, other));
            same.fold(0, |sum, other| sum.saturating_add(other.cost))
        };
        let mut granted = times.max();
        for check in set {
            let room = self.of(check.policy, check.key).look(check.policy, now).room;
            if let Some(most) = room.checked_div(cost(check)) {
                granted = granted.min(u32::try_from(most).unwrap_or(u32::MAX));
            }
        }
        if granted == 0 || granted < times.min() {
            let each = set.iter().map(|check| {
                let oracle = self.of(check.policy, check.key);
                let look = oracle.look(check.policy, now);
                let wanted = cost(check).saturating_mul(u64::from(times.min().max(1)));
                let wait = oracle.wait(check.policy, now, wanted);
                let reset_after = oracle.reset_after(check.policy, now);
                if times.max() > 0 && wanted > look.room {
                    oracle.refuse(check.policy, now);
                }
                Standing { remaining: look.remaining, wait, reset_after, mark: None }
            });
            return Answer { times: 0, delay: Duration::ZERO, each: each.collect() };
        }
        let mut delay = Duration::ZERO;
        let mut marks = Vec::new();
        for (i, check) in set.iter().enumerate() {
            if let Some(first) = set[..i].iter().position(|other| same(check, other)) {
                marks.push(marks[first]);
                continue;
            }
            let units = cost(check) * u64::from(granted);
            let (mark, held_back) = self.of(check.policy, check.key).charge(check.policy, now, units);
            delay = delay.max(held_back);
            marks.push(mark);
        }
        let each = set.iter().zip(marks).map(|(check, mark)| {
            let oracle = self.of(check.policy, check.key);
            let remaining = oracle.remaining(check.policy, now);
            let reset_after = oracle.reset_after(check.policy, now);
            Standing { remaining, wait: Wait::None, reset_after, mark: Some(mark) }
        });
        Answer { times: granted, delay, each: each.collect() }
    }

    /// Returns the expected answer of [`Store::settle`](tollgate_core::Store::settle) at `now`. The
    /// grants are units and their marks, in the order in which they were made.
    pub fn settle(
        &mut self,
        policy: &Policy,
        key: &Key,
        grants: &[(u64, Mark)],
        total: u64,
        now: Timestamp,
    ) -> Settled {
        let granted = grants.iter().map(|(units, _)| units).sum();
        if total > granted {
            let beyond = self.of(policy, key).charge_beyond(policy, now, total - granted);
            return Settled { charged: granted + beyond.charged, ..beyond };
        }
        let mut unused = granted - total;
        for (units, mark) in grants.iter().rev() {
            let back = unused.min(*units);
            unused -= back;
            if back > 0 {
                self.refund(policy, key, back, *mark, now);
            }
        }
        Settled { charged: total, ..Settled::default() }
    }

    /// Refunds `units` of a grant.
    pub fn refund(&mut self, policy: &Policy, key: &Key, units: u64, mark: Mark, now: Timestamp) {
        self.of(policy, key).refund(policy, now, units, mark);
    }

    /// Gives back `units` of a key, the newest first.
    pub fn credit(&mut self, policy: &Policy, key: &Key, units: u64, now: Timestamp) {
        self.of(policy, key).credit(policy, now, units);
    }

    /// Returns the expected answer of [`RecentUsage`](tollgate_core::RecentUsage) at `now`.
    /// `None` if the algorithm stores no times.
    pub fn usage(&mut self, policy: &Policy, key: &Key, now: Timestamp, interval: Duration) -> Option<u64> {
        let oracle = self.of(policy, key);
        oracle.look(policy, now);
        oracle.usage(policy, now, interval)
    }

    /// Forgets the usage of `policy` by `key`.
    pub fn reset(&mut self, policy: &Policy, key: &Key) {
        self.oracles.remove(&(policy.scope().to_owned(), key.clone()));
    }

    fn of(&mut self, policy: &Policy, key: &Key) -> &mut Oracle {
        let pair = (policy.scope().to_owned(), key.clone());
        self.oracles.entry(pair).or_insert_with(|| Oracle::new(policy))
    }
}

impl Answer {
    /// Describes the first difference between a verdict and this answer.
    pub fn difference(&self, verdict: &Verdict) -> Option<String> {
        if verdict.times() != self.times {
            return Some(format!("granted {} times, should be {}", verdict.times(), self.times));
        }
        if verdict.delay() != self.delay {
            return Some(format!("a delay of {:?}, should be {:?}", verdict.delay(), self.delay));
        }
        if verdict.each().len() != self.each.len() {
            return Some(format!("{} statuses for {} checks", verdict.each().len(), self.each.len()));
        }
        verdict.each().iter().zip(&self.each).enumerate().find_map(|(i, (status, should))| {
            let got = (status.remaining(), status.wait(), status.reset_after());
            let should = (should.remaining, should.wait, should.reset_after);
            let what = "(remaining, wait, reset after)";
            (got != should).then(|| format!("check {i}: {what} is {got:?}, should be {should:?}"))
        })
    }
}
