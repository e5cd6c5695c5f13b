//! A store with a single lock over the states of `tollgate-core`, correct or with a mistake.

mod asynchronous;
mod mistake;
mod settlements;
mod slot_store;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate_core::algorithm::State;
use tollgate_core::{
    Algorithm, Check, Clock, End, Grant, Key, Policy, Quota, RecentUsage, Reply, Settled, Stamp, Status,
    Store, Times, Timestamp, UsageError, Verdict, Wait,
};

pub(crate) use asynchronous::Asynchronous;
pub(crate) use mistake::{Mistake, SlotMistake};
pub(crate) use slot_store::SlotStore;

#[derive(Debug)]
pub(crate) struct OneLock {
    mistake: Mistake,
    clock: Clock,
    states: Arc<Mutex<States>>,
    latest: Arc<AtomicU64>,
}

type States = HashMap<(String, Vec<u8>), (State, Timestamp)>;

struct Pair<'a> {
    policy: &'a Policy,
    key: &'a Key,
    cost: u64,
}

impl Clone for OneLock {
    fn clone(&self) -> OneLock {
        let states = match self.mistake {
            Mistake::ClonesShareNothing => Arc::default(),
            _ => Arc::clone(&self.states),
        };
        OneLock { mistake: self.mistake, clock: self.clock.clone(), states, latest: Arc::clone(&self.latest) }
    }
}

impl OneLock {
    pub(crate) fn new(mistake: Mistake, clock: Clock) -> OneLock {
        OneLock { mistake, clock, states: Arc::default(), latest: Arc::default() }
    }

