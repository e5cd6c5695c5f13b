//! The checks that one call carries.

use std::iter::Peekable;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use smallvec::SmallVec;
use tokio::time::timeout;
use tollgate_core::algorithm::State;
use tollgate_core::{Quota, Status, StoreError, Times, Timestamp, UnansweredClaims, Verdict};

use super::acquire_request::{AcquireRequest, SetKeys};
use super::caller::{Answered, Caller, Deadline, Overdue, Undo, sooner, span};
use super::claims::Claims;
use super::context::CallContext;
use super::group::Load;
use super::refund_batch::RefundEntry;
use crate::error::{Cause, Error, LateAnswer, next_call};
use crate::link::Text;
use crate::wire::args::ScriptArgs;
use crate::wire::layout::SlidingLogLayout;
use crate::wire::names::BoundedKey;
use crate::wire::numbers::{self, Doubles};
use crate::wire::script::Parts;

/// Checks of many callers, on their way to acquire.lua.
#[derive(Default)]
pub(super) struct CheckBatch {
    groups: Vec<Alike>,
    /// The place of a set in its group, by the hash of its keys and the group. Sorted, since a call
    /// carries few sets.
    places: Vec<(u64, usize)>,
    sets: usize,
    work: u32,
    parts: Parts,
    /// The earliest deadline of a caller.
    first_end: Option<Timestamp>,
    /// `None` unless a caller claims a slot.
    claims: Option<Arc<Claims>>,
    /// The claims that were sent, and when.
    sent: Mutex<Option<(UnansweredClaims, Timestamp)>>,
}

/// Sets that are alike but for their keys, so that their arguments are sent once.
struct Alike {
    args: SmallVec<[ScriptArgs; 1]>,
    times: Times,
    sets: Vec<Set>,
}

/// Callers that ask for the same, in the order of their arrival. They are merged into one partial
/// grant.
struct Set {
    keys: SetKeys,
    callers: SmallVec<[Caller<Answered>; 1]>,
}

impl Load for CheckBatch {
    type Answer = Answered;

    fn work(&self) -> u32 {
        self.work
    }

    fn len(&self) -> usize {
        self.sets
    }

    fn callers(&self) -> usize {
        self.groups.iter().flat_map(|group| &group.sets).map(|set| set.callers.len()).sum()
    }

    fn first_end(&self) -> Option<Timestamp> {
        self.first_end
    }

    fn take_overdue(
        &mut self,
        overdue: &mut Overdue<Answered>,
        why: &mut dyn FnMut(Deadline) -> Error,
    ) -> bool {
        let sets = self.groups.iter_mut().flat_map(|group| &mut group.sets);
        overdue.take(&mut self.first_end, sets.flat_map(|set| &mut set.callers), why)
    }

    fn drop_overdue(&mut self) {
        // The sets stay, so that their places do.
        for set in self.groups.iter_mut().flat_map(|group| &mut group.sets) {
            set.callers.retain(|caller| !caller.is_overdue());
        }
    }

    fn forget_deadlines(&mut self) {
        let sets = self.groups.iter_mut().flat_map(|group| &mut group.sets);
        sets.flat_map(|set| &mut set.callers).for_each(Caller::forget_deadline);
        self.first_end = None;
    }

    fn drop_abandoned(&mut self) {
        for group in &mut self.groups {
            for set in &mut group.sets {
                set.callers.retain(|caller| caller.is_waiting());
            }
            group.sets.retain(|set| !set.callers.is_empty());
            // Sets with as many callers stand together: see `CheckBatch::write`.
            group.sets.sort_by_key(|set| set.callers.len());
        }
        self.groups.retain(|group| !group.sets.is_empty());
        self.work = self.groups.iter().map(Alike::work).fold(0, u32::saturating_add);
        self.sets = self.groups.iter().map(|group| group.sets.len()).sum();
    }

    fn command(&self, context: &CallContext, text: Text, now: Timestamp) -> Option<Cmd> {
        let of_group = |group: &Alike| group.sets.len() * (group.args.len() + group.tracked().count());
        let keys = self.groups.iter().map(of_group).sum();
        let script = context.scripts.acquire(self.parts);
        self.note_sent();
        (keys > 0).then(|| context.command(script, text, keys, |cmd| self.write(cmd, context, now)))
    }

