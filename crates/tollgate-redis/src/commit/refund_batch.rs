//! The refunds, releases, renewals and resets that one call carries.

use std::collections::HashSet;
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use tollgate_core::{Policy, Stamp, Timestamp};

use super::caller::{Caller, Deadline, Overdue, sooner};
use super::context::CallContext;
use super::group::Load;
use super::return_kind::ReturnKind;
use crate::error::{Cause, Error};
use crate::link::Text;
use crate::wire::args::ScriptArgs;
use crate::wire::names::{BoundedKey, KeyNames, Name};
use crate::wire::numbers::{self, Doubles};
use crate::wire::script::Parts;

/// One key that units go back to, whose slot is kept, or that is reset.
#[derive(Clone)]
pub(crate) enum RefundEntry {
    /// Gives back units of a grant, which are the cost of the arguments.
    Refund {
        name: Name,
        args: ScriptArgs,
        stamp: Stamp,
        /// The name of the key's usage, if the policy tracks it.
        total: Option<Name>,
    },
    /// Keeps a slot. If it is not held any more, it is claimed again only if the renewal `claims`.
    Renewal { name: Name, args: ScriptArgs, stamp: Stamp, claims: bool },
    /// Forgets what the key has used.
    Reset { name: Name },
}

impl RefundEntry {
    pub(crate) fn refund(names: &KeyNames, key: &BoundedKey, args: ScriptArgs, stamp: Stamp) -> RefundEntry {
        // A slot that comes back was used, and so was what is credited.
        let takes_back = args.tracks_usage() && !args.policy.is_in_flight() && stamp != Stamp::NEWEST;
        let total = takes_back.then(|| names.of_total(key, args.policy.name()));
        RefundEntry::Refund { name: names.of(key, &args.policy), args, stamp, total }
    }

    /// Renews a slot, if it is still held.
    pub(crate) fn renewal(names: &KeyNames, key: &BoundedKey, policy: &Policy, stamp: Stamp) -> RefundEntry {
        let args = ScriptArgs::new(policy, 0, names.log);
        RefundEntry::Renewal { name: names.of(key, policy), args, stamp, claims: false }
    }

    /// The same renewal, which claims a slot again that is not held any more.
    pub(crate) fn claiming(mut self) -> RefundEntry {
        if let RefundEntry::Renewal { claims, .. } = &mut self {
            *claims = true;
        }
        self
    }

    /// Those of a key under a policy, of its present layout and of an earlier one.
    pub(crate) fn resets(
        names: &KeyNames,
        key: &BoundedKey,
        policy: &Policy,
    ) -> impl Iterator<Item = RefundEntry> {
        let all = [Some(names.of(key, policy)), names.of_earlier(key, policy)];
        all.into_iter().flatten().map(|name| RefundEntry::Reset { name })
    }

    pub(super) fn kind(&self) -> ReturnKind {
        match self {
            RefundEntry::Renewal { .. } => ReturnKind::Renewal,
            RefundEntry::Refund { args, .. } if args.policy.is_in_flight() => ReturnKind::Release,
            RefundEntry::Refund { .. } | RefundEntry::Reset { .. } => ReturnKind::Refund,
        }
    }

    fn name(&self) -> &Name {
        match self {
            RefundEntry::Refund { name, .. }
            | RefundEntry::Renewal { name, .. }
            | RefundEntry::Reset { name } => name,
        }
    }

    /// The arguments of the script, but for a reset.
    fn args(&self) -> Option<&ScriptArgs> {
        match self {
            RefundEntry::Refund { args, .. } | RefundEntry::Renewal { args, .. } => Some(args),
            RefundEntry::Reset { .. } => None,
        }
    }

    /// The estimated work on the server, where a check of GCRA is 1.
    pub(super) fn work(&self) -> u32 {
        self.args().map_or(1, ScriptArgs::refund_work)
    }

    fn is_renewal(&self) -> bool {
        matches!(self, RefundEntry::Renewal { .. })
    }

    fn claims(&self) -> bool {
        matches!(self, RefundEntry::Renewal { claims: true, .. })
    }

    /// How long a slot that it releases would be held.
    pub(super) fn ttl(&self) -> Option<Duration> {
        self.args()?.policy.ttl()
    }

    /// The units to take from a total, and its name.
    fn tracked(&self) -> Option<(u64, &Name)> {
        match self {
            RefundEntry::Refund { args, total: Some(name), .. } => Some((args.cost, name)),
            _ => None,
        }
    }

    fn write(&self, numbers: &mut Doubles) {
        match self {
            RefundEntry::Refund { args, stamp, .. } => args.write_refund(numbers, *stamp, false),
            RefundEntry::Renewal { args, stamp, claims, .. } => args.write_refund(numbers, *stamp, *claims),
            RefundEntry::Reset { .. } => {}
        }
    }
}