    fn name(&self, policy: &Policy, key: &Key) -> (String, Vec<u8>) {
        let mut scope = policy.scope().to_owned();
        let mut key = key.as_encoded().to_vec();
        match self.mistake {
            Mistake::IgnoresKeys => key.clear(),
            Mistake::LongKeysAreCutOff => key.truncate(256),
            Mistake::JoinsKeyAndScope => {
                key.push(b':');
                key.extend(scope.bytes());
                scope.clear();
            }
            Mistake::IgnoresPolicyNames => scope = policy.algorithm().name().to_owned(),
            Mistake::ScopeHasTheLimit => scope = format!("{scope}{}", policy.quota().limit()),
            _ => {}
        }
        (scope, key)
    }

    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        let latest = self.latest.fetch_max(now.as_micros(), Ordering::AcqRel);
        match self.mistake {
            // Loses three digits of a microsecond, as 1.76e+15 does.
            Mistake::DoublesForTime => Timestamp::from_micros(now.as_micros() / 1_000 * 1_000),
            Mistake::ClockBackIsIgnored => now.max(Timestamp::from_micros(latest)),
            _ => now,
        }
    }

    /// The policy, or what a mistake makes of it.
    fn effective(&self, policy: &Policy) -> Policy {
        self.without_headroom(policy).unwrap_or_else(|| policy.clone())
    }

    /// A class under a wrong quota of the same scope.
    fn without_headroom(&self, policy: &Policy) -> Option<Policy> {
        let quota = policy.quota();
        let all = policy.capacity() + policy.numbers().headroom();
        let is_bucket = !counts_in_windows(policy);
        let quota = match self.mistake {
            _ if policy.numbers().headroom() == 0 || policy.is_in_flight() => return None,
            Mistake::ClassTakesAll if is_bucket => quota.burst(all),
            Mistake::ClassTakesAll => Quota::new(all, quota.window()),
            Mistake::ClassHasItsShareOfTheRate if is_bucket => {
                let limit = (quota.limit() * policy.capacity() / all).max(1);
                Quota::new(limit, quota.window()).burst(policy.capacity())
            }
            _ => return None,
        };
        Policy::try_from_parts(policy.name(), quota, policy.algorithm()).ok()
    }

    fn state<'s>(&self, states: &'s mut States, policy: &Policy, key: &Key, now: Timestamp) -> &'s mut State {
        let (state, seen) =
            states.entry(self.name(policy, key)).or_insert_with(|| (State::new(policy), Timestamp::EPOCH));
        let forget = match self.mistake {
            Mistake::ClockBackIsANewKey => now < *seen,
            Mistake::ForgetsEarly => {
                now > *seen && state.clone().reset_after(policy, *seen) < Duration::from_millis(1_500)
            }
            _ => false,
        };
        if forget {
            *state = State::new(policy);
        }
        *seen = now;
        state
    }

    /// The time at which to look at a state.
    fn time_of_look(&self, state: &State, policy: &Policy, now: Timestamp) -> Timestamp {
        let before = Timestamp::from_micros(now.as_micros().saturating_sub(1));
        let mut state = state.clone();
        state.look(policy, before);
        let at_the_end = state.reset_after(policy, before) == Duration::from_micros(1);
        let inherits = self.mistake == Mistake::InheritsTheOldCount && counts_in_windows(policy);
        if inherits && at_the_end { before } else { now }
    }

    fn decide(&self, states: &mut States, set: &[Check<'_>], times: Times) -> Verdict {
        let now = self.now();
        let (pairs, of_check) = self.pairs(set);
        let granted = self.room(states, &pairs, times, now);
        self.answer(states, &pairs, &of_check, times, granted, now)
    }

    fn pairs<'a>(&self, set: &[Check<'a>]) -> (Vec<Pair<'a>>, Vec<usize>) {
        let mut pairs: Vec<Pair<'a>> = Vec::new();
        let mut of_check = Vec::new();
        for check in set {
            let cost = match self.mistake {
                Mistake::ForgetsTheCost => check.cost.min(1),
                Mistake::ZeroCostsOne => check.cost.max(1),
                _ => check.cost,
            };
            let name = self.name(check.policy, check.key);
            let same = pairs.iter().position(|pair| self.name(pair.policy, pair.key) == name);
            let at = same.unwrap_or_else(|| {
                pairs.push(Pair { policy: check.policy, key: check.key, cost: 0 });
                pairs.len() - 1
            });
            if self.mistake == Mistake::RepeatedPairCountsOnce {
                pairs[at].cost = cost;
            } else {
                pairs[at].cost = pairs[at].cost.saturating_add(cost);
            }
            of_check.push(at);
        }
        (pairs, of_check)
    }

    /// How often the pairs can be granted; 0 for a denial.
    fn room(&self, states: &mut States, pairs: &[Pair<'_>], times: Times, now: Timestamp) -> u32 {
        let mut granted = times.max();
        if self.mistake == Mistake::PartialIsAllOrNothing && times.max() > 0 {
            granted = times.min();
        }
        for pair in pairs {
            let state = self.state(states, pair.policy, pair.key, now);
            if self.mistake == Mistake::LookForgivesDebt && times == Times::LOOK {
                settlements::forgive(state, pair.policy, now);
            }
            let look = state.look(pair.policy, self.time_of_look(state, pair.policy, now));
            granted = granted.min(look.times(pair.policy, pair.cost));
            let is_full = state.reset_after(pair.policy, now).is_zero();
            if self.mistake == Mistake::ClassWaitsUntilFull
                && pair.policy.numbers().headroom() > 0
                && !is_full
            {
                granted = 0;
            }
        }
        let enough = match self.mistake {
            Mistake::PartialIgnoresMin => granted > 0,
            Mistake::GrantsWithoutRoom if granted == 0 && times == Times::ONCE => return 1,
            Mistake::EmptyIsDenied => !pairs.is_empty() && granted >= times.min(),
            _ => granted >= times.min(),
        };
        if enough { granted } else { 0 }
    }

    fn answer(
        &self,
        states: &mut States,
        pairs: &[Pair<'_>],
        of_check: &[usize],
        times: Times,
        granted: u32,
        now: Timestamp,
    ) -> Verdict {
        let mut delay = Duration::ZERO;
        let mut each = Vec::new();
        for pair in pairs {
            let state = self.state(states, pair.policy, pair.key, now);
            let now = self.time_of_look(state, pair.policy, now);
            let look = state.look(pair.policy, now);
            let mut stamp = Stamp::default();
            let mut wait = Wait::None;
            let mut remaining = look.remaining;
            let mut reset = state.reset_after(pair.policy, now);
            if granted == 0 {
                wait = self.wait(state.refuse(pair.policy, now, look, pair.cost, times).wait());
                if self.mistake == Mistake::CutsOtherVersions && state.is_record() {
                    *state = State::new(pair.policy);
                    let look = state.look(pair.policy, now);
                    state.charge(pair.policy, now, look, look.room);
                }
                let charges = match self.mistake {
                    Mistake::ChargesDenied => times.max() > 0,
                    Mistake::LookCharges => times == Times::LOOK,
                    _ => false,
                };
                if charges {
                    state.charge(pair.policy, now, look, look.room.min(pair.cost));
                }
            } else {
                let units = pair.cost.saturating_mul(u64::from(granted)).min(look.room);
                let charge = state.charge(pair.policy, now, look, units);
                stamp = charge.status.stamp();
                reset = charge.status.reset_after();
                delay = match self.mistake {
                    Mistake::NoDelay => Duration::ZERO,
                    Mistake::DelayOfTheLast => charge.delay,
                    _ => delay.max(charge.delay),
                };
                if self.mistake != Mistake::RemainingBeforeTheCharge {
                    remaining = remaining.saturating_sub(units);
                }
            }
            if self.mistake == Mistake::ResetTooEarly {
                reset = reset.saturating_sub(Duration::from_micros(1));
            }
            each.push(Status::new(remaining, wait, reset, stamp));
        }
        let mut statuses: Vec<Status> = of_check.iter().map(|at| each[*at]).collect();
        if self.mistake == Mistake::StatusesBackwards {
            statuses.reverse();
        }
        let verdict = Verdict::new(granted, delay, statuses.iter().copied());
        if self.mistake == Mistake::EachReportsTheWait {
            let all = |status: &Status| {
                Status::new(status.remaining(), verdict.wait(), status.reset_after(), status.stamp())
            };
            return Verdict::new(granted, delay, statuses.iter().map(all));
        }
        verdict
    }

    fn wait(&self, wait: Wait) -> Wait {
        let micro = Duration::from_micros(1);
        match (wait, self.mistake) {
            (Wait::For(span), Mistake::WaitTooShort) => Wait::For(span - micro),
            (Wait::For(span), Mistake::WaitTooLong) => Wait::For(span + micro),
            (Wait::For(span), Mistake::WaitInWholeMilliseconds) => {
                Wait::For(Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX - 1) + 1))
            }
            (Wait::Never, Mistake::NeverIsAWait) => Wait::For(Duration::from_secs(115 * 86_400)),
            _ => wait,
        }
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for OneLock {
    type Error = Infallible;
    type Acquire = Ready<Result<Verdict, Infallible>>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let policies: Vec<Policy> = set.iter().map(|check| self.effective(check.policy)).collect();
        let set = set.iter().zip(&policies).map(|(check, policy)| Check { policy, ..*check });
        let set = &set.collect::<Vec<_>>()[..];
        Reply::Now(Ok(match self.mistake {
            Mistake::OneByOne | Mistake::KeyByKey if set.len() > 1 => {
                let mut states = self.lock();
                let together =
                    |a: &Check<'_>, b: &Check<'_>| self.mistake == Mistake::KeyByKey && a.key == b.key;
                let verdicts: Vec<Verdict> =
                    set.chunk_by(together).map(|part| self.decide(&mut states, part, times)).collect();
                let granted = verdicts.iter().map(Verdict::times).min().unwrap_or(0);
                let delay = verdicts.iter().map(Verdict::delay).max().unwrap_or_default();
                Verdict::new(granted, delay, verdicts.iter().flat_map(|verdict| verdict.each().to_vec()))
            }
            Mistake::LooksThenCharges => {
                let now = self.now();
                let (pairs, of_check) = self.pairs(set);
                let granted = self.room(&mut self.lock(), &pairs, times, now);
                std::thread::sleep(Duration::from_micros(50));
                self.answer(&mut self.lock(), &pairs, &of_check, times, granted, now)
            }
            _ => self.decide(&mut self.lock(), set, times),
        }))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        let mut states = self.lock();
        let now = self.now();
        for grant in grants {
            let Some((state, _)) = states.get_mut(&self.name(grant.policy, grant.key)) else { continue };
            let policy = &self.effective(grant.policy);
            let grant = Grant { policy, ..*grant };
            match self.mistake {
                Mistake::RefundDoesNothing => {}
                Mistake::CreditDoesNothing if grant.stamp == Stamp::NEWEST => {}
                Mistake::CreditRefillsAll if grant.stamp == Stamp::NEWEST => {
                    *state = State::new(grant.policy);
                }
                Mistake::CreditReachesOneGrant if grant.stamp == Stamp::NEWEST => {
                    let look = state.look(grant.policy, now);
                    let stamp = state.charge(grant.policy, now, look, 0).status.stamp();
                    state.refund(grant.policy, now, grant.units, stamp);
                }
                Mistake::RefundStopsAfterTheFirst => {
                    state.refund(grant.policy, now, grant.units, grant.stamp);
                    break;
                }
                Mistake::RefundsForgivenDebt if grant.policy.algorithm() == Algorithm::Gcra => {
                    let stamp = grant
                        .stamp
                        .micros()
                        .min(now.saturating_add(grant.policy.quota().window()).as_micros());
                    state.refund(grant.policy, now, grant.units, Stamp::new(stamp, 0));
                }
                Mistake::RefundRefillsAll => *state = State::new(grant.policy),
                Mistake::RefundLandsInTheNextWindow if counts_in_windows(grant.policy) => {
                    let look = state.look(grant.policy, now);
                    let stamp = state.charge(grant.policy, now, look, 0).status.stamp();
                    state.refund(grant.policy, now, grant.units, stamp);
                }
                _ => state.refund(grant.policy, now, grant.units, grant.stamp),
            }
        }
        ready(Ok(()))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Infallible> + use<> {
        ready(Ok(settlements::settle(self, grants, total)))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        let mut states = self.lock();
        for policy in policies {
            match self.mistake {
                Mistake::ResetDoesNothing => {}
                Mistake::ResetForgetsAllKeys => states.clear(),
                _ => {
                    states.remove(&self.name(policy, key));
                }
            }
        }
        ready(Ok(()))
    }
}

impl RecentUsage for OneLock {
    async fn recent_usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        let mut states = self.lock();
        let unused = || (State::new(policy), Timestamp::EPOCH);
        let (state, _) = states.entry(self.name(policy, key)).or_insert_with(unused);
        match self.mistake {
            Mistake::UsageIgnoresTheInterval => state.usage(policy, self.now(), Duration::MAX),
            Mistake::UsageCharges => {
                let look = state.look(policy, self.now());
                state.charge(policy, self.now(), look, 1);
                state.usage(policy, self.now(), interval)
            }
            _ => state.usage(policy, self.now(), interval),
        }
    }
}

fn counts_in_windows(policy: &Policy) -> bool {
    !matches!(policy.algorithm(), Algorithm::Gcra | Algorithm::LeakyBucket { .. })
}

/// Runs a future that needs no runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
}
