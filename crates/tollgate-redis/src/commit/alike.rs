//! Sets that share their arguments in a call, and their verdicts.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::algorithm::State;
use tollgate_core::{Quota, Status, Times, Timestamp, Verdict};

use super::acquire_request::SetKeys;
use super::caller::{Answered, Caller, Undo};
use super::claims::Claims;
use super::context::CallContext;
use super::refund_batch::RefundEntry;
use crate::wire::args::ScriptArgs;
use crate::wire::names::BoundedKey;

/// Sets that are alike but for their keys, so that their arguments are sent once.
pub(super) struct Alike {
    pub(super) args: SmallVec<[ScriptArgs; 1]>,
    pub(super) times: Times,
    pub(super) sets: Vec<Set>,
}

/// Callers that ask for the same, in the order of their arrival. They are merged into one partial
/// grant.
pub(super) struct Set {
    pub(super) keys: SetKeys,
    pub(super) callers: SmallVec<[Caller<Answered>; 1]>,
}

impl Alike {
    /// The arguments that record usage, and their places in each set.
    pub(super) fn tracked(&self) -> impl Iterator<Item = (usize, &ScriptArgs)> {
        self.args.iter().enumerate().filter(|(_, args)| args.tracks_usage())
    }

    /// How long the slots that it claims would be held.
    pub(super) fn ttls(&self) -> impl Iterator<Item = Duration> {
        self.args.iter().filter_map(|args| args.policy.ttl())
    }

    pub(super) fn work_of_set(&self) -> u32 {
        self.args.iter().map(ScriptArgs::work).fold(0, u32::saturating_add)
    }

    pub(super) fn work(&self) -> u32 {
        let sets = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        self.work_of_set().saturating_mul(sets)
    }

    /// How often a set with this number of callers is acquired at most. Only callers of
    /// [`Times::ONCE`] are merged: n of them are a set with a minimum of 1 and a maximum of n.
    pub(super) fn max_of(&self, callers: usize) -> u32 {
        match callers {
            1 => self.times.max().min(self.most_times()),
            many => u32::try_from(many).unwrap_or(u32::MAX),
        }
    }

    /// Whether gcra_whole.lua may decide.
    pub(super) fn is_whole(&self) -> bool {
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
    pub(super) fn read(
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
    pub(super) fn hand_out(
        &self,
        now: Timestamp,
        granted: u32,
        states: &mut [State],
        set: &mut Set,
        claims: Option<&Arc<Claims>>,
    ) {
        let is_alone = set.callers.len() == 1;
        for (turn, caller) in set.callers.iter_mut().enumerate() {
            let times = if is_alone { granted } else { u32::from(turn < granted as usize) };
            let verdict = self.verdict(now, times, states);
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
pub(super) mod tests {
    use tollgate_core::{Key, Policy, SentClaims};

    use super::super::tests::context_without_server;
    use super::*;
    use crate::error::Cause;
    use crate::wire::layout::SlidingLogLayout;

    pub(in super::super) fn alike(policy: &Policy, times: Times) -> Alike {
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
            let mut states = [State::new(&policy)];
            let now = Timestamp::from_micros(1);
            alike(&policy, Times::ONCE).hand_out(now, granted, &mut states, &mut set, Some(&claims));
            assert_eq!(claims.counts.unanswered(), refunds, "{is_claim} {granted}");
        }
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