    fn answer(self, answer: Result<Value, Error>, shown: &dyn Fn(Timestamp)) {
        match answer {
            Ok(Value::BulkString(bytes)) => self.grant(&bytes, shown),
            Ok(_) => self.fail(&garbled()),
            Err(error) => self.fail(&error),
        }
    }

    fn split(mut self) -> Vec<CheckBatch> {
        // Nothing was executed.
        self.claims_answered();
        let (parts, claims) = (self.parts, self.claims.take());
        let of_group = |Alike { args, times, sets }: Alike| {
            let alone = move |set| Alike { args: args.clone(), times, sets: vec![set] };
            let claims = claims.clone();
            let of_groups =
                move |groups| CheckBatch { claims: claims.clone(), ..CheckBatch::of_groups(groups, parts) };
            sets.into_iter().map(move |set| of_groups(vec![alone(set)]))
        };
        self.groups.into_iter().flat_map(of_group).collect()
    }
}

impl CheckBatch {
    /// Checks to be sent. No other is added.
    fn of_groups(groups: Vec<Alike>, parts: Parts) -> CheckBatch {
        let sets = || groups.iter().flat_map(|group| &group.sets);
        CheckBatch {
            sets: sets().count(),
            work: groups.iter().map(Alike::work).fold(0, u32::saturating_add),
            first_end: sets().flat_map(|set| &set.callers).filter_map(Caller::until).min(),
            groups,
            parts,
            ..CheckBatch::default()
        }
    }

    /// Adds what a caller asks for. `hash` is that of its keys.
    pub(super) fn push(
        &mut self,
        request: AcquireRequest<'_>,
        hash: u64,
        log: SlidingLogLayout,
        caller: Caller<Answered>,
        claims: Option<&Arc<Claims>>,
    ) {
        if self.claims.is_none() {
            self.claims = claims.cloned();
        }
        self.first_end = sooner(self.first_end, caller.until());
        let alike = self.group_of(&request, log);
        let hash = hash.wrapping_add(alike as u64);
        let group = match self.places.binary_search_by_key(&hash, |(hash, _)| *hash) {
            // The group has no such set.
            Err(place) => {
                self.places.insert(place, (hash, self.groups[alike].sets.len()));
                alike
            }
            Ok(place) => {
                let set = self.groups[alike].sets.get_mut(self.places[place].1);
                // The same set, as a plain check: it is acquired once more.
                if request.times == Times::ONCE
                    && let Some(set) = set.filter(|set| set.keys == request.keys)
                {
                    set.callers.push(caller);
                    return;
                }
                // The same set, but not a plain check, or another one by a collision. No key may be
                // twice in one group: the script reads all keys of a group before it charges any.
                self.open_group(&request, log)
            }
        };
        let group = &mut self.groups[group];
        group.sets.push(Set { keys: request.keys, callers: SmallVec::from_buf([caller]) });
        self.work = self.work.saturating_add(group.work_of_set());
        self.sets += 1;
    }

    fn group_of(&mut self, request: &AcquireRequest<'_>, log: SlidingLogLayout) -> usize {
        let is_alike = |group: &Alike| {
            group.times == request.times
                && group.args.len() == request.pairs.len()
                && group
                    .args
                    .iter()
                    .zip(request.pairs)
                    .all(|(args, pair)| args.matches(pair.policy, pair.cost))
        };
        // A call has few groups: as many as its callers have different rules and costs.
        self.groups.iter().position(is_alike).unwrap_or_else(|| self.open_group(request, log))
    }

    fn open_group(&mut self, request: &AcquireRequest<'_>, log: SlidingLogLayout) -> usize {
        let args: SmallVec<[ScriptArgs; 1]> =
            request.pairs.iter().map(|pair| ScriptArgs::new(pair.policy, pair.cost, log)).collect();
        args.iter().for_each(|args| self.parts.add(args.part));
        if args.iter().any(ScriptArgs::tracks_usage) {
            self.parts.add_tracking();
        }
        self.groups.push(Alike { args, times: request.times, sets: Vec::new() });
        self.groups.len() - 1
    }

