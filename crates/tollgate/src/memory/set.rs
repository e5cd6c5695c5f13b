//! Decides a set of checks, or a check of a new key: all or nothing, in two phases.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::MutexGuard;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Look, State};
use tollgate_core::{Check, Clock, Key, Policy, Status, Times, Timestamp, Verdict};

use super::entry::grants;
use super::shards::Shards;
use crate::table::digest::{Digest, KeyHash};
use crate::table::{Table, TableEntry};

/// Decides a whole set while all of its shards are locked.
pub(super) fn decide(store: &Shards, set: &[Check<'_>], times: Times) -> Verdict {
    let mut places: SmallVec<[Place<'_>; 4]> = SmallVec::new();
    let mut last: Option<(&Key, KeyHash)> = None;
    for check in set {
        let hash = match last {
            Some((key, hash)) if key == check.key => hash,
            _ => store.tables.hash(check.key),
        };
        last = Some((check.key, hash));
        places.push(Place::new(store, check.policy, hash));
    }
    let places = &mut places[..];
    let mut tables = Tables(SmallVec::new());
    tables.lock(store, places);
    let mut now = tables.now(store.tables.clock());
    for table in &mut tables.0 {
        table.sweep(now);
    }
    if tables.find(places, set) {
        now = tables.make_room(store, places, times, now);
        tables.find(places, set);
    }

    // First phase: look at all keys.
    let mut granted = times.max();
    for place in &mut *places {
        let policy = place.policy;
        match place.held {
            HeldEntry::As(_) => continue,
            HeldEntry::Missing => place.held = HeldEntry::Fresh(TableEntry::new(place.digest, fresh(policy))),
            _ => {}
        }
        place.at = store.time_for(policy, now);
        place.look = tables.entry(place.table, &mut place.held).value.look(policy, place.at);
        if place.shard == OVERFLOW {
            place.look.room = shared_room(policy, place.look.room);
        }
        granted = grants(policy, place.look, place.cost, granted);
    }
    if granted < times.min() {
        granted = 0;
    }

    // Second phase: charge all keys, or none.
    let mut delay = Duration::ZERO;
    let mut statuses: SmallVec<[Status; 4]> = SmallVec::new();
    for place in places {
        let (policy, at, look) = (place.policy, place.at, place.look);
        if let HeldEntry::As(first) = place.held {
            statuses.push(statuses[first]);
        } else if granted == 0 {
            let entry = tables.entry(place.table, &mut place.held);
            statuses.push(entry.refuse(policy, now, at, look, place.cost, times));
        } else {
            // Does not overflow, since it is within the room.
            let units = place.cost * u64::from(granted);
            let charge = tables.entry(place.table, &mut place.held).charge(policy, now, at, look, units);
            statuses.push(charge.status);
            delay = delay.max(charge.delay);
            if units > 0 && !policy.numbers().charges_nothing() {
                tables.add_new(place);
            }
        }
    }
    drop(tables);
    Verdict::new(granted, delay, statuses.iter().copied()).at(now)
}

/// The room that an overflow entry has for a policy. The entry holds usage within the quota only: a
/// block and debt are one key's own.
fn shared_room(policy: &Policy, room: u64) -> u64 {
    if policy.numbers().is_block() { 0 } else { room.saturating_sub(policy.numbers().most_debt()) }
}

/// The state of a key that has no entry.
fn fresh(policy: &Policy) -> State {
    if !policy.is_in_flight() {
        return State::new(policy);
    }
    // The random hash keys of the standard library need no dependency.
    let [a, b, c, d, ..] = RandomState::new().hash_one(0_u64).to_le_bytes();
    State::numbered_from(policy, u32::from_le_bytes([a, b, c, d]))
}

/// The number of the overflow table, above those of all shards.
const OVERFLOW: usize = usize::MAX;

/// The (policy, key) of a check.
struct Place<'a> {
    policy: &'a Policy,
    digest: Digest,
    shard: usize,
    /// Which of the locked tables is that of the shard.
    table: usize,
    held: HeldEntry,
    /// The sum of the costs of the checks with this policy and key.
    cost: u64,
    /// The time by which the policy decides.
    at: Timestamp,
    look: Look,
}

/// Where the entry of a check is during a decision.
enum HeldEntry {
    Missing,
    /// In the table, at this place.
    Found(usize),
    /// The entry of a new key, which is added only if it is charged: a denial stores nothing.
    Fresh(TableEntry<State>),
    /// The entry of this earlier check, which has the same policy and key.
    As(usize),
}

impl<'a> Place<'a> {
    #[inline]
    fn new(store: &Shards, policy: &'a Policy, hash: KeyHash) -> Place<'a> {
        let digest = hash.under(policy.numbers().scope_hash());
        Place {
            policy,
            digest,
            shard: store.tables.shard_of(&digest),
            table: 0,
            held: HeldEntry::Missing,
            cost: 0,
            at: Timestamp::EPOCH,
            look: Look { remaining: 0, room: 0 },
        }
    }

    /// Whether a charge adds an entry. A key without a block has none for it.
    fn needs_entry(&self) -> bool {
        matches!(self.held, HeldEntry::Missing) && !self.policy.numbers().charges_nothing()
    }
}

/// The locked tables of one set, by the numbers of their shards.
struct Tables<'a>(SmallVec<[MutexGuard<'a, Table<State>>; 4]>);

