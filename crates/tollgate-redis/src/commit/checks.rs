//! Checks that wait for the next call, and the call that carries them.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::mem;
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use smallvec::SmallVec;
use tollgate_core::algorithm::State;
use tollgate_core::{Key, Policy, Times, Timestamp, Verdict};

use crate::Error;
use crate::caller::{Caller, Overdue, Told, sooner};
use crate::error::Cause;
use crate::wire::names::Names;
use crate::wire::numbers::{self, Numbers};
use crate::wire::script::Parts;
use crate::wire::terms::Terms;

/// The keys of a set, in the order of its checks.
pub(crate) type SetKeys = SmallVec<[Key; 1]>;

/// A set of checks, each pair of policy and key once; and how much of it.
pub(crate) struct Ask<'a> {
    pub(crate) checks: SmallVec<[(&'a Policy, &'a Key, u64); 4]>,
    pub(crate) times: Times,
}

impl Ask<'_> {
    /// A hash of its keys, by which a batch finds who asks the same.
    pub(crate) fn hash(&self, hasher: &RandomState) -> u64 {
        let mut hasher = hasher.build_hasher();
        self.checks.iter().for_each(|(_, key, _)| hasher.write(key.as_encoded()));
        hasher.finish()
    }

    fn keys(&self) -> SetKeys {
        match &*self.checks {
            [(_, key, _)] => SmallVec::from_buf([(*key).clone()]),
            checks => checks.iter().map(|(_, key, _)| (*key).clone()).collect(),
        }
    }

    fn is_of(&self, keys: &SetKeys) -> bool {
        self.checks.iter().map(|(_, key, _)| *key).eq(keys)
    }
}

/// What one call is to carry.
#[derive(Default)]
pub(crate) struct Batch {
    groups: Vec<Group>,
    /// By the hash of its keys and its group's number, where a set is: its group and its place there.
    places: HashMap<u64, (usize, usize), BuildHasherDefault<AsItIs>>,
    sets: usize,
    /// How many are expected.
    room: usize,
    parts: Parts,
    /// When the time of the first caller ends.
    first_end: Option<Timestamp>,
}

/// Sets that are alike but for their keys: their words are sent once.
struct Group {
    terms: SmallVec<[Terms; 1]>,
    times: Times,
    sets: Vec<Set>,
}

/// Callers that ask the same, in the order of their arrival: they are merged into one partial grant.
struct Set {
    keys: SetKeys,
    callers: SmallVec<[Caller; 1]>,
}

