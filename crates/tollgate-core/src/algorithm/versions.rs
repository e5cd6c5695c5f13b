//! The record of a bucket that several versions of a policy ask for: a TAT for each.
//!
//! [`PolicyNumbers::version_burst`](crate::PolicyNumbers::version_burst) says what a version is,
//! and what its record guarantees. Each entry is that version's own bucket. Every unit is charged
//! to all.

use smallvec::SmallVec;

use super::gcra::{self, Tat};
use crate::exact::{Exact, Interval};
use crate::policy::Policy;
use crate::quota::MAX_SPAN_US;
use crate::store::verdict::Stamp;

/// The most versions of a record.
const MOST_ENTRIES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The TAT that was there before the record, for the first version that it is within the reach
    /// of. In whole microseconds, since versions may have other parts.
    open: Option<u64>,
    entries: SmallVec<[VersionEntry; MOST_ENTRIES]>,
}

/// The bucket of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VersionEntry {
    limit: u64,
    burst: u64,
    interval: Interval,
    tat: Exact,
}

/// Where the TAT is by which a version decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryPlace {
    /// In its entry.
    Own(usize),
    /// The open one. A grant makes it the entry at this place.
    Open(usize),
    /// Its entry is to be added at this place.
    New(usize),
    /// There is no place for it: it gets what the entry at this place has left.
    Shared(usize),
}

impl VersionEntry {
    fn new(policy: &Policy, tat: Exact) -> VersionEntry {
        let (limit, burst) = (policy.numbers().quota.limit, policy.numbers().version_burst);
        VersionEntry { limit, burst, interval: policy.numbers().interval, tat }
    }

    fn is_of(&self, policy: &Policy) -> bool {
        (self.limit, self.burst) == (policy.numbers().quota.limit, policy.numbers().version_burst)
    }

    fn horizon(&self) -> Exact {
        self.interval.times(self.burst)
    }

    fn used_up(&self, now: u64) -> Exact {
        self.interval.add(Exact::from_us(now), self.horizon())
    }

    /// Cuts a TAT that is further ahead than any debt: the clock has stepped back.
    fn cut(&mut self, now: u64) -> Option<()> {
        let used_up = self.used_up(now);
        let most = self.interval.add(used_up, self.horizon());
        let most = if most.ceil() - now <= MAX_SPAN_US { most } else { used_up };
        (self.tat > most).then(|| self.tat = used_up)
    }

    /// Charges units that another version granted. What a version owes grows by no other.
    fn charge(&mut self, now: u64, units: u64) {
        let (tat, used_up) = (self.tat.max(Exact::from_us(now)), self.used_up(now));
        if tat <= used_up {
            // Above the burst, the product may be too large.
            let span = self.interval.times(units.min(self.burst));
            self.tat = self.interval.add(tat, span).min(used_up);
        }
    }

    /// The units that are left.
    fn room(&self, now: u64) -> u64 {
        self.interval.whole_units_in(
            self.interval.saturating_sub(self.used_up(now), self.tat.max(Exact::from_us(now))),
        )
    }
}

impl Record {
    /// The record of a version that finds another's TAT, or makes debt.
    pub(super) fn new(policy: &Policy, open: Option<u64>, tat: Exact) -> Record {
        Record { open, entries: SmallVec::from_iter([VersionEntry::new(policy, tat)]) }
    }

    /// Cuts what a clock that stepped back left too far ahead. Returns whether there was any.
    fn cut(&mut self, policy: &Policy, now: u64) -> bool {
        let former = self.open;
        self.open = former.filter(|open| *open <= now.saturating_add(policy.numbers().furthest()));
        let cut = self.entries.iter_mut().filter_map(|entry| entry.cut(now)).count();
        cut > 0 || self.open != former
    }

    /// The TAT that the record becomes if all buckets are full, if the only one is out of debt, or
    /// if the policy has no versions.
    fn one(&self, policy: &Policy, now: u64) -> Option<Tat> {
        let latest = self.latest();
        match &self.entries[..] {
            [only] if self.open.is_none() && only.tat <= only.used_up(now) => Some(Tat::new(only.tat)),
            _ if latest <= now || !policy.numbers().has_versions() => Some(Tat::new(Exact::from_us(latest))),
            _ => None,
        }
    }

    /// The state at `now`: still a record, or one TAT.
    fn settled(&self, policy: &Policy, now: u64) -> Result<Record, Tat> {
        let mut record = self.clone();
        record.cut(policy, now);
        record.one(policy, now).map_or(Ok(record), Err)
    }

