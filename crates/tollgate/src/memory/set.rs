//! Decides a set of checks, or a check of a new key: all or nothing, in two phases.

use std::hash::{BuildHasher, RandomState};
use std::sync::MutexGuard;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Look, State};
use tollgate_core::{Check, Clock, Policy, Status, Times, Timestamp, Verdict, Wait};

use super::shards::{Shards, expiry};
use crate::table::Table;
use crate::table::digest::Digest;

/// Decides a whole set while all of its shards are locked.
pub(super) fn decide(store: &Shards, set: &[Check<'_>], times: Times) -> Verdict {
    let mut tables = Tables::lock(store, set);
    let mut now = tables.now(store.tables.clock());
    let shards = tables.locked.len();
    tables.prepare(store, set, times, now);
    if tables.locked.len() > shards {
        // The overflow table was locked too, and may have seen a later time.
        now = tables.now(store.tables.clock());
    }
    let (mut places, of_check) = tables.places(set);

    // First phase: look at all keys.
    let mut granted = times.max();
    for place in &mut places {
        let policy = place.policy;
        place.at = store.time_for(policy, now);
        let at = place.at;
        place.look = tables.state(place).look(policy, at);
        if place.target.shard == OVERFLOW {
            place.look.room = shared_room(policy, place.look.room);
        }
        granted = granted.min(place.look.times(policy, place.cost));
    }
    let mut delay = Duration::ZERO;
    let statuses: SmallVec<[Status; 4]> = if granted == 0 || granted < times.min() {
        granted = 0;
        places.iter_mut().map(|place| tables.refuse(place, times, now)).collect()
    } else {
        // Second phase: charge all keys.
        places
            .iter_mut()
            .map(|place| {
                let (status, wait) = tables.charge(place, granted, now);
                delay = delay.max(wait);
                status
            })
            .collect()
    };
    Verdict::new(granted, delay, of_check.iter().map(|place| statuses[*place])).at(now)
}

/// The room that an overflow entry has for a policy. The entry holds usage within the quota only: a
/// block and debt are one key's own.
fn shared_room(policy: &Policy, room: u64) -> u64 {
    if policy.numbers().is_block() { 0 } else { room.saturating_sub(policy.numbers().most_debt()) }
}

/// Whether a charge has made a block or debt, from which its caller could escape by inventing keys.
fn is_owed(policy: &Policy, charged: &Status) -> bool {
    policy.numbers().most_debt() > 0
        && (policy.numbers().is_block() || charged.remaining() < policy.numbers().most_debt())
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

/// The table and the digest of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TableShard {
    shard: usize,
    digest: Digest,
}

/// The number of the overflow table, above those of all shards.
const OVERFLOW: usize = usize::MAX;

/// The locked tables of one set.
struct Tables<'a> {
    /// The tables by the numbers of their shards.
    locked: SmallVec<[(usize, MutexGuard<'a, Table<State>>); 4]>,
    /// One for each check.
    targets: SmallVec<[TableShard; 4]>,
}

/// A distinct (policy, key) of a set.
struct Place<'a> {
    policy: &'a Policy,
    target: TableShard,
    /// The sum of the costs of its checks.
    cost: u64,
    held: StateHeld,
    /// The time by which the policy decides.
    at: Timestamp,
    look: Look,
}

/// Where a state is during a decision.
enum StateHeld {
    Entry(usize),
    /// The state of a new key, which gets an entry only if it is charged: a denial stores nothing.
    Fresh(State),
}

impl<'a> Tables<'a> {
    /// Locks the shards of all checks in ascending order, so that two sets cannot deadlock.
    fn lock(store: &'a Shards, set: &[Check<'_>]) -> Tables<'a> {
        let target = |check: &Check<'_>| {
            let digest = store.tables.digest(check.policy, check.key);
            TableShard { shard: store.tables.shard_of(&digest), digest }
        };
        let targets: SmallVec<[TableShard; 4]> = set.iter().map(target).collect();
        let mut shards: SmallVec<[usize; 4]> = targets.iter().map(|target| target.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.iter().map(|shard| (*shard, store.tables.lock(*shard))).collect();
        Tables { locked, targets }
    }

    /// The time, which is not before any that these tables have seen.
    fn now(&mut self, clock: &Clock) -> Timestamp {
        let now = clock.now();
        if !clock.only_moves_forward() {
            return now;
        }
        let latest = self.locked.iter_mut().map(|(_, table)| table.not_before(now)).fold(now, Timestamp::max);
        for (_, table) in &mut self.locked {
            table.not_before(latest);
        }
        latest
    }

    /// Sweeps a little and makes room for new keys. A key without room gets the overflow entry of
    /// its policy, unless it asks for a slot.
    fn prepare(&mut self, store: &'a Shards, set: &[Check<'_>], times: Times, now: Timestamp) {
        for (_, table) in &mut self.locked {
            table.sweep(now);
        }
        if self.locked.iter().any(|(_, table)| !table.has_room_for(set.len())) {
            self.make_room(store, set, times, now);
        }
        if times.max() == 0 {
            return;
        }
        for (shard, table) in &mut self.locked {
            let here = self.targets.iter().filter(|target| target.shard == *shard);
            let missing = here.filter(|target| table.find(&target.digest).is_none()).count();
            table.reserve(missing);
        }
    }

    fn make_room(&mut self, store: &'a Shards, set: &[Check<'_>], times: Times, now: Timestamp) {
        let targets = self.targets.clone();
        let mut missing: SmallVec<[usize; 4]> = SmallVec::new();
        let (mut overflows, mut blocks) = (0, 0);
        for (i, check) in set.iter().enumerate() {
            let target = targets[i];
            // A pair of policy and key that occurs twice has one place.
            if let Some(same) = targets[..i].iter().position(|other| *other == target) {
                self.targets[i] = self.targets[same];
                continue;
            }
            // A key without a block has no entry for it.
            let table = self.table(target.shard);
            if check.policy.numbers().charges_nothing() || table.find(&target.digest).is_some() {
                continue;
            }
            let needed = 1 + missing.iter().filter(|shard| **shard == target.shard).count();
            let keep = |digest: &Digest| targets.iter().any(|target| target.digest == *digest);
            let finds_room = match times.max() {
                // A look adds no key and must not evict one.
                0 => table.could_make_room(needed, now, keep),
                _ => table.make_room(needed, now, keep),
            };
            // A request that runs takes more memory than its slot, which must not be shared.
            if finds_room || check.policy.is_in_flight() {
                missing.push(target.shard);
            } else {
                let digest = store.tables.digest_of_all(check.policy);
                self.targets[i] = TableShard { shard: OVERFLOW, digest };
                *if check.policy.numbers().is_block() { &mut blocks } else { &mut overflows } += 1;
            }
        }
        if overflows + blocks > 0 {
            self.locked.push((OVERFLOW, store.lock_overflow()));
            if times.max() > 0 {
                store.count_overflows(overflows);
                store.count_dropped_blocks(blocks);
            }
        }
    }

    /// The distinct places of a set, and the index of the place of each check.
    fn places<'p>(&mut self, set: &[Check<'p>]) -> (SmallVec<[Place<'p>; 4]>, SmallVec<[usize; 4]>) {
        let mut places: SmallVec<[Place<'p>; 4]> = SmallVec::new();
        let mut of_check = SmallVec::new();
        for (i, check) in set.iter().enumerate() {
            let target = self.targets[i];
            let cost = check.cost;
            if let Some(same) = places.iter().position(|place| place.target == target) {
                places[same].cost = places[same].cost.saturating_add(cost);
                of_check.push(same);
                continue;
            }
            let held = match self.table(target.shard).find(&target.digest) {
                Some(at) => StateHeld::Entry(at),
                None => StateHeld::Fresh(fresh(check.policy)),
            };
            of_check.push(places.len());
            let look = Look { remaining: 0, room: 0 };
            places.push(Place { policy: check.policy, target, cost, held, at: Timestamp::EPOCH, look });
        }
        (places, of_check)
    }

    fn refuse(&mut self, place: &mut Place<'_>, times: Times, now: Timestamp) -> Status {
        let (policy, at, look, cost) = (place.policy, place.at, place.look, place.cost);
        let status = self.state(place).refuse(policy, at, look, cost, times);
        if let StateHeld::Entry(found) = place.held {
            let entry = self.table(place.target.shard).entry(found);
            if times.max() > 0 && matches!(status.wait(), Wait::For(_)) {
                entry.pin();
            }
            if entry.value.is_record() {
                // The entry of a version may end later than others.
                entry.renew(expiry(now, at, entry.value.expires(policy, at)), false);
            }
        }
        status
    }

    fn charge(&mut self, place: &mut Place<'_>, granted: u32, now: Timestamp) -> (Status, Duration) {
        // Does not overflow, since it is within the room.
        let units = place.cost * u64::from(granted);
        let (policy, at, look) = (place.policy, place.at, place.look);
        let charge = self.state(place).charge(policy, at, look, units);
        let expires = expiry(now, at, charge.expires);
        let table = self.table(place.target.shard);
        match &mut place.held {
            StateHeld::Entry(found) => {
                let entry = table.entry(*found);
                let was_full = look.remaining == policy.capacity() && !entry.value.is_record();
                entry.renew(expires, was_full);
            }
            StateHeld::Fresh(_) if units == 0 || policy.numbers().charges_nothing() => {}
            StateHeld::Fresh(state) => {
                let state = std::mem::replace(state, State::new(policy));
                table.insert(place.target.digest, state, expires);
            }
        }
        if is_owed(policy, &charge.status)
            && let Some(found) = table.find(&place.target.digest)
        {
            table.entry(found).pin();
        }
        (charge.status, charge.delay)
    }

    fn state<'s>(&'s mut self, place: &'s mut Place<'_>) -> &'s mut State {
        match &mut place.held {
            StateHeld::Entry(at) => {
                let at = *at;
                &mut self.table(place.target.shard).entry(at).value
            }
            StateHeld::Fresh(state) => state,
        }
    }

    fn table(&mut self, shard: usize) -> &mut Table<State> {
        let at = self.locked.iter().position(|(number, _)| *number == shard);
        &mut self.locked[at.expect("the shard of every target is locked")].1
    }
}