    /// The keys and arguments of acquire.lua and of track.lua.
    fn write(&self, cmd: &mut Cmd, context: &CallContext, now: Timestamp) {
        let (names, mut name) = (&context.names, String::new());
        let mut put = |key: &BoundedKey, form: &[&str]| {
            name.clear();
            names.push(&mut name, key, form);
            cmd.arg(&name);
        };
        for group in &self.groups {
            let forms: Vec<_> = group.args.iter().map(|args| names.form(&args.policy).concat()).collect();
            for set in &group.sets {
                for (key, form) in set.keys.iter().zip(&forms) {
                    put(key, &[form]);
                }
            }
        }
        for group in &self.groups {
            for set in &group.sets {
                for (at, args) in group.tracked() {
                    put(&set.keys[at], &names.form_of_total(args.policy.name()));
                }
            }
        }
        if let Some(clock) = &context.clock {
            cmd.arg(clock.now().as_micros());
        }
        let mut numbers = Doubles::new();
        for group in &self.groups {
            // Sets with as many callers are a run: their `max` is the same.
            let runs = || group.sets.chunk_by(|a, b| a.callers.len() == b.callers.len());
            numbers.push(group.args.len() as u64);
            numbers.push(group.is_whole().into());
            numbers.push(group.sets.len() as u64);
            numbers.push(group.times.min().into());
            numbers.push(runs().count() as u64);
            group.args.iter().for_each(|args| args.write(&mut numbers, now));
            for run in runs() {
                numbers.push(run.len() as u64);
                numbers.push(group.max_of(run[0].callers.len()).into());
            }
        }
        cmd.arg(numbers.as_bytes());
        if self.parts.have_tracking() {
            let mut numbers = Doubles::new();
            numbers.push(context.usage_life_ms);
            let args = self.groups.iter().flat_map(|group| &group.args);
            args.for_each(|args| args.write_tracking(&mut numbers));
            cmd.arg(numbers.as_bytes());
        }
    }

    /// Hands out what acquire.lua returned.
    fn grant(mut self, answer: &[u8], shown: &dyn Fn(Timestamp)) {
        let mut numbers = numbers::read(answer).peekable();
        let now = Timestamp::from_micros(numbers.next().map_or(0, i64::cast_unsigned));
        // An answer without a time is garbled.
        if now > Timestamp::EPOCH {
            shown(now);
        }
        let mut failure = None;
        for group in &mut self.groups {
            let mut sets = mem::take(&mut group.sets);
            for set in &mut sets {
                match group.read(set.callers.len(), &mut numbers) {
                    Some((granted, states)) => {
                        group.hand_out(now, granted, states, set, self.claims.as_ref());
                    }
                    None => {
                        // Where the next set begins is unknown, too.
                        numbers.by_ref().for_each(drop);
                        let error = failure.get_or_insert_with(garbled);
                        set.callers.iter_mut().for_each(|caller| caller.fail(error));
                    }
                }
            }
        }
        if failure.is_none() {
            // Refunds of claims whose callers have gone are counted by now.
            self.claims_answered();
        }
    }

    /// Notifies the callers of a failure. Claims that may have been executed wait for a late
    /// answer.
    fn fail(mut self, error: &Error) {
        let late = error.take_late_answer();
        self.waiting_callers().for_each(|caller| caller.fail(error));
        if error.executed_nothing() || error.is_reply() {
            self.claims_answered();
        } else if let Some(late) = late {
            self.wait_for(late);
        }
    }

    fn waiting_callers(&mut self) -> impl Iterator<Item = &mut Caller<Answered>> {
        self.groups.iter_mut().flat_map(|group| &mut group.sets).flat_map(|set| &mut set.callers)
    }

    /// Notes that claims are sent now. If they were sent before, they were refused.
    fn note_sent(&self) {
        let Some(claims) = &self.claims else { return };
        let (mut slots, mut are_any) = (0, false);
        for group in &self.groups {
            let callers = group.sets.iter().flat_map(|set| &set.callers);
            let count = callers.filter(|caller| caller.is_claim()).count() as u64;
            are_any |= count > 0;
            // In a Cluster, another call may have the slot of the set.
            slots += if group.ttls().next().is_some() { count } else { 0 };
        }
        let sent = are_any.then(|| (claims.counts.send(slots), claims.context.waits.now()));
        let before = mem::replace(&mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner), sent);
        if let Some((refused, _)) = before {
            refused.answered();
        }
    }

    fn claims_answered(&mut self) {
        if let Some((claims, _)) = self.sent.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            claims.answered();
        }
    }

    /// Waits for an answer after the timeout of its call, as long as a slot would be held. Its
    /// callers have gone, so what it grants is refunded.
    fn wait_for(mut self, late: LateAnswer) {
        let sent = self.sent.get_mut().unwrap_or_else(PoisonError::into_inner).as_ref();
        let (Some(claims), Some((_, sent))) = (self.claims.clone(), sent) else { return };
        let ttls = self.groups.iter().flat_map(Alike::ttls);
        let ttl = ttls.max().unwrap_or(Quota::DEFAULT_TTL);
        let left = ttl.saturating_sub(span(*sent, claims.context.waits.now()));
        claims.context.runtime.spawn(async move {
            // Without an answer the claims are lost.
            if let Ok(answer) = timeout(left, late).await {
                self.answer(answer.map_err(|error| Cause::Redis(error).into()), &|_| ());
            }
        });
    }
}