/// Hashes what is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed by this");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Batch {
    pub(crate) fn with_room_for(sets: usize) -> Batch {
        let places = HashMap::with_capacity_and_hasher(sets, BuildHasherDefault::default());
        Batch { places, room: sets, ..Batch::default() }
    }

    /// How many sets it carries; callers that ask the same count once.
    pub(crate) fn len(&self) -> usize {
        self.sets
    }

    /// How many ask.
    pub(crate) fn callers(&self) -> usize {
        self.groups.iter().flat_map(|group| &group.sets).map(|set| set.callers.len()).sum()
    }

    pub(crate) fn parts(&self) -> Parts {
        self.parts
    }

    /// Takes up what somebody asks, of keys with that hash.
    pub(crate) fn push(&mut self, ask: &Ask<'_>, hash: u64, log: crate::SlidingLogLayout, caller: Caller) {
        self.first_end = sooner(self.first_end, caller.until());
        let mut group = self.group_of(ask, log);
        match self.places.entry(hash.wrapping_add(group as u64)) {
            Entry::Vacant(place) => {
                place.insert((group, self.groups[group].sets.len()));
            }
            Entry::Occupied(place) => {
                let (of, at) = *place.get();
                let set = &mut self.groups[of].sets[at];
                // A plain check, once more, is the same set acquired once more.
                if of == group && ask.times == Times::ONCE && ask.is_of(&set.keys) {
                    set.callers.push(caller);
                    return;
                }
                // The keys of a group are read before any is charged: none is in it twice.
                group = self.open_group(ask, log);
            }
        }
        let keys = ask.keys();
        self.groups[group].sets.push(Set { keys, callers: SmallVec::from_buf([caller]) });
        self.sets += 1;
    }

    fn group_of(&mut self, ask: &Ask<'_>, log: crate::SlidingLogLayout) -> usize {
        let same = |group: &Group| {
            group.times == ask.times
                && group.terms.len() == ask.checks.len()
                && group
                    .terms
                    .iter()
                    .zip(&ask.checks)
                    .all(|(terms, (policy, _, cost))| terms.are_those_of(policy, *cost))
        };
        // Few: there are as many as there are different rules and costs among the callers of a call.
        self.groups.iter().position(same).unwrap_or_else(|| self.open_group(ask, log))
    }

    fn open_group(&mut self, ask: &Ask<'_>, log: crate::SlidingLogLayout) -> usize {
        let terms: SmallVec<[Terms; 1]> =
            ask.checks.iter().map(|(policy, _, cost)| Terms::new(policy, *cost, log)).collect();
        for terms in &terms {
            self.parts.add(terms.part);
        }
        // Most calls have a single group.
        let room = if self.groups.is_empty() { self.room } else { 0 };
        self.groups.push(Group { terms, times: ask.times, sets: Vec::with_capacity(room) });
        self.groups.len() - 1
    }

    /// Takes out callers whose time is over.
    ///
    /// Returns whether there were any.
    pub(crate) fn take_overdue(&mut self, overdue: &mut Overdue) -> bool {
        let sets = self.groups.iter_mut().flat_map(|group| &mut group.sets);
        overdue.among(&mut self.first_end, sets.flat_map(|set| &mut set.callers))
    }

    /// Lets go of callers who were told that their time is over, and leaves their sets where they are.
    ///
    /// Returns how many there were.
    pub(crate) fn drop_the_told(&mut self) -> usize {
        let mut told = 0;
        for set in self.groups.iter_mut().flat_map(|group| &mut group.sets) {
            let before = set.callers.len();
            set.callers.retain(|caller| !caller.was_told());
            told += before - set.callers.len();
        }
        told
    }

    /// Before it is sent: tells callers whose time is over by now, and lets go of all who wait no longer. They are charged
    /// nothing.
    pub(crate) fn drop_the_gone(&mut self, now: Timestamp) {
        let mut overdue = Overdue::new(now);
        self.take_overdue(&mut overdue);
        overdue.tell();
        for group in &mut self.groups {
            for set in &mut group.sets {
                set.callers.retain(|caller| caller.waits());
            }
            group.sets.retain(|set| !set.callers.is_empty());
            // So that runs of the same length stand together.
            group.sets.sort_by_key(|set| set.callers.len());
        }
        self.groups.retain(|group| !group.sets.is_empty());
        self.sets = self.groups.iter().map(|group| group.sets.len()).sum();
    }

    /// Each set by itself.
    pub(crate) fn split(self) -> impl Iterator<Item = Batch> {
        let parts = self.parts;
        self.groups.into_iter().flat_map(move |Group { terms, times, sets }| {
            sets.into_iter().map(move |set| {
                let first_end = set.callers.iter().filter_map(Caller::until).min();
                let group = Group { terms: terms.clone(), times, sets: vec![set] };
                Batch { groups: vec![group], sets: 1, parts, first_end, ..Batch::default() }
            })
        })
    }

    /// How many keys it carries.
    pub(crate) fn keys(&self) -> usize {
        self.groups.iter().map(|group| group.sets.len() * group.terms.len()).sum()
    }

    /// The keys and arguments of acquire.lua.
    pub(crate) fn write(&self, cmd: &mut Cmd, names: &Names, now: Option<Timestamp>) {
        for group in &self.groups {
            for set in &group.sets {
                for (key, terms) in set.keys.iter().zip(&group.terms) {
                    cmd.arg(&*names.of(key, &terms.policy));
                }
            }
        }
        if let Some(now) = now {
            cmd.arg(now.as_micros());
        }
        let mut numbers = Numbers::new();
        for group in &self.groups {
            // Callers that wait for as many others are sent together: their `max` is the same.
            let runs = || group.sets.chunk_by(|a, b| a.callers.len() == b.callers.len());
            numbers.push(group.terms.len() as u64);
            numbers.push(group.is_whole().into());
            numbers.push(group.sets.len() as u64);
            numbers.push(group.times.min().into());
            numbers.push(runs().count() as u64);
            group.terms.iter().for_each(|terms| terms.write(&mut numbers));
            for run in runs() {
                numbers.push(run.len() as u64);
                numbers.push(group.max_of(run[0].callers.len()).into());
            }
        }
        cmd.arg(numbers.as_bytes());
    }

    /// Hands out what a call answered.
    pub(crate) fn answer(self, answer: Result<Value, Error>) {
        let bytes = match answer {
            Ok(Value::BulkString(bytes)) => bytes,
            Ok(_) => return self.fail(&Cause::Garbled.into()),
            Err(error) => return self.fail(&error),
        };
        let mut numbers = numbers::read(&bytes);
        let now = Timestamp::from_micros(numbers.next().map_or(0, i64::cast_unsigned));
        for mut group in self.groups {
            let is_whole = group.is_whole();
            for set in mem::take(&mut group.sets) {
                let whole = is_whole.then(|| group.max_of(set.callers.len()));
                match read(&group.terms, whole, &mut numbers) {
                    Some((granted, states)) => {
                        hand_out(&group.terms, group.times, now, granted, states, set.callers);
                    }
                    None => {
                        // Nor can be said where the next begins.
                        numbers.by_ref().for_each(drop);
                        set.callers.into_iter().for_each(|caller| caller.tell(Err(Cause::Garbled.into())));
                    }
                }
            }
        }
    }

    pub(crate) fn fail(self, error: &Error) {
        let sets = self.groups.into_iter().flat_map(|group| group.sets);
        sets.flat_map(|set| set.callers).for_each(|caller| caller.tell(Err(error.clone())));
    }
}

