//! The decision over a set of several keys, or over one that is new: all or nothing, in two phases.

use std::sync::MutexGuard;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Look, State};
use tollgate_core::{Check, Clock, Policy, Status, Times, Timestamp, Verdict, Wait};

use super::digest::Digest;
use super::table::Table;
use super::{MemoryStore, lock};

/// Grants or refuses a whole set, with every shard that it touches locked.
pub(super) fn decide(store: &MemoryStore, set: &[Check<'_>], times: Times) -> Verdict {
    let mut tables = Tables::lock(store, set);
    let mut now = tables.now(&store.0.clock);
    let shards = tables.locked.len();
    tables.tend(store, set, times, now);
    if tables.locked.len() > shards {
        // The overflow table was locked since, which may have seen a later time.
        now = tables.now(&store.0.clock);
    }
    let (mut places, of_check) = tables.places(set);

    // First phase: look at all.
    let mut granted = times.max();
    for place in &mut places {
        let policy = place.policy;
        place.look = tables.state(place).look(policy, now);
        if let Some(room) = u64::from(place.look.room).checked_div(place.cost) {
            granted = granted.min(u32::try_from(room).unwrap_or(u32::MAX));
        }
    }
    let mut delay = Duration::ZERO;
    let statuses: SmallVec<[Status; 4]> = if granted == 0 || granted < times.min() {
        granted = 0;
        places.iter_mut().map(|place| tables.turn_away(place, times, now)).collect()
    } else {
        // Second phase: charge all.
        places
            .iter_mut()
            .map(|place| {
                let (status, held_back) = tables.charge(place, granted, now);
                delay = delay.max(held_back);
                status
            })
            .collect()
    };
    Verdict::new(granted, delay, of_check.iter().map(|place| statuses[*place]))
}

/// Where the state of a check belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Target {
    shard: usize,
    digest: Digest,
}

/// The number of the overflow table: after every shard.
const OVERFLOW: usize = usize::MAX;

/// The locked tables of one set.
struct Tables<'a> {
    /// By the number of the shard.
    locked: SmallVec<[(usize, MutexGuard<'a, Table>); 4]>,
    /// For each check.
    targets: SmallVec<[Target; 4]>,
}

/// A distinct (policy, key) of a set.
struct Place<'a> {
    policy: &'a Policy,
    target: Target,
    /// The sum over the checks that name it.
    cost: u64,
    held: Held,
    look: Look,
}

/// Where a state is during a decision.
enum Held {
    Slot(usize),
    /// A new key's, which becomes a slot only when it is charged: a denied request leaves nothing behind.
    Fresh(State),
}