/// The failure of a call whose answer cannot be read. All its callers share it.
fn garbled() -> Error {
    Error::from(Cause::Garbled).of_call(next_call())
}

impl Alike {
    /// The arguments that record usage, and their places in each set.
    fn tracked(&self) -> impl Iterator<Item = (usize, &ScriptArgs)> {
        self.args.iter().enumerate().filter(|(_, args)| args.tracks_usage())
    }

    /// How long the slots that it claims would be held.
    fn ttls(&self) -> impl Iterator<Item = Duration> {
        self.args.iter().filter_map(|args| args.policy.ttl())
    }

    fn work_of_set(&self) -> u32 {
        self.args.iter().map(ScriptArgs::work).fold(0, u32::saturating_add)
    }

    fn work(&self) -> u32 {
        let sets = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        self.work_of_set().saturating_mul(sets)
    }

    /// How often a set with this number of callers is acquired at most. Only callers of
    /// [`Times::ONCE`] are merged: n of them are a set with a minimum of 1 and a maximum of n.
    fn max_of(&self, callers: usize) -> u32 {
        match callers {
            1 => self.times.max().min(self.most_times()),
            many => u32::try_from(many).unwrap_or(u32::MAX),
        }
    }

    /// Whether gcra_whole.lua may decide.
    fn is_whole(&self) -> bool {
        matches!(&*self.args, [args] if args.has_whole_cost())
            && self.times.min() <= 1
            && self.times.max() >= 1
    }

    /// Bounds the units of a grant to one caller to [`Quota::MAX_UNITS`]. Merged callers have a
    /// grant each, and may together queue for more in a leaky bucket.
    fn most_times(&self) -> u32 {
        let most = |args: &ScriptArgs| Quota::MAX_UNITS.checked_div(args.cost);
        let least = self.args.iter().filter_map(most).min();
        // At least once: a larger cost is refused, and is no look.
        least.map_or(u32::MAX, |least| u32::try_from(least).unwrap_or(u32::MAX).max(1))
    }

    /// How often a set was granted, and its states before that.
    fn read(
        &self,
        callers: usize,
        numbers: &mut Peekable<impl Iterator<Item = i64>>,
    ) -> Option<(u32, SmallVec<[State; 1]>)> {
        let granted = match numbers.next_if(|number| *number < 0) {
            Some(number) => u32::try_from(-1 - number).ok()?,
            None => self.max_of(callers),
        };
        let mut states = SmallVec::new();
        for args in &self.args {
            states.push(args.read(numbers)?);
        }
        Some((granted, states))
    }

    /// Grants callers in the order of their arrival as often as Redis did, and denies the others.
    /// Each verdict is the one after the caller's own turn: what Redis charged at once is charged
    /// to the same states one by one.
    fn hand_out(
        &self,
        now: Timestamp,
        granted: u32,
        mut states: SmallVec<[State; 1]>,
        set: &mut Set,
        claims: Option<&Arc<Claims>>,
    ) {
        let is_alone = set.callers.len() == 1;
        for (turn, caller) in set.callers.iter_mut().enumerate() {
            let times = if is_alone { granted } else { u32::from(turn < granted as usize) };
            let verdict = self.verdict(now, times, &mut states);
            let claims = claims.filter(|_| caller.is_claim() && verdict.is_granted());
            let undo = claims.map(|claims| self.undo(claims, &set.keys, &verdict));
            caller.send(Ok(Answered::with_undo(verdict, undo)));
        }
    }

