//! A store of slots with a single lock, with times to live or without, correct or with a mistake.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{
    Check, Clock, End, Grant, Key, Policy, Renewal, RenewalReport, Reply, Stamp, Status, Store, Times,
    Verdict, Wait,
};

use super::{Mistake, OneLock, SlotMistake};

/// The slots of a policy and key: an identity, and the end of its time to live in microseconds.
type Held = BTreeMap<(u64, u32), u64>;

#[derive(Clone, Debug)]
pub(crate) struct SlotStore {
    mistake: SlotMistake,
    has_ttl: bool,
    rates: OneLock,
    clock: Clock,
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug, Default)]
struct Slots {
    of: HashMap<(String, Key), Held>,
    next: u32,
}

impl SlotStore {
    pub(crate) fn new(mistake: SlotMistake, has_ttl: bool, clock: Clock) -> SlotStore {
        let rates = OneLock::new(Mistake::None, clock.clone());
        SlotStore { mistake, has_ttl, rates, clock, slots: Arc::default() }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slots of a key whose time to live has not ended.
    fn held<'a>(&self, slots: &'a mut Slots, policy: &Policy, key: &Key) -> &'a mut Held {
        let scope = match self.mistake {
            SlotMistake::TtlIsInTheScope => format!("{} {:?}", policy.scope(), policy.ttl()),
            SlotMistake::LimitIsInTheScope => format!("{} {}", policy.scope(), policy.capacity()),
            _ => policy.scope().to_owned(),
        };
        let held = slots.of.entry((scope, key.clone())).or_default();
        let now = self.now() + u64::from(self.mistake == SlotMistake::TtlEndsEarly);
        if self.mistake != SlotMistake::TtlNeverEnds {
            held.retain(|_, end| *end > now);
        }
        held
    }

    fn end(&self, policy: &Policy) -> u64 {
        if self.has_ttl { self.now() + micros(policy.quota().window()) } else { u64::MAX }
    }

    fn claim(&self, slots: &mut Slots, check: &Check<'_>, units: u64) -> Stamp {
        let (now, end, first) = (self.now(), self.end(check.policy), slots.next);
        let units = match self.mistake {
            SlotMistake::TakesTwo => 2 * units,
            SlotMistake::TakesOneForSeveral => units.min(1),
            _ => units,
        };
        for _ in 0..units {
            let number = slots.next;
            slots.next = number.wrapping_add(1);
            self.held(slots, check.policy, check.key).insert((now, number), end);
        }
        match self.mistake {
            SlotMistake::OnlyCounts => Stamp::default(),
            _ => Stamp::new(now, first),
        }
    }

    fn release(&self, slots: &mut Slots, grant: &Grant<'_>) {
        let held = self.held(slots, grant.policy, grant.key);
        let units = match self.mistake {
            SlotMistake::ReleasesUpToTheLimit => grant.units.min(grant.policy.capacity()),
            _ => grant.units,
        };
        for turn in 0..units {
            let turn = if self.mistake == SlotMistake::ReleasesTheFirst { 0 } else { turn };
            let stamp = grant.stamp.after_refund(grant.policy, turn);
            let is_held = match self.mistake {
                SlotMistake::OnlyCounts => held.pop_first().is_some(),
                SlotMistake::ReleasesTheGrant => {
                    held.retain(|(at, _), _| *at != stamp.micros());
                    true
                }
                _ => held.remove(&(stamp.micros(), stamp.fraction())).is_some(),
            };
            if !is_held && self.mistake == SlotMistake::SecondReleaseFrees {
                held.pop_first();
            }
        }
        if held.is_empty() && self.mistake == SlotMistake::NumbersBeginAgain {
            slots.next = 0;
        }
    }

    fn renewed(&self, slots: &mut Slots, grant: &Grant<'_>) -> Renewal {
        let (end, limit) = (self.end(grant.policy), grant.policy.capacity());
        let held = self.held(slots, grant.policy, grant.key);
        let identity = (grant.stamp.micros(), grant.stamp.fraction());
        let is_held = held.contains_key(&identity);
        let has_room = (held.len() as u64) < limit;
        let renewal = match self.mistake {
            SlotMistake::RenewalDoesNothing => return Renewal::Held,
            SlotMistake::RenewalOnlyReports if !is_held && has_room => return Renewal::Held,
            SlotMistake::RenewalTakesNothingAgain if !is_held => Renewal::Lost,
            _ if is_held || has_room || self.mistake == SlotMistake::RenewalIgnoresTheLimit => Renewal::Held,
            _ => Renewal::Lost,
        };
        if renewal == Renewal::Held {
            held.insert(identity, end);
        }
        renewal
    }

    /// The wait of a refused request for `units`. Cuts what a clock that stepped back left ahead.
    fn refuse(&self, slots: &mut Slots, check: &Check<'_>, cost: u64, units: u64) -> Wait {
        let (now, ttl) = (self.now(), micros(check.policy.quota().window()));
        let held = self.held(slots, check.policy, check.key);
        let missing = (held.len() as u64 + units).saturating_sub(check.policy.capacity());
        let never = match self.mistake {
            SlotMistake::SeveralNeverPass => units > 1,
            SlotMistake::SeveralAlwaysWait => cost > 1,
            _ => cost > 1 || units > check.policy.capacity(),
        };
        if never {
            return Wait::Never;
        }
        if units == 0 || missing == 0 {
            return Wait::None;
        }
        for ((taken, _), end) in held.iter_mut().filter(|_| self.has_ttl) {
            let is_of_ttl = *end == *taken + ttl || self.mistake == SlotMistake::CutsLongerTimes;
            if is_of_ttl && self.mistake != SlotMistake::KeepsTheFuture {
                *end = (now + ttl).min(*end);
            }
        }
        let mut ends: Vec<u64> = held.values().copied().collect();
        ends.sort_unstable();
        let rank = if self.mistake == SlotMistake::WaitIsTheFirst { 1 } else { missing };
        let end = usize::try_from(rank - 1).ok().and_then(|rank| ends.get(rank));
        let wait = match self.mistake {
            SlotMistake::WaitIsTheTtl => ttl,
            _ => end.map_or(ttl, |end| end.saturating_sub(now).min(ttl)),
        };
        Wait::For(Duration::from_micros(wait))
    }

    /// Looks at each check, with the sum of the costs of its policy and key. Returns how often the
    /// slots allow the set.
    fn room(&self, slots: &mut Slots, set: &[(Check<'_>, u64)], times: Times) -> u32 {
        let mut most = times.max();
        for (check, cost) in set {
            let held = self.held(slots, check.policy, check.key).len() as u64;
            let room = check.policy.capacity().saturating_sub(held);
            let fits = match cost {
                0 => u64::MAX,
                2.. if self.mistake != SlotMistake::CostsAddUp => 0,
                _ => room / cost,
            };
            most = most.min(u32::try_from(fits).unwrap_or(u32::MAX));
        }
        if most < times.min() { 0 } else { most }
    }

    fn decide(&self, set: &[Check<'_>], times: Times) -> Verdict {
        let (in_flight, of_rates): (Vec<Check<'_>>, Vec<Check<'_>>) =
            set.iter().partition(|check| check.policy.is_in_flight());
        let same = |a: &Check<'_>, b: &Check<'_>| a.policy.scope() == b.policy.scope() && a.key == b.key;
        let cost = |check: &Check<'_>| {
            in_flight.iter().filter(|other| same(check, other)).map(|other| other.cost).sum()
        };
        let with_costs: Vec<(Check<'_>, u64)> = in_flight.iter().map(|check| (*check, cost(check))).collect();
        let mut slots = self.lock();
        let room = self.room(&mut slots, &with_costs, times);
        if self.mistake == SlotMistake::LooksThenClaims {
            drop(slots);
            std::thread::sleep(Duration::from_micros(50));
            slots = self.lock();
        }
        let of_rates = |times| match self.rates.acquire(&of_rates, times) {
            Reply::Now(Ok(verdict)) => verdict,
            Reply::Later(_) => unreachable!("it answers at once"),
        };
        let rates = match (room, self.mistake) {
            (0, SlotMistake::RefusedSetTakesRates) => of_rates(times),
            (0, _) => of_rates(Times::LOOK),
            _ => of_rates(Times::between(times.min(), room)),
        };
        let granted = if room == 0 { 0 } else { rates.times() };
        let wanted = u64::from(times.min().max(1));
        let mut charged: Vec<(Check<'_>, Stamp)> = Vec::new();
        let of_slots: Vec<Status> = with_costs
            .iter()
            .map(|(check, cost)| {
                let (mut wait, mut stamp) = (Wait::None, Stamp::default());
                if let Some((_, first)) = charged.iter().find(|(other, _)| same(check, other)) {
                    stamp = *first;
                } else if granted > 0 {
                    stamp = self.claim(&mut slots, check, cost * u64::from(granted));
                    charged.push((*check, stamp));
                } else {
                    wait = self.refuse(&mut slots, check, *cost, cost * wanted);
                    if room > 0 && self.mistake == SlotMistake::RefusedSetTakesSlots {
                        self.claim(&mut slots, check, *cost);
                    }
                }
                self.status(&mut slots, check, wait, stamp)
            })
            .collect();
        let (mut of_slots, mut of_rates) = (of_slots.into_iter(), rates.each().iter().copied());
        let each = set
            .iter()
            .map(|check| if check.policy.is_in_flight() { of_slots.next() } else { of_rates.next() });
        Verdict::new(granted, rates.delay(), each.map(|status| status.expect("one for each check")))
    }

    fn status(&self, slots: &mut Slots, check: &Check<'_>, wait: Wait, stamp: Stamp) -> Status {
        let (ttl, end) = (check.policy.quota().window(), self.end(check.policy));
        let held = self.held(slots, check.policy, check.key);
        if self.mistake == SlotMistake::AnswersRenew {
            held.values_mut().for_each(|of| *of = end);
        }
        let used = held.len() as u64;
        let reset_after = match used {
            0 => Duration::ZERO,
            _ if self.has_ttl => ttl,
            _ => Duration::from_micros(u64::MAX),
        };
        Status::new(check.policy.capacity().saturating_sub(used), wait, reset_after, stamp)
    }
}

impl Store for SlotStore {
    type Error = Infallible;
    type Acquire = Ready<Result<Verdict, Infallible>>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        Reply::Now(Ok(self.decide(set, times)))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        let (in_flight, of_rates): (Vec<Grant<'_>>, Vec<Grant<'_>>) =
            grants.iter().partition(|grant| grant.policy.is_in_flight());
        for grant in &in_flight {
            self.release(&mut self.lock(), grant);
        }
        self.rates.refund(&of_rates)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<> {
        for (at, grant) in grants.iter().enumerate() {
            let renewal = if self.has_ttl { self.renewed(&mut self.lock(), grant) } else { Renewal::Held };
            report(at, renewal);
        }
        ready(Ok(()))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        for policy in policies.iter().filter(|policy| policy.is_in_flight()) {
            if self.mistake != SlotMistake::ResetKeepsSlots {
                self.held(&mut self.lock(), policy, key).clear();
            }
        }
        self.rates.reset(key, policies)
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
