//! The context of a case: a store, its clock, and helpers for requests.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{
    Algorithm, BlockStart, Check, Grant, Key, ManualClock, Policy, Quota, Renewal, Settled, Stamp, Status,
    Times, Timestamp, Verdict, Wait,
};

use super::excuses::{Denials, Excuses};
use super::tested::Tested;
use crate::calendar::CALENDAR_WINDOW;

pub(super) struct Case {
    name: &'static str,
    start: u64,
    pub(super) store: Box<dyn Tested>,
    pub(super) time: ManualClock,
    pub(super) excuses: Excuses,
    pub(super) denials: Denials,
}

impl Case {
    pub(super) fn new(name: &'static str, start: u64, store: Box<dyn Tested>, time: ManualClock) -> Case {
        Case { name, start, store, time, excuses: Excuses::default(), denials: Denials::default() }
    }

    pub(super) fn excused(self, excuses: Excuses) -> Case {
        Case { excuses, ..self }
    }

    pub(super) fn fail(&self, message: &str) -> ! {
        panic!("{} (from {} µs, at {} µs): {message}", self.name, self.start, self.time.now().as_micros())
    }

    /// Fails unless the store returned `expected`.
    pub(super) fn same<T: Debug + PartialEq>(&self, what: &str, got: T, expected: T) {
        if got != expected {
            self.fail(&format!("{what}: the store returned {got:?}, expected {expected:?}"));
        }
    }

    pub(super) fn answered<T>(&self, what: &str, reply: Result<T, String>) -> T {
        reply.unwrap_or_else(|error| self.fail(&format!("{what} failed: {error}")))
    }

