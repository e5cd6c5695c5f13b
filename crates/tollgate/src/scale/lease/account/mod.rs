//! What one process holds of a key: the state machine of its leases, and how much each fetches.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Stamp, Status, Timestamp, Wait};

use super::demand::Demand;
use super::settings::Lease;

#[cfg(test)]
mod schedules;

/// A lease is at most one tenth of what remained at the store, so that it shrinks to exact checks
/// near the limit.
const REMAINING_PER_LEASED: u64 = 10;

/// The fewest units in a lease: fewer would save no round trip.
const FEWEST: u32 = 2;

/// The fewest requests in a life for which a lease is worth its fetch and its refund. With 2, a key
/// of one request in a life costs 1.33 round trips for each decision, and 1.03 with 4 (example
/// fleet).
const LEAST_DEMAND: u32 = 4;

/// A fetch without an answer for so long no longer keeps its key from being leased: its runtime may
/// never be driven again.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// A key's demand on this node, and what the node holds of it.
#[derive(Debug)]
pub(super) struct Account {
    demand: Demand,
    /// Only while the key is leased: most keys are not.
    open: Option<Box<Open>>,
}

/// What a spend needs, in two cache lines. In three, a request for one of 10,000 leased keys costs
/// 1.12 × (peers, `--leased`).
#[derive(Debug)]
#[repr(align(64))]
struct Open {
    apart: Box<Apart>,
    /// Limit and capacity of the quota that the leases were fetched for. Its window is part of the
    /// account's digest.
    quota: (u64, u64),
    /// The leases, oldest first. Two, if one was fetched before the other ran dry.
    held: SmallVec<[Held; 2]>,
    /// The next fetch starts when fewer units are held, or from this time.
    refetch_below: u32,
    refetch_from: Timestamp,
    /// What the store had left after the last fetch, and when its quota is full again.
    left: u64,
    full_at: Timestamp,
    /// Units spent since the demand was updated.
    spent: u32,
}

/// What a spend does not need.
#[derive(Debug)]
struct Apart {
    /// What the leases were fetched for.
    of: (Policy, Key),
    /// When the fetch on its way was sent. A grant of any other fetch was for a state that is gone.
    fetching: Option<Timestamp>,
}

#[derive(Debug)]
struct Held {
    units: u32,
    ends: Timestamp,
    stamp: Stamp,
}

/// Units that a lease granted.
pub(super) struct Spent {
    pub(super) status: Status,
    /// The earliest end of the leases that they were taken from.
    ends: Timestamp,
    /// Whether it is time to fetch more.
    pub(super) refetch: bool,
}

/// A fetch to send: as many units as there is room for, up to `units`.
pub(super) struct Fetch {
    pub(super) policy: Policy,
    pub(super) key: Key,
    pub(super) units: u32,
    pub(super) sent: Timestamp,
}

/// The answer to a fetch.
pub(super) struct Granted {
    pub(super) units: u32,
    pub(super) stamp: Stamp,
    pub(super) ends: Timestamp,
    pub(super) left: u64,
    pub(super) full_at: Timestamp,
}

/// Units that were not spent in time, to be refunded.
#[derive(Debug)]
pub(super) struct Unspent {
    pub(super) policy: Policy,
    pub(super) key: Key,
    pub(super) units: u32,
    pub(super) stamp: Stamp,
    /// When it was known that they were not spent.
    pub(super) since: Timestamp,
}

impl Account {
    pub(super) fn new(units: u64, now: Timestamp) -> Account {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        Account { demand: Demand::new(units, now), open: None }
    }

    /// Spends units of the leases that have not ended, the oldest first. `None` if they hold fewer,
    /// or were fetched for another quota.
    #[inline]
    pub(super) fn spend(&mut self, policy: &Policy, units: u64, now: Timestamp) -> Option<Spent> {
        let open = self.open.as_mut()?;
        let units = u32::try_from(units).ok()?;
        let held = open.live(now);
        if held < units || !open.is_for(policy) {
            return None;
        }
        let (mut wanted, mut taken) = (units, None);
        for lease in open.held.iter_mut().filter(|lease| now < lease.ends && lease.units > 0) {
            let part = lease.units.min(wanted);
            lease.units -= part;
            wanted -= part;
            // The debt of the units that stay in the lease comes after that of these.
            let own = || (lease.ends, lease.stamp.after_refund(policy, lease.units.into()));
            let (ends, stamp) = taken.unwrap_or_else(own);
            taken = Some((ends.min(lease.ends), stamp));
            if wanted == 0 {
                break;
            }
        }
        let (ends, stamp) = taken?;
        open.spent = open.spent.saturating_add(units);
        let held = held - units;
        let remaining = u64::from(held).saturating_add(open.left).min(policy.capacity());
        Some(Spent {
            status: Status::new(remaining, Wait::None, since(now, open.full_at), stamp),
            ends,
            refetch: held < open.refetch_below || now >= open.refetch_from,
        })
    }