    /// The latest TAT, rounded up.
    pub(super) fn latest(&self) -> u64 {
        let latest = self.entries.iter().map(|entry| entry.tat.ceil()).max().unwrap_or(0);
        latest.max(self.open.unwrap_or(0))
    }

    fn place(&self, policy: &Policy, now: u64) -> EntryPlace {
        if let Some(own) = self.entries.iter().position(|entry| entry.is_of(policy)) {
            return EntryPlace::Own(own);
        }
        let full = || self.entries.iter().position(|entry| entry.tat.ceil() <= now);
        let free = if self.entries.len() < MOST_ENTRIES { Some(self.entries.len()) } else { full() };
        match free {
            Some(at) if self.open.is_some_and(|open| open <= now + policy.numbers().reach.us) => {
                EntryPlace::Open(at)
            }
            Some(at) => EntryPlace::New(at),
            None => EntryPlace::Shared(self.shared(policy)),
        }
    }

    /// The entry with the shortest horizon that is as long as the version's own, or the longest.
    fn shared(&self, policy: &Policy) -> usize {
        let horizons = || self.entries.iter().map(|entry| entry.horizon().us).enumerate();
        let long_enough = horizons().filter(|(_, horizon)| *horizon >= policy.numbers().reach.us);
        let shortest = long_enough.min_by_key(|(_, horizon)| *horizon);
        let longest = || horizons().rev().max_by_key(|(_, horizon)| *horizon);
        shortest.or_else(longest).map_or(0, |(at, _)| at)
    }

    fn tat(&self, place: EntryPlace, policy: &Policy, now: u64) -> Exact {
        let used_up = policy.numbers().interval.add(Exact::from_us(now), policy.numbers().reach);
        match place {
            EntryPlace::Own(at) => self.entries[at].tat,
            EntryPlace::Open(_) => Exact::from_us(self.open.unwrap_or(0)),
            EntryPlace::New(_) => used_up,
            EntryPlace::Shared(at) => {
                let room = self.entries[at].room(now).min(policy.numbers().version_burst);
                policy.numbers().interval.saturating_sub(used_up, policy.numbers().interval.times(room))
            }
        }
    }

    /// The TAT by which a policy decides.
    pub(super) fn seen(&self, policy: &Policy, now: u64) -> Exact {
        match self.settled(policy, now) {
            Err(tat) => tat.seen(policy, now),
            Ok(record) => record.tat(record.place(policy, now), policy, now),
        }
    }

    /// Charges units to all versions. `Err` if it becomes one TAT, to which nothing was charged
    /// yet.
    pub(super) fn charge(&mut self, policy: &Policy, now: u64, units: u64) -> Result<Exact, Tat> {
        let mut record = self.settled(policy, now)?;
        let place = record.place(policy, now);
        let tat = gcra::charged(policy, now, record.tat(place, policy, now), units);
        for entry in record.entries.iter_mut().filter(|entry| !entry.is_of(policy)) {
            entry.charge(now, units);
        }
        record.open = record.open.filter(|_| !matches!(place, EntryPlace::Open(_)));
        record.open = record.open.map(|open| open.max(now) + policy.numbers().interval.times(units).ceil());
        match place {
            EntryPlace::Own(at) | EntryPlace::Open(at) | EntryPlace::New(at) => {
                record.put(at, VersionEntry::new(policy, tat));
            }
            EntryPlace::Shared(_) => {}
        }
        *self = record;
        Ok(tat)
    }

    /// What a refusal writes: the entry of its version, if it has none yet, and what was cut. `Err`
    /// if the record is one TAT now.
    pub(super) fn refuse(&mut self, policy: &Policy, now: u64) -> Result<(), Tat> {
        let mut record = self.clone();
        if record.cut(policy, now) {
            *self = record.clone();
        }
        if let Some(tat) = record.one(policy, now) {
            return Err(tat);
        }
        if let place @ EntryPlace::New(at) = record.place(policy, now) {
            let used_up = record.tat(place, policy, now);
            record.put(at, VersionEntry::new(policy, used_up));
            *self = record;
        }
        Ok(())
    }

    fn put(&mut self, at: usize, entry: VersionEntry) {
        match self.entries.get_mut(at) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
    }