impl Group {
    /// How often a set is to be acquired at most for so many callers. Those who were merged want it once each, and so at least
    /// once, as one who is alone.
    fn max_of(&self, callers: usize) -> u32 {
        match callers {
            1 => self.times.max().min(self.most_times()),
            many => u32::try_from(many).unwrap_or(u32::MAX),
        }
    }

    /// Whether scripts may take the way of whole microseconds.
    fn is_whole(&self) -> bool {
        matches!(&*self.terms, [terms] if terms.are_whole()) && self.times.min() <= 1 && self.times.max() >= 1
    }

    /// No grant to one caller is of more units than a `u32` counts. (Those who were merged have one each: together they may queue
    /// for more in a leaky bucket.)
    fn most_times(&self) -> u32 {
        let most = |terms: &Terms| u64::from(u32::MAX).checked_div(terms.cost);
        let least = self.terms.iter().filter_map(most).min();
        least.and_then(|least| u32::try_from(least).ok()).unwrap_or(u32::MAX)
    }
}

/// How often a set was granted, and its states before that. Where it may have been in `whole`, a TAT says that it was so often.
fn read(
    terms: &[Terms],
    whole: Option<u32>,
    numbers: &mut impl Iterator<Item = i64>,
) -> Option<(u32, SmallVec<[State; 1]>)> {
    let first = numbers.next()?;
    if let (Some(times), [terms], Ok(tat)) = (whole, terms, u64::try_from(first)) {
        return Some((times, SmallVec::from_buf([State::restore(&terms.policy, &[tat, 0])])));
    }
    let granted = u32::try_from(-1 - first).ok()?;
    let states: SmallVec<[State; 1]> = terms.iter().map_while(|terms| terms.read(numbers)).collect();
    (states.len() == terms.len()).then_some((granted, states))
}

/// Grants callers in the order of their arrival as often as Redis did, and refuses the others. Each is told how things stand
/// after its own turn: what Redis has charged at once is charged here to the same states, one by one.
fn hand_out(
    terms: &[Terms],
    times: Times,
    now: Timestamp,
    granted: u32,
    mut states: SmallVec<[State; 1]>,
    callers: SmallVec<[Caller; 1]>,
) {
    let alone = callers.len() == 1;
    for (turn, caller) in callers.into_iter().enumerate() {
        let times_granted = if alone { granted } else { u32::from(turn < granted as usize) };
        caller.tell(Ok(told(terms, times, now, times_granted, &mut states)));
    }
}

fn told(terms: &[Terms], times: Times, now: Timestamp, granted: u32, states: &mut [State]) -> Told {
    let status = |terms: &Terms, state: &mut State| {
        let look = state.look(&terms.policy, now);
        if granted == 0 {
            let wanted = terms.cost.saturating_mul(u64::from(times.min().max(1)));
            return (Duration::ZERO, state.refuse(&terms.policy, now, look, wanted));
        }
        let units = u64::from(granted) * terms.cost;
        let charge = state.charge(&terms.policy, now, look, u32::try_from(units).unwrap_or(u32::MAX));
        (charge.delay, charge.status)
    };
    if let ([terms], [state]) = (terms, &mut *states) {
        // Most sets are of one check, and this is short for what follows.
        let (delay, status) = status(terms, state);
        return Told::One { times: granted, delay, status };
    }
    let mut longest = Duration::ZERO;
    let each: SmallVec<[_; 4]> = terms
        .iter()
        .zip(states)
        .map(|(terms, state)| {
            let (delay, status) = status(terms, state);
            longest = longest.max(delay);
            status
        })
        .collect();
    Verdict::new(granted, longest, each).into()
}