/// What many callers give back, renew or reset, on its way to refund.lua.
#[derive(Default)]
pub(super) struct RefundBatch {
    requests: Vec<RefundRequest>,
    work: u32,
    parts: Parts,
    /// The earliest deadline of a caller.
    first_end: Option<Timestamp>,
}

/// Refunds and renewals of one policy, or resets.
struct RefundGroup<'a> {
    /// Each with its place in the batch.
    entries: Vec<(usize, &'a RefundEntry)>,
    names: HashSet<&'a [u8]>,
}

impl RefundGroup<'_> {
    fn is_alike(&self, entry: &RefundEntry) -> bool {
        fn policy(entry: &RefundEntry) -> Option<&Policy> {
            entry.args().map(|args| &args.policy)
        }
        self.entries.first().is_some_and(|(_, first)| policy(first) == policy(entry))
    }

    fn has_room_for(&self, entry: &RefundEntry) -> bool {
        // Nothing of a slot is read before the others are written.
        let is_slot = entry.args().is_some_and(|args| args.policy.is_in_flight());
        self.entries.len() < MOST_KEYS && (is_slot || !self.names.contains(&**entry.name()))
    }
}

/// The most keys of a group. The script passes them to one function, which takes 8,000 at most.
const MOST_KEYS: usize = 4_000;

struct RefundRequest {
    entries: Vec<RefundEntry>,
    caller: Caller<Vec<bool>>,
}

impl RefundRequest {
    /// Whether it claims slots.
    fn claims(&self) -> bool {
        self.entries.iter().any(RefundEntry::claims)
    }
}

impl Load for RefundBatch {
    type Answer = Vec<bool>;

    fn work(&self) -> u32 {
        self.work
    }

    fn len(&self) -> usize {
        self.requests.len()
    }

    fn callers(&self) -> usize {
        self.requests.len()
    }

    fn first_end(&self) -> Option<Timestamp> {
        self.first_end
    }

    fn take_overdue(
        &mut self,
        overdue: &mut Overdue<Vec<bool>>,
        why: &mut dyn FnMut(Deadline) -> Error,
    ) -> bool {
        // They are sent all the same, so no error may say that Redis was not asked.
        let mut why = |deadline| match why(deadline) {
            error if error.is_overloaded() => Cause::Late.into(),
            error => error,
        };
        overdue.take(
            &mut self.first_end,
            self.requests.iter_mut().map(|request| &mut request.caller),
            &mut why,
        )
    }

    // They are sent even if their callers have left: the units are to come back.
    fn drop_overdue(&mut self) {}

    fn forget_deadlines(&mut self) {}

    // A claim whose caller has left has no holder.
    fn drop_abandoned(&mut self) {
        self.requests.retain(|request| request.caller.is_waiting() || !request.claims());
        self.work = self.entries().map(RefundEntry::work).fold(0, u32::saturating_add);
    }

    fn command(&self, context: &CallContext, text: Text, now: Timestamp) -> Option<Cmd> {
        let of_entry = |entry: &RefundEntry| 1 + usize::from(entry.tracked().is_some());
        let keys = self.entries().map(of_entry).sum();
        let script = context.scripts.refund(self.parts);
        (keys > 0).then(|| context.command(script, text, keys, |cmd| self.write(cmd, context, now)))
    }

    fn answer(self, answer: Result<Value, Error>, _: &dyn Fn(Timestamp)) {
        let mut held = self.held(&answer).into_iter();
        for request in self.requests {
            let renewals: Vec<bool> = held.by_ref().take(request.entries.len()).flatten().collect();
            let is_garbled =
                renewals.len() < request.entries.iter().filter(|entry| entry.is_renewal()).count();
            request.caller.notify(match &answer {
                Ok(_) if is_garbled => Err(Cause::Garbled.into()),
                Ok(_) => Ok(renewals),
                Err(error) => Err(error.clone()),
            });
        }
    }

    fn split(self) -> Vec<RefundBatch> {
        let alone = |request: RefundRequest| {
            let mut load = RefundBatch::default();
            load.push(request.entries, request.caller);
            load
        };
        self.requests.into_iter().map(alone).collect()
    }
}

impl RefundBatch {
    pub(super) fn push(&mut self, entries: Vec<RefundEntry>, caller: Caller<Vec<bool>>) {
        self.first_end = sooner(self.first_end, caller.until());
        for entry in &entries {
            self.work = self.work.saturating_add(entry.work());
            if let Some(args) = entry.args() {
                self.parts.add(args.part);
            }
            if entry.tracked().is_some() {
                self.parts.add_tracking();
            }
        }
        self.requests.push(RefundRequest { entries, caller });
    }