    /// Refunds to the version that granted the units, or to the open TAT. `Err` if the record has
    /// become one TAT, to which nothing was refunded yet.
    pub(super) fn refund(&mut self, policy: &Policy, now: u64, units: u64, stamp: Stamp) -> Result<(), Tat> {
        let owed = gcra::owed(policy, now, units, stamp);
        if owed == Exact::default() {
            return Ok(());
        }
        let mut record = self.settled(policy, now)?;
        let now = Exact::from_us(now);
        let own = record.entries.iter_mut().find(|entry| entry.is_of(policy));
        match (own, &mut record.open) {
            (Some(VersionEntry { interval, tat, .. }), _) if *tat > now => {
                *tat = interval.saturating_sub(*tat, owed).max(now);
            }
            (None, Some(open)) if *open > now.us => *open = open.saturating_sub(owed.us).max(now.us),
            _ => {}
        }
        *self = record;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Form, State};
    use crate::quota::Quota;
    use crate::store::check::Times;
    use crate::time::Timestamp;

    const NOW: u64 = 1_767_225_600_000_000;

    fn version(limit: u64, burst: u64) -> Policy {
        Policy::new("p", Quota::per_hour(limit).burst(burst))
    }

    fn ask(state: &mut State, policy: &Policy, now: u64, cost: u64) -> bool {
        let now = Timestamp::from_micros(now);
        let look = state.look(policy, now);
        if cost <= look.room {
            state.charge(policy, now, look, cost);
        } else {
            state.refuse(policy, now, look, cost, Times::ONCE);
        }
        cost <= look.room
    }

    fn record(state: &State) -> Record {
        match &state.0 {
            Form::Record(record) => (**record).clone(),
            other => panic!("no record: {other:?}"),
        }
    }

    #[test]
    fn ten_thousand_versions_have_four_entries_and_a_refusal_adds_one() {
        let mut state = State::new(&version(10, 100));
        assert!(ask(&mut state, &version(10, 100), NOW, 100));
        let mut before = SmallVec::new();
        for n in 0..10_000 {
            assert!(!ask(&mut state, &version(60 + n % 97, 1 + n % 89), NOW + n, 1), "{n}");
            let entries = record(&state).entries;
            let changed = entries.iter().filter(|entry| !before.contains(*entry)).count();
            assert!(entries.len() <= MOST_ENTRIES && changed <= 1, "{n}: {entries:?}");
            before = entries;
        }
    }

    #[test]
    fn a_look_writes_no_entry() {
        let mut state = State::new(&version(10, 100));
        ask(&mut state, &version(10, 100), NOW, 100);
        let before = state.clone();
        assert_eq!(state.look(&version(600, 50), Timestamp::from_micros(NOW)).room, 0);
        assert_eq!(state, before);
    }

    #[test]
    fn the_version_that_was_there_before_goes_on_with_its_bucket() {
        let (old, new) = (version(10, 50), version(600, 50));
        let mut state = State::new(&old);
        ask(&mut state, &old, NOW, 45);
        assert!(!ask(&mut state, &new, NOW, 1), "five hours are more than its five minutes");
        assert_eq!(state.look(&old, Timestamp::from_micros(NOW)).room, 5);
        assert!(ask(&mut state, &old, NOW, 5));
        assert_eq!((record(&state).open, record(&state).entries.len()), (None, 2));
    }

    #[test]
    fn full_buckets_become_one_tat_again() {
        let (old, new) = (version(10, 50), version(600, 50));
        let mut state = State::new(&old);
        ask(&mut state, &old, NOW, 50);
        ask(&mut state, &new, NOW, 1);
        let later = NOW + 6 * 3_600_000_000;
        assert!(ask(&mut state, &new, later, 1) && !state.is_record());
    }

    #[test]
    fn debt_stands_in_the_entry_of_its_version() {
        let policy = version(600, 10);
        let twice = policy.numbers().with_debt().unwrap();
        let mut state = State::new(&policy);
        assert!(ask(&mut state, &twice, NOW, 15));
        let wait = |state: &State| state.wait(&policy, Timestamp::from_micros(NOW), 1);
        assert_eq!(wait(&state), crate::Wait::For(std::time::Duration::from_secs(36)));
        assert!(!ask(&mut state, &version(600, 2), NOW, 1));
        assert_eq!(wait(&state), crate::Wait::For(std::time::Duration::from_secs(36)));
    }

    /// Twice its horizon is the longest span.
    #[test]
    fn the_debt_of_a_version_may_be_as_long_as_the_longest_span() {
        let quota = Quota::new(1, std::time::Duration::from_micros(1 << 41)).burst(1 << 10);
        let most = Exact::from_us(NOW + MAX_SPAN_US);
        let mut entry = VersionEntry::new(&Policy::new("p", quota), most);
        assert_eq!((entry.cut(NOW), entry.tat), (None, most));
        entry.tat = Exact::from_us(NOW + MAX_SPAN_US + 1);
        assert_eq!((entry.cut(NOW), entry.tat), (Some(()), Exact::from_us(NOW + MAX_SPAN_US / 2)));
    }
}