    /// Takes back a spend of a set that another check refused. The units join the newest lease that
    /// ends no later than theirs: an older one may have ended. If there is none, they are lost.
    pub(super) fn unspend(&mut self, spent: &Spent, units: u64) {
        let (Some(open), Ok(units)) = (&mut self.open, u32::try_from(units)) else { return };
        if let Some(lease) = open.held.iter_mut().rev().find(|lease| lease.ends <= spent.ends) {
            lease.units += units;
            open.spent = open.spent.saturating_sub(units);
        }
    }

    /// Counts units that the store is asked for. Returns whether the key is in such demand, for
    /// several requests of this cost, that a lease is worth its fetch, and none is on its way.
    pub(super) fn ask(&mut self, units: u64, now: Timestamp, life: Duration) -> bool {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.update_demand(units, now, life);
        self.demand.units() >= LEAST_DEMAND.saturating_mul(units.max(1)) && self.may_fetch(now)
    }

    /// Starts a fetch, if it is time. `left` is what the store had left just now, if it was asked.
    pub(super) fn fetch(
        &mut self,
        policy: &Policy,
        key: &Key,
        left: Option<u64>,
        now: Timestamp,
        lease: &Lease,
    ) -> Option<Fetch> {
        self.update_demand(0, now, lease.life);
        if let Some(open) = &mut self.open {
            open.apart.fetching.take_if(|sent| sent.saturating_add(GIVE_UP_AFTER) <= now);
        }
        if self.open.as_ref().is_some_and(|open| !open.is_for(policy)) {
            if !self.is_empty() {
                return None;
            }
            self.open = None;
        }
        if !self.may_fetch(now) {
            return None;
        }
        let held = self.open.as_ref().map_or(0, |open| open.live(now));
        let left = match policy.numbers().charges_nothing() {
            true => u64::MAX,
            false => left.or(self.open.as_ref().map(|open| open.left)).unwrap_or(0),
        };
        let most = u32::try_from(lease.most_units).unwrap_or(u32::MAX).saturating_sub(held);
        // Twice the demand, so that a growing load is followed within a few leases. Powers of two,
        // so that the store decides many fetches alike.
        let wanted = 1 << (self.demand.units().max(1).ilog2() + 1).min(31);
        let tenth = u32::try_from(left / REMAINING_PER_LEASED).unwrap_or(u32::MAX);
        let units = most.min(tenth).min(wanted);
        if units < FEWEST {
            if let Some(open) = &mut self.open {
                open.refetch_not_before(now.saturating_add(lease.life / 4));
            }
            return None;
        }
        let open = self.open.get_or_insert_with(|| Box::new(Open::new(policy, key, now)));
        open.apart.fetching = Some(now);
        // Not before the answer: a grant that is not waited for is lost.
        open.refetch_not_before(now.saturating_add(GIVE_UP_AFTER));
        let (policy, key) = open.apart.of.clone();
        Some(Fetch { policy, key, units, sent: now })
    }