    /// Refunds what a claim was granted.
    fn undo(&self, claims: &Arc<Claims>, keys: &SetKeys, verdict: &Verdict) -> Undo {
        let entries = refunds(&claims.context, &self.args, keys, verdict, verdict.times());
        let hash_slot = keys.first().map_or(0, |key| claims.context.hash_slot_of_key(key));
        let claims = Arc::clone(claims);
        Box::new(move || claims.give_back(entries.into_iter().map(|entry| (hash_slot, entry)).collect()))
    }

    fn verdict(&self, now: Timestamp, granted: u32, states: &mut [State]) -> Verdict {
        let status = |args: &ScriptArgs, state: &mut State| {
            let look = state.look(&args.policy, now);
            if granted == 0 {
                return (Duration::ZERO, state.refuse(&args.policy, now, look, args.cost, self.times));
            }
            let units = u64::from(granted).saturating_mul(args.cost);
            let charge = state.charge(&args.policy, now, look, units);
            (charge.delay, charge.status)
        };
        let (mut longest, mut each) = (Duration::ZERO, SmallVec::<[Status; 4]>::new());
        for (args, state) in self.args.iter().zip(states) {
            let (delay, status) = status(args, state);
            longest = longest.max(delay);
            each.push(status);
        }
        Verdict::new(granted, longest, each).at(now)
    }
}