impl<'a> Tables<'a> {
    /// Locks the shards of all checks, in the order of the shards, so that two sets can never wait for each other.
    fn lock(store: &'a MemoryStore, set: &[Check<'_>]) -> Tables<'a> {
        let target = |check: &Check<'_>| {
            let digest = store.digest(check.policy, check.key);
            Target { shard: store.shard_of(&digest), digest }
        };
        let targets: SmallVec<[Target; 4]> = set.iter().map(target).collect();
        let mut shards: SmallVec<[usize; 4]> = targets.iter().map(|target| target.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.iter().map(|shard| (*shard, lock(&store.0.shards[*shard].0))).collect();
        Tables { locked, targets }
    }

    /// The time, which is not before what any of them has seen.
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

    /// Sweeps a little, and sees that each new key will find room; those that cannot are sent to the overflow entry of
    /// their policy.
    fn tend(&mut self, store: &'a MemoryStore, set: &[Check<'_>], times: Times, now: Timestamp) {
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

    fn make_room(&mut self, store: &'a MemoryStore, set: &[Check<'_>], times: Times, now: Timestamp) {
        let targets = self.targets.clone();
        let mut missing: SmallVec<[usize; 4]> = SmallVec::new();
        let mut overflows = 0;
        for (i, check) in set.iter().enumerate() {
            let target = targets[i];
            // A pair that is named twice has one place.
            if let Some(same) = targets[..i].iter().position(|other| *other == target) {
                self.targets[i] = self.targets[same];
                continue;
            }
            let table = self.table(target.shard);
            if table.find(&target.digest).is_some() {
                continue;
            }
            let needed = 1 + missing.iter().filter(|shard| **shard == target.shard).count();
            let keep = |digest: &Digest| targets.iter().any(|target| target.digest == *digest);
            let finds_room = match times.max() {
                // A look adds no key, and must not cost another its place.
                0 => table.could_make_room(needed, now, keep),
                _ => table.make_room(needed, now, keep),
            };
            if finds_room {
                missing.push(target.shard);
            } else {
                let digest = store.0.secret.digest(check.policy.scope_hash(), b"");
                self.targets[i] = Target { shard: OVERFLOW, digest };
                overflows += 1;
            }
        }
        if overflows > 0 {
            self.locked.push((OVERFLOW, lock(&store.0.overflow)));
            if times.max() > 0 {
                store.count_overflows(overflows);
            }
        }
    }

    /// The distinct places of a set, and for each check which of them it means.
    fn places<'p>(&mut self, set: &[Check<'p>]) -> (SmallVec<[Place<'p>; 4]>, SmallVec<[usize; 4]>) {
        let mut places: SmallVec<[Place<'p>; 4]> = SmallVec::new();
        let mut of_check = SmallVec::new();
        for (i, check) in set.iter().enumerate() {
            let target = self.targets[i];
            let cost = u64::from(check.cost);
            if let Some(same) = places.iter().position(|place| place.target == target) {
                places[same].cost += cost;
                of_check.push(same);
                continue;
            }
            let held = match self.table(target.shard).find(&target.digest) {
                Some(at) => Held::Slot(at),
                None => Held::Fresh(State::new(check.policy)),
            };
            of_check.push(places.len());
            let look = Look { remaining: 0, room: 0 };
            places.push(Place { policy: check.policy, target, cost, held, look });
        }
        (places, of_check)
    }

    fn turn_away(&mut self, place: &mut Place<'_>, times: Times, now: Timestamp) -> Status {
        let wanted = place.cost.saturating_mul(u64::from(times.min().max(1)));
        let (policy, look) = (place.policy, place.look);
        let status = self.state(place).refuse(policy, now, look, wanted);
        if let (Held::Slot(at), true) =
            (&place.held, times.max() > 0 && matches!(status.wait(), Wait::For(_)))
        {
            self.table(place.target.shard).slot(*at).was_denied();
        }
        status
    }

    fn charge(&mut self, place: &mut Place<'_>, granted: u32, now: Timestamp) -> (Status, Duration) {
        // Within the room, which is a u32; a cost of 0 stays 0 however often it is granted.
        let units = u32::try_from(place.cost * u64::from(granted)).unwrap_or(u32::MAX);
        let (policy, look) = (place.policy, place.look);
        let charge = self.state(place).charge(policy, now, look, units);
        let table = self.table(place.target.shard);
        match &mut place.held {
            Held::Slot(at) => table.slot(*at).charged(charge.expires, look.remaining == policy.capacity()),
            Held::Fresh(_) if units == 0 => {}
            Held::Fresh(state) => {
                let state = std::mem::replace(state, State::new(policy));
                table.insert(place.target.digest, state, charge.expires);
            }
        }
        (charge.status, charge.delay)
    }

    fn state<'s>(&'s mut self, place: &'s mut Place<'_>) -> &'s mut State {
        match &mut place.held {
            Held::Slot(at) => {
                let at = *at;
                &mut self.table(place.target.shard).slot(at).state
            }
            Held::Fresh(state) => state,
        }
    }

    fn table(&mut self, shard: usize) -> &mut Table {
        let at = self.locked.iter().position(|(number, _)| *number == shard);
        &mut self.locked[at.expect("the shard of every target is locked")].1
    }
}