    pub(super) async fn acquire(&self, set: &[Check<'_>], times: Times) -> Verdict {
        let verdict = self.answered("acquire", self.store.acquire(set, times).wait().await);
        self.same("the number of statuses", verdict.each().len(), set.len());
        self.same("is_granted", verdict.is_granted(), verdict.times() > 0);
        self.denials.note(set, times, &verdict, self.time.now());
        verdict
    }

    pub(super) async fn take(&self, policy: &Policy, key: &Key, cost: u64) -> Verdict {
        self.acquire(&[Check::new(policy, key, cost)], Times::ONCE).await
    }

    /// Takes `cost`, which must be granted. Returns the stamp.
    pub(super) async fn must_take(&self, policy: &Policy, key: &Key, cost: u64) -> Stamp {
        let verdict = self.take(policy, key, cost).await;
        self.same(&format!("times granted, {cost} of {}", policy.name()), verdict.times(), 1);
        verdict.each()[0].stamp()
    }

    pub(super) async fn look(&self, policy: &Policy, key: &Key, cost: u64) -> Status {
        let verdict = self.acquire(&[Check::new(policy, key, cost)], Times::LOOK).await;
        self.same("times granted by a look", verdict.times(), 0);
        verdict.each()[0]
    }

    /// Fails unless a look shows `expected` units.
    pub(super) async fn left(&self, what: &str, policy: &Policy, key: &Key, expected: u64) {
        let status = self.look(policy, key, 1).await;
        self.same(&format!("{what}: units left of {}", policy.name()), status.remaining(), expected);
    }

    /// Takes `cost`, which must be denied. Returns the wait.
    pub(super) async fn denied(&self, policy: &Policy, key: &Key, cost: u64) -> Duration {
        let may_be_short =
            self.excuses.cached_denials && self.denials.has_smaller(&Check::new(policy, key, cost));
        let verdict = self.take(policy, key, cost).await;
        self.same(&format!("times granted, {cost} of {}", policy.name()), verdict.times(), 0);
        self.same("the delay of a denial", verdict.delay(), Duration::ZERO);
        match verdict.wait() {
            Wait::For(wait) if may_be_short => match self.look(policy, key, cost).await.wait() {
                Wait::For(exact) if wait <= exact => exact,
                exact => self.fail(&format!("a look reports the wait {exact:?}, and a denial {wait:?}")),
            },
            Wait::For(wait) => wait,
            other => self.fail(&format!("{cost} of {} is denied with the wait {other:?}", policy.name())),
        }
    }

    pub(super) async fn refund(&self, policy: &Policy, key: &Key, units: u64, stamp: Stamp) {
        self.refund_all(&[Grant { policy, key, units, stamp, share: None }]).await;
    }

    /// As [`credit`](tollgate_core::credit()).
    pub(super) async fn credit(&self, policy: &Policy, key: &Key, units: u64) {
        self.answered("credit", self.store.credit(policy, key, units).await);
    }

    pub(super) async fn refund_all(&self, grants: &[Grant<'_>]) {
        self.answered("refund", self.store.refund(grants).await);
    }

    pub(super) async fn renew(&self, grants: &[Grant<'_>]) -> Vec<Renewal> {
        self.answered("renew", self.store.renew(grants).await)
    }

    /// Corrects the charge of grants to what was used.
    pub(super) async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Settled {
        let settled = self.answered("settle", self.store.settle(grants, total).await);
        let sum = settled.charged.checked_add(settled.forgiven);
        self.same("charged + forgiven", sum, Some(total));
        settled
    }

    /// Charges units that were used without a grant.
    pub(super) async fn charge(&self, policy: &Policy, key: &Key, units: u64) -> Settled {
        self.settle(&[nothing(policy, key)], units).await
    }

    /// Blocks a key, and fails unless that has this outcome.
    pub(super) async fn block(&self, policy: &Policy, key: &Key, expected: BlockStart) {
        let start = self.answered("block", self.store.block(policy, key).await);
        self.same("the start of a block", start, expected);
    }

    /// Fails unless a charge of these units has this outcome.
    pub(super) async fn charged(&self, policy: &Policy, key: &Key, units: u64, due: (u64, u64, u64)) {
        let Settled { charged, debt, forgiven, .. } = self.charge(policy, key, units).await;
        let what = format!("{units} beyond a grant of {}: (charged, debt, forgiven)", policy.name());
        self.same(&what, (charged, debt, forgiven), due);
    }

    pub(super) async fn reset(&self, key: &Key, policies: &[&Policy]) {
        self.answered("reset", self.store.reset(key, policies).await);
    }

    pub(super) fn advance(&self, micros: u64) {
        self.time.advance(Duration::from_micros(micros));
    }

    /// Moves to the next multiple of `micros`.
    pub(super) fn advance_to_multiple(&self, micros: u64) {
        let now = self.time.now().as_micros();
        self.time.set(Timestamp::from_micros(now.next_multiple_of(micros)));
    }
}

/// A grant of no units.
pub(super) fn nothing<'a>(policy: &'a Policy, key: &'a Key) -> Grant<'a> {
    Grant { policy, key, units: 0, stamp: Stamp::default(), share: None }
}

pub(super) const WINDOW: u64 = 10 * SECOND;
pub(super) const SECOND: u64 = 1_000_000;

/// A policy of each algorithm with 5 units in 10 seconds, without delays. Each has its own name.
pub(super) fn plain() -> Vec<Policy> {
    plain_with_limit(5)
}

/// The policies of [`plain`] with another limit and an equal burst.
pub(super) fn plain_with_limit(limit: u64) -> Vec<Policy> {
    let quota = Quota::new(limit, Duration::from_micros(WINDOW));
    let mut policies = vec![
        Policy::new("bucket", quota),
        Policy::new("queue", quota.burst(limit))
            .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::ZERO }),
    ];
    let windows = [
        ("fixed", Algorithm::FIXED_WINDOW),
        ("aligned", Algorithm::FIXED_WINDOW_ALIGNED),
        ("calendar", CALENDAR_WINDOW),
        ("sliding", Algorithm::SlidingWindow),
        ("buckets", Algorithm::SLIDING_BUCKETS),
        ("log", Algorithm::SLIDING_LOG),
    ];
    policies.extend(windows.map(|(name, algorithm)| Policy::new(name, quota).with_algorithm(algorithm)));
    policies
}

/// The policies of [`plain_with_limit`] that can be in debt. A leaky bucket forgives it.
pub(super) fn with_debt(limit: u64) -> Vec<Policy> {
    let mut policies = plain_with_limit(limit);
    policies.retain(|policy| !matches!(policy.algorithm(), Algorithm::LeakyBucket { .. }));
    policies
}

/// The window algorithms of [`plain`].
pub(super) fn windows() -> Vec<Policy> {
    plain().split_off(2)
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