/// Refunds of so many of the times that a set was granted. `args` and `keys` are those of its
/// pairs.
pub(crate) fn refunds(
    context: &CallContext,
    args: &[ScriptArgs],
    keys: &SetKeys,
    verdict: &Verdict,
    times: u32,
) -> Vec<RefundEntry> {
    let charged = args.iter().zip(verdict.each()).zip(keys).filter(|((args, _), _)| args.cost > 0);
    let refund = |((args, status), key): ((&ScriptArgs, &Status), &BoundedKey)| {
        let cost = args.cost.saturating_mul(times.into());
        RefundEntry::refund(&context.names, key, ScriptArgs { cost, ..args.clone() }, status.stamp())
    };
    charged.map(refund).collect()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;
    use tollgate_core::{Key, Policy, Quota, SentClaims, StoreError};

    use super::super::acquire_request::Pair;
    use super::super::caller::VerdictReceiver;
    use super::super::tests::context_without_server;
    use super::*;
    use crate::wire::names::KeyNames;

    /// Adds a check of this user.
    fn push(checks: &mut CheckBatch, user: u32) -> VerdictReceiver {
        let (policy, log) = (Policy::new("p", Quota::per_day(5)), SlidingLogLayout::List);
        let names = KeyNames::new("t", None, log);
        let pairs = [Pair { policy: &policy, cost: 1 }];
        let keys = SetKeys::from_iter([names.bounded(&Key::from(user))]);
        let request = AcquireRequest { pairs: &pairs, keys, times: Times::ONCE, is_claim: false };
        let (caller, answer) = Caller::new(None);
        checks.push(request, user.into(), log, caller, None);
        answer
    }

    #[test]
    fn callers_that_have_left_are_no_work() {
        let mut checks = CheckBatch::default();
        let mut answers: Vec<_> = (0..10).map(|user| push(&mut checks, user)).collect();
        let work = checks.work();
        answers.truncate(5);
        checks.drop_abandoned();
        assert_eq!((checks.len(), checks.work()), (5, work / 2));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_one_failure() {
        // Too few numbers, and no bulk string.
        for answer in [Value::BulkString(Vec::new()), Value::Int(1)] {
            let mut checks = CheckBatch::default();
            let answers: Vec<_> = (0..10).map(|user| push(&mut checks, user)).collect();
            checks.answer(Ok(answer), &|_| {});
            let calls: Vec<_> = answers
                .into_iter()
                .map(|mut answer| answer.try_recv().unwrap().err().unwrap().call())
                .collect();
            assert!(calls[0].is_some() && calls.iter().all(|call| *call == calls[0]), "{calls:?}");
        }
    }

    fn alike(policy: &Policy, times: Times) -> Alike {
        let args = ScriptArgs::new(policy, 1, SlidingLogLayout::List);
        Alike { args: SmallVec::from_iter([args]), times, sets: Vec::new() }
    }

    /// Claims and plain checks may share a call.
    #[tokio::test]
    async fn only_what_a_claim_was_granted_is_refunded_if_its_caller_has_left() {
        let context = context_without_server();
        let cases = [(true, 1, 1), (true, 0, 0), (false, 1, 0), (false, 0, 0)];
        for (is_claim, granted, refunds) in cases {
            let stopped = |_, _| Err(Cause::Stopped.into());
            let counts = SentClaims::default();
            let claims = Arc::new(Claims::new(counts, Arc::clone(&context), stopped));
            let policy = Policy::in_flight("slots", 5);
            let (caller, answer) = Caller::new(None);
            drop(answer);
            let keys = SetKeys::from_iter([context.names.bounded(&Key::from("ada"))]);
            let mut set = Set { keys, callers: SmallVec::from_iter([caller.claiming(is_claim)]) };
            let states = SmallVec::from_iter([State::new(&policy)]);
            let now = Timestamp::from_micros(1);
            alike(&policy, Times::ONCE).hand_out(now, granted, states, &mut set, Some(&claims));
            assert_eq!(claims.counts.unanswered(), refunds, "{is_claim} {granted}");
        }
    }

    /// In a Cluster, another call may have the slot of a set.
    #[tokio::test]
    async fn a_claim_counts_in_the_call_that_has_its_slot() {
        let context = context_without_server();
        let stopped = |_, _| Err(Cause::Stopped.into());
        let claims = Arc::new(Claims::new(SentClaims::default(), Arc::clone(&context), stopped));
        let of = |policy: &Policy| {
            let keys = SetKeys::from_iter([context.names.bounded(&Key::from("ada"))]);
            let callers = SmallVec::from_iter([Caller::new(None).0.claiming(true)]);
            Alike { sets: vec![Set { keys, callers }], ..alike(policy, Times::ONCE) }
        };
        let groups = vec![of(&Policy::new("p", Quota::per_day(5))), of(&Policy::in_flight("slots", 5))];
        let batch = CheckBatch { groups, claims: Some(Arc::clone(&claims)), ..CheckBatch::default() };
        batch.note_sent();
        assert_eq!(claims.counts.unanswered(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_waited_for_as_long_as_the_longest_slot_is_held() {
        let context = context_without_server();
        let stopped = |_, _| Err(Cause::Stopped.into());
        let claims = Arc::new(Claims::new(SentClaims::default(), Arc::clone(&context), stopped));
        let of = |seconds| {
            let slots = Policy::in_flight("slots", 5).with_ttl(Duration::from_secs(seconds));
            let keys = SetKeys::from_iter([context.names.bounded(&Key::from("ada"))]);
            let callers = SmallVec::from_iter([Caller::new(None).0.claiming(true)]);
            Alike { sets: vec![Set { keys, callers }], ..alike(&slots, Times::ONCE) }
        };
        let groups = vec![of(10), of(60)];
        let batch = CheckBatch { groups, claims: Some(Arc::clone(&claims)), ..CheckBatch::default() };
        batch.note_sent();
        batch.wait_for(Box::pin(pending()));
        for (seconds, unanswered) in [(30, 2), (31, 0)] {
            sleep(Duration::from_secs(seconds)).await;
            assert_eq!(claims.counts.unanswered(), unanswered);
        }
        assert_eq!(claims.counts.lost(), 2);
    }

    #[test]
    fn no_caller_is_granted_more_units_than_a_quota_may_have() {
        let of = |costs: &[u64]| {
            let policy = Policy::new("p", Quota::per_day(5));
            let args = |cost: &u64| ScriptArgs::new(&policy, *cost, SlidingLogLayout::List);
            let args = costs.iter().map(args).collect();
            Alike { args, ..alike(&policy, Times::up_to(100)) }.max_of(1)
        };
        let half = Quota::MAX_UNITS / 2;
        assert_eq!([of(&[1]), of(&[half]), of(&[1, half]), of(&[half, 1])], [100, 2, 2, 2]);
        assert_eq!(of(&[u64::MAX]), 1);
    }

    #[test]
    fn the_script_for_whole_costs_decides_all_that_may_be_granted_once() {
        let policy = Policy::new("p", Quota::per_day(5));
        for (times, is_whole) in [
            (Times::LOOK, false),
            (Times::ONCE, true),
            (Times::up_to(5), true),
            (Times::between(0, 5), true),
            (Times::between(2, 5), false),
        ] {
            assert_eq!(alike(&policy, times).is_whole(), is_whole, "{times:?}");
        }
    }
}