impl<'a> Tables<'a> {
    /// Locks the shards of all checks in ascending order, so that two sets cannot deadlock.
    fn lock(&mut self, store: &'a Shards, places: &mut [Place<'_>]) {
        let mut next = places.iter().map(|place| place.shard).min();
        while let Some(shard) = next {
            next = None;
            for place in &mut *places {
                if place.shard == shard {
                    place.table = self.0.len();
                } else if place.shard > shard {
                    next = Some(next.map_or(place.shard, |next| place.shard.min(next)));
                }
            }
            self.0.push(store.tables.lock(shard));
        }
    }

    /// The time, which is not before any that these tables have seen.
    fn now(&mut self, clock: &Clock) -> Timestamp {
        let now = clock.now();
        if !clock.only_moves_forward() {
            return now;
        }
        let latest = self.0.iter_mut().map(|table| table.not_before(now)).fold(now, Timestamp::max);
        for table in &mut self.0 {
            table.not_before(latest);
        }
        latest
    }

    /// Finds the entries of all checks. Returns whether one is missing that a charge adds.
    fn find(&mut self, places: &mut [Place<'_>], set: &[Check<'_>]) -> bool {
        let mut is_missing = false;
        for (i, check) in set.iter().enumerate() {
            let (before, place) = places.split_at_mut(i);
            let place = &mut place[0];
            let is_same = |other: &Place<'_>| (other.table, other.digest) == (place.table, place.digest);
            if let Some(first) = before.iter().position(is_same) {
                before[first].cost = before[first].cost.saturating_add(check.cost);
                place.held = HeldEntry::As(first);
                continue;
            }
            place.cost = check.cost;
            place.held = self.0[place.table].find(&place.digest).map_or(HeldEntry::Missing, HeldEntry::Found);
            is_missing |= place.needs_entry();
        }
        is_missing
    }

    /// Makes room for new keys. A key without room gets the overflow entry of its policy, unless it
    /// asks for a slot. Keys move. Returns the time: the overflow table may have seen a later one.
    #[cold]
    fn make_room(
        &mut self,
        store: &'a Shards,
        places: &mut [Place<'_>],
        times: Times,
        now: Timestamp,
    ) -> Timestamp {
        let overflow = self.0.len();
        let (mut overflows, mut blocks) = (0, 0);
        for i in 0..places.len() {
            let (policy, table) = (places[i].policy, places[i].table);
            if let HeldEntry::As(first) = places[i].held {
                let Place { digest, shard, table, .. } = places[first];
                (places[i].digest, places[i].shard, places[i].table) = (digest, shard, table);
                continue;
            }
            if !places[i].needs_entry() {
                continue;
            }
            let is_new = |place: &&Place<'_>| place.table == table && place.needs_entry();
            let needed = places[..=i].iter().filter(is_new).count();
            let keep = |digest: &Digest| places.iter().any(|place| place.digest == *digest);
            let finds_room = match times.max() {
                // A look adds no key and must not evict one.
                0 => self.0[table].could_make_room(needed, now, keep),
                _ => self.0[table].make_room(needed, now, keep),
            };
            // A request that runs takes more memory than its slot, which must not be shared.
            if finds_room || policy.is_in_flight() {
                if times.max() > 0 {
                    self.0[table].reserve(needed);
                }
                continue;
            }
            *if policy.numbers().is_block() { &mut blocks } else { &mut overflows } += 1;
            let digest = store.tables.digest_of_all(policy);
            (places[i].digest, places[i].shard, places[i].table) = (digest, OVERFLOW, overflow);
        }
        if overflows + blocks == 0 {
            return now;
        }
        self.0.push(store.lock_overflow());
        if times.max() > 0 {
            self.0[overflow].reserve(places.iter().filter(|place| place.shard == OVERFLOW).count());
            store.count_overflows(overflows);
            store.count_dropped_blocks(blocks);
        }
        self.now(store.tables.clock())
    }

    #[inline]
    fn entry<'s>(&'s mut self, table: usize, held: &'s mut HeldEntry) -> &'s mut TableEntry<State> {
        if let HeldEntry::Found(at) = *held {
            return self.0[table].entry(at);
        }
        let HeldEntry::Fresh(entry) = held else { unreachable!("a key without an entry has a new one") };
        entry
    }

    /// Adds the entry of a key that is new.
    fn add_new(&mut self, place: &mut Place<'_>) {
        if let HeldEntry::Fresh(_) = place.held
            && let HeldEntry::Fresh(entry) = mem::replace(&mut place.held, HeldEntry::Missing)
        {
            self.0[place.table].add(entry);
        }
    }
}