    fn entries(&self) -> impl Iterator<Item = &RefundEntry> {
        self.requests.iter().flat_map(|request| &request.entries)
    }

    /// The entries by their policies, and no key twice in a group: the script reads all keys of a
    /// group before it writes any.
    fn groups(&self) -> Vec<RefundGroup<'_>> {
        let mut groups: Vec<RefundGroup<'_>> = Vec::new();
        for (at, entry) in self.entries().enumerate() {
            // The last group of the policy, so that refunds of a key stay in order.
            let last = groups.iter_mut().rfind(|group| group.is_alike(entry));
            if let Some(group) = last.filter(|group| group.has_room_for(entry)) {
                group.names.insert(entry.name());
                group.entries.push((at, entry));
            } else {
                groups.push(RefundGroup {
                    entries: vec![(at, entry)],
                    names: HashSet::from([&**entry.name()]),
                });
            }
        }
        groups
    }

    /// For each entry, whether its slot is held. `None` if it is no renewal.
    fn held(&self, answer: &Result<Value, Error>) -> Vec<Option<bool>> {
        let mut held = vec![None; self.entries().count()];
        let Ok(Value::BulkString(bytes)) = answer else { return held };
        let mut numbers = numbers::read(bytes);
        for (at, entry) in self.groups().iter().flat_map(|group| &group.entries) {
            if entry.is_renewal() {
                held[*at] = numbers.next().map(|number| number > 0);
            }
        }
        held
    }

    /// The keys and arguments of refund.lua and of untrack.lua.
    fn write(&self, cmd: &mut Cmd, context: &CallContext, now: Timestamp) {
        let groups = self.groups();
        let entries = || groups.iter().flat_map(|group| &group.entries).map(|(_, entry)| *entry);
        let tracked = || entries().filter_map(RefundEntry::tracked);
        for entry in entries() {
            cmd.arg(&**entry.name());
        }
        for (_, name) in tracked() {
            cmd.arg(&**name);
        }
        if let Some(clock) = &context.clock {
            cmd.arg(clock.now().as_micros());
        }
        let mut numbers = Doubles::new();
        for group in &groups {
            match group.entries.first().and_then(|(_, entry)| entry.args()) {
                Some(args) => args.write_refunds(&mut numbers, now),
                None => ScriptArgs::write_resets(&mut numbers),
            }
            numbers.push(group.entries.len() as u64);
            group.entries.iter().for_each(|(_, entry)| entry.write(&mut numbers));
        }
        cmd.arg(numbers.as_bytes());
        if self.parts.have_tracking() {
            let mut numbers = Doubles::new();
            tracked().for_each(|(units, _)| numbers.push(units));
            cmd.arg(numbers.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Key, Quota};

    use super::super::tests::context_without_server;
    use super::*;
    use crate::wire::layout::SlidingLogLayout;

    #[test]
    fn only_renewals_that_claim_are_not_sent_once_their_caller_has_left() {
        let names = KeyNames::new("t", None, SlidingLogLayout::List);
        let (slots, bucket) = (Policy::in_flight("slots", 5), Policy::new("bucket", Quota::per_day(5)));
        let (key, stamp) = (names.bounded(&Key::from("ada")), Stamp::new(1, 1));
        let mut batch = RefundBatch::default();
        let mut push = |entry| {
            let (caller, answer) = Caller::new(None);
            batch.push(vec![entry], caller);
            answer
        };
        let renewal = || RefundEntry::renewal(&names, &key, &slots, stamp);
        let kept = push(renewal().claiming());
        drop(push(renewal().claiming()));
        drop(push(renewal()));
        for policy in [&slots, &bucket] {
            let args = ScriptArgs::new(policy, 1, names.log);
            drop(push(RefundEntry::refund(&names, &key, args, stamp)));
        }
        assert_eq!((batch.len(), batch.work()), (5, 3 * 10 + 4 + 6));
        batch.drop_abandoned();
        assert_eq!((batch.len(), batch.work()), (4, 2 * 10 + 4 + 6));
        drop(kept);
    }

    #[tokio::test]
    async fn without_requests_there_is_no_call() {
        let context = context_without_server();
        let slots = Policy::in_flight("slots", 5);
        let key = context.names.bounded(&Key::from("ada"));
        let renewal = RefundEntry::renewal(&context.names, &key, &slots, Stamp::new(1, 1));
        let (caller, answer) = Caller::new(None);
        let mut batch = RefundBatch::default();
        batch.push(vec![renewal.claiming()], caller);
        let command = |batch: &RefundBatch| batch.command(&context, Text::Hash, Timestamp::EPOCH);
        assert!(command(&batch).is_some());
        drop(answer);
        batch.drop_abandoned();
        assert!(command(&batch).is_none());
    }
}