    /// Adds the lease that was fetched at `sent`, also if it has ended. Returns `false` if the key
    /// was reset meanwhile: the lease belongs to a state that is gone.
    pub(super) fn granted(&mut self, sent: Timestamp, granted: &Granted, life: Duration) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.apart.fetching == Some(sent)) else {
            return false;
        };
        open.apart.fetching = None;
        open.left = granted.left;
        open.full_at = granted.full_at;
        open.held.retain(|lease| lease.units > 0);
        open.held.push(Held { units: granted.units, ends: granted.ends, stamp: granted.stamp });
        open.refetch_below = (granted.units / 2).max(1);
        let eighth = granted.ends.saturating_since(sent).min(life) / 8;
        open.refetch_from = before(granted.ends, eighth);
        true
    }

    /// The fetch of `sent` brought nothing. The next one waits for the life of a lease.
    pub(super) fn not_granted(&mut self, sent: Timestamp, left: u64, now: Timestamp, life: Duration) {
        if let Some(open) = self.open.as_mut().filter(|open| open.apart.fetching == Some(sent)) {
            open.apart.fetching = None;
            open.left = left;
            open.refetch_not_before(now.saturating_add(life));
        }
    }

    /// Takes the units of leases that end by `by`, each once. Closes an account without leases.
    pub(super) fn end(&mut self, by: Timestamp, now: Timestamp, unspent: &mut Vec<Unspent>) {
        let Some(open) = &mut self.open else { return };
        let Open { apart, held, .. } = &mut **open;
        held.retain(|lease| {
            let ended = lease.ends <= by;
            if ended && lease.units > 0 && !apart.of.0.numbers().charges_nothing() {
                let (policy, key) = apart.of.clone();
                unspent.push(Unspent { policy, key, units: lease.units, stamp: lease.stamp, since: now });
            }
            !ended
        });
        if self.is_empty() {
            self.open = None;
        }
    }

    /// Drops all leases, and the one that is on its way: the store's state is reset.
    pub(super) fn forget(&mut self) {
        self.open = None;
    }

    /// Whether units are held, or on their way.
    pub(super) fn is_leased(&self) -> bool {
        !self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.held.is_empty() && open.apart.fetching.is_none())
    }

    /// Units held now that were fetched for this quota.
    pub(super) fn spendable(&self, policy: &Policy, now: Timestamp) -> u32 {
        let open = self.open.as_ref().filter(|open| open.is_for(policy));
        open.map_or(0, |open| open.live(now))
    }

    /// Units held now, and when the last of them ends.
    pub(super) fn held(&self, now: Timestamp) -> Option<(u32, Timestamp)> {
        let open = self.open.as_ref()?;
        let ends = open.held.iter().filter(|lease| lease.units > 0).map(|lease| lease.ends).max()?;
        Some((open.live(now), ends)).filter(|(units, _)| *units > 0)
    }

    /// Units of all leases, also of those that have ended and are not refunded yet. Permissions of
    /// keys that are not blocked are no units.
    pub(super) fn units(&self) -> u64 {
        let open = self.open.iter().filter(|open| !open.apart.of.0.numbers().charges_nothing());
        open.flat_map(|open| &open.held).map(|lease| u64::from(lease.units)).sum()
    }

    fn update_demand(&mut self, units: u32, now: Timestamp, life: Duration) {
        let spent = self.open.as_mut().map_or(0, |open| std::mem::take(&mut open.spent));
        self.demand.add(units.saturating_add(spent), now, life);
    }

    fn may_fetch(&self, now: Timestamp) -> bool {
        self.open.as_ref().is_none_or(|open| now >= open.refetch_from || open.live(now) < open.refetch_below)
    }
}

impl Open {
    fn new(policy: &Policy, key: &Key, now: Timestamp) -> Open {
        Open {
            apart: Box::new(Apart { of: (policy.clone(), key.clone()), fetching: None }),
            quota: quota_of(policy),
            held: SmallVec::new(),
            refetch_below: 0,
            refetch_from: now,
            left: 0,
            full_at: now,
            spent: 0,
        }
    }

    #[inline]
    fn is_for(&self, policy: &Policy) -> bool {
        self.quota == quota_of(policy)
    }

    #[inline]
    fn live(&self, now: Timestamp) -> u32 {
        let live = self.held.iter().filter(|lease| now < lease.ends);
        live.fold(0, |units, lease| units.saturating_add(lease.units))
    }

    fn refetch_not_before(&mut self, time: Timestamp) {
        self.refetch_below = 0;
        self.refetch_from = time;
    }
}

/// Limit and capacity.
#[inline]
fn quota_of(policy: &Policy) -> (u64, u64) {
    (policy.quota().limit(), policy.capacity())
}

fn since(now: Timestamp, then: Timestamp) -> Duration {
    then.saturating_since(now)
}

fn before(time: Timestamp, span: Duration) -> Timestamp {
    let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_micros(time.as_micros().saturating_sub(span))
}

#[cfg(test)]
mod tests {
    use tollgate_core::Quota;

    use super::*;

