//! The checks that one call carries.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bb8_redis::redis::{Cmd, Value};
use smallvec::SmallVec;
use tokio::time::timeout;
use tollgate_core::{Quota, StoreError, Times, Timestamp, UnansweredClaims};

use super::acquire_request::AcquireRequest;
use super::alike::{Alike, Set};
use super::caller::{Answered, Caller, Deadline, Overdue, sooner, span};
use super::check_command;
use super::claims::Claims;
use super::context::CallContext;
use super::group::Load;
use crate::error::{Cause, Error, LateAnswer, next_call};
use crate::link::Text;
use crate::wire::args::ScriptArgs;
use crate::wire::layout::SlidingLogLayout;
use crate::wire::numbers;
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
            // Sets with as many callers stand together: see `check_command::write`.
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
        (keys > 0).then(|| {
            context.command(script, text, keys, |cmd| {
                check_command::write(cmd, &self.groups, self.parts.have_tracking(), context, now);
            })
        })
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
                    Some((granted, mut states)) => {
                        group.hand_out(now, granted, &mut states, set, self.claims.as_ref());
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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::sleep;
    use tollgate_core::{Key, Policy, Quota, SentClaims, StoreError};

    use super::super::acquire_request::{Pair, SetKeys};
    use super::super::alike::tests::alike;
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
}