    const LIFE: Duration = Duration::from_millis(1);

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 + micros)
    }

    fn policy(limit: u64) -> Policy {
        Policy::new("p", Quota::per_day(limit))
    }

    /// An account in demand of 100 units, and its settings.
    fn in_demand() -> (Account, Lease) {
        (Account::new(100, at(0)), Lease::at_most(100).lasting(LIFE))
    }

    /// Fetches as many units as the settings allow, and is granted `units`.
    fn lease(account: &mut Account, settings: &Lease, micros: u64, units: u32) {
        let (key, now) = (Key::from("ada"), at(micros));
        let fetch = account.fetch(&policy(1_000), &key, Some(1_000), now, settings).expect("a key in demand");
        assert!(account.granted(fetch.sent, &granted(now, units), LIFE));
    }

    fn granted(sent: Timestamp, units: u32) -> Granted {
        Granted { units, stamp: Stamp::default(), ends: sent.saturating_add(LIFE), left: 900, full_at: sent }
    }

    #[test]
    fn only_leases_that_have_ended_are_refunded() {
        let (mut account, settings) = in_demand();
        lease(&mut account, &settings, 0, 5);
        lease(&mut account, &settings, 900, 7);
        let mut unspent = Vec::new();
        account.end(at(1_000), at(1_000), &mut unspent);
        assert_eq!(unspent.iter().map(|unspent| unspent.units).collect::<Vec<_>>(), [5]);
        assert_eq!(account.held(at(1_000)), Some((7, at(1_900))));
    }

    #[test]
    fn a_lease_is_spent_by_its_own_quota_only_and_refetched_when_half_is_left() {
        let (mut account, settings) = in_demand();
        lease(&mut account, &settings, 0, 8);
        assert!(account.spend(&policy(2_000), 1, at(1)).is_none());
        let refetches: Vec<bool> = (0..8)
            .map(|_| account.spend(&policy(1_000), 1, at(1)).expect("a unit is held").refetch)
            .collect();
        assert_eq!(refetches, [false, false, false, false, true, true, true, true]);
    }

    #[test]
    fn an_answer_from_before_a_reset_is_not_that_of_a_later_fetch() {
        let (mut account, settings) = in_demand();
        let (policy, key) = (policy(1_000), Key::from("ada"));
        let fetch = |account: &mut Account, micros| {
            account.fetch(&policy, &key, Some(1_000), at(micros), &settings).expect("a key in demand").sent
        };
        let before = fetch(&mut account, 0);
        account.forget();
        let after = fetch(&mut account, 1);
        assert!(!account.granted(before, &granted(before, 5), LIFE));
        assert!(account.granted(after, &granted(after, 5), LIFE));
        assert_eq!(account.units(), 5);
    }

    #[test]
    fn another_quota_is_leased_once_an_unanswered_fetch_is_given_up() {
        let (mut account, settings) = in_demand();
        let (old, new, key) = (policy(1_000), policy(2_000), Key::from("ada"));
        assert!(account.fetch(&old, &key, Some(1_000), at(0), &settings).is_some());
        for (later, is_fetched) in [(1, false), (10_000_000, true)] {
            account.ask(100, at(later), LIFE);
            let fetch = account.fetch(&new, &key, Some(1_000), at(later), &settings);
            assert_eq!(fetch.is_some(), is_fetched, "{later} us later");
        }
    }

    #[test]
    fn a_refused_set_returns_units_to_the_lease_that_they_came_from() {
        let (policy, key) = (Policy::new("p", Quota::per_day(1_000)), Key::from("ada"));
        let lease = Lease::at_most(100).lasting(LIFE);
        let [first, second] = [1_000_000, 1_001_000].map(Timestamp::from_micros);
        let mut account = Account::new(10, first);
        for now in [first, second] {
            let fetch = account.fetch(&policy, &key, Some(900), now, &lease).expect("a key in demand");
            let (stamp, ends) = (Stamp::default(), now.saturating_add(LIFE));
            let granted = Granted { units: 5, stamp, ends, left: 900, full_at: now };
            assert!(account.granted(fetch.sent, &granted, LIFE));
        }
        // The first lease has ended with all its units, and is not refunded yet.
        let spent = account.spend(&policy, 1, second).expect("the second lease has units");
        assert_eq!((account.units(), account.spendable(&policy, second)), (9, 4));
        account.unspend(&spent, 1);
        assert_eq!((account.units(), account.spendable(&policy, second)), (10, 5));
    }
}
