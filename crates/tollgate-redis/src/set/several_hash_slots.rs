//! Sets whose keys live in several hash slots of a Cluster.
//!
//! No node can decide such a set in one step. All hash slots are looked at first, at the same time:
//! a set that one of them refuses is denied there and reserves nothing, so that a caller that is
//! always refused holds no quota of others. Then all hash slots are charged at the same time. If
//! one refuses now, what the others granted is given back. Meanwhile other callers may be refused
//! units that come back a moment later; never is too much granted.
//!
//! What cannot be given back stays charged: a node may fail in between, and a place in a leaky
//! bucket's queue comes back only while no later place is taken.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Stamp, Status, Times, Verdict, Wait};

use crate::commit::{
    AcquireRequest, AnswerReceiver, Answered, Commit, Deadline, Pair, Returns, SetKeys, Undo,
    VerdictReceiver, refunds,
};
use crate::error::Cause;
use crate::error::Error;
use crate::wire::args::ScriptArgs;
use crate::wire::layout::SlidingLogLayout;

/// The pairs of one hash slot.
pub(crate) struct HashSlotPart {
    hash_slot: u16,
    args: Vec<ScriptArgs>,
    keys: SetKeys,
    /// Which pairs of the set these are.
    at: Vec<usize>,
    /// Whether a part of the set claims a slot.
    is_claim: bool,
}

pub(crate) fn parts(
    pairs: &[Pair<'_>],
    keys: &SetKeys,
    hash_slots: &[u16],
    log: SlidingLogLayout,
    is_claim: bool,
) -> Vec<HashSlotPart> {
    let mut parts: Vec<HashSlotPart> = Vec::new();
    for (at, (pair, hash_slot)) in pairs.iter().zip(hash_slots).enumerate() {
        let part = parts.iter().position(|part| part.hash_slot == *hash_slot).unwrap_or_else(|| {
            let (args, keys, at) = Default::default();
            parts.push(HashSlotPart { hash_slot: *hash_slot, args, keys, at, is_claim });
            parts.len() - 1
        });
        parts[part].args.push(ScriptArgs::new(pair.policy, pair.cost, log));
        parts[part].keys.push(keys[at].clone());
        parts[part].at.push(at);
    }
    parts
}

/// The hash slots of these parts.
pub(crate) fn hash_slots(parts: &[HashSlotPart]) -> Vec<u16> {
    parts.iter().map(|part| part.hash_slot).collect()
}

/// Looks at the set of these parts until a deadline. Returns the answer, unless all have room and
/// are to be charged. The verdict has a status for each pair.
pub(crate) async fn looked(
    commit: &Commit,
    parts: &[HashSlotPart],
    times: Times,
    deadline: Option<Deadline>,
) -> Option<Result<Answered, Error>> {
    let looks = look(commit, parts, times, deadline).await;
    let is_refused = |look: &Result<Verdict, Error>| {
        look.as_ref().is_ok_and(|look| look.each().iter().any(|status| status.wait() != Wait::None))
    };
    if looks.iter().any(is_refused) {
        return Some(Ok(verdict(parts, 0, known(parts, looks)).into()));
    }
    match looks.into_iter().collect::<Result<Vec<Verdict>, _>>() {
        Ok(looks) if times.max() == 0 => Some(Ok(verdict(parts, 0, looks).into())),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Acquires the set of these parts, all of which had room. The verdict has a status for each pair.
pub(crate) async fn charge(commit: &Commit, parts: &[HashSlotPart], times: Times) -> Result<Answered, Error> {
    let mut verdicts = ask_all(commit, parts, times, 1, None).await;
    let granted =
        verdicts.iter().map(|verdict| verdict.as_ref().map_or(0, Verdict::times)).min().unwrap_or(0);
    let granted = if granted < times.min() { 0 } else { granted };
    return_surplus(commit, parts, &mut verdicts, granted).await;
    if granted > 0 {
        let verdicts: Vec<Verdict> = verdicts.into_iter().collect::<Result<_, _>>()?;
        let undo = parts.iter().any(|part| part.is_claim).then(|| undo(commit, parts, &verdicts));
        return Ok(Answered::with_undo(verdict(parts, granted, verdicts), undo));
    }
    let is_refusal =
        |answer: &Result<Verdict, Error>| answer.as_ref().is_ok_and(|verdict| !verdict.is_granted());
    let failure = verdicts.iter().find_map(|answer| answer.as_ref().err());
    if let Some(failure) = failure.filter(|_| !verdicts.iter().any(is_refusal)) {
        return Err(failure.clone().of_part());
    }
    // Another caller took the units since the look. It may have given them back by now, so a second
    // look alone could show no reason for the denial.
    let looks = look(commit, parts, times, None).await;
    let denied =
        verdicts.into_iter().zip(looks).map(|(answer, look)| if is_refusal(&answer) { answer } else { look });
    Ok(verdict(parts, 0, known(parts, denied.collect())).into())
}

/// Refunds what a claim was granted.
fn undo(commit: &Commit, parts: &[HashSlotPart], verdicts: &[Verdict]) -> Undo {
    let of_part = |(part, verdict): (&HashSlotPart, &Verdict)| {
        let entries = refunds(&commit.context, &part.args, &part.keys, verdict, verdict.times());
        let hash_slot = part.hash_slot;
        entries.into_iter().map(move |entry| (hash_slot, entry))
    };
    let returns = parts.iter().zip(verdicts).flat_map(of_part).collect();
    let claims = Arc::clone(&commit.claims);
    Box::new(move || claims.give_back(returns))
}

/// Sends all parts, those of one hash slot and one kind one after the other. Parts behind one that
/// failed are not sent. Reports the first failure, after the others have been tried.
pub(crate) async fn give_back(commit: &Commit, returns: Returns) -> Result<(), Error> {
    let mut returns = returns;
    let (mut failure, mut sent) = (None, 0);
    while let Some(next) = returns.send_next(|hash_slot, part| commit.give_back(hash_slot, part, None)) {
        sent += next.len();
        let answers = all(next).await;
        returns.drop_behind(&answers);
        failure = failure.or(answers.into_iter().find_map(Result::err));
    }
    match failure {
        Some(error) if sent > 1 => Err(error.of_part()),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Looks at all parts, for a caller that would acquire the set as often as the least that is asked
/// for.
async fn look(
    commit: &Commit,
    parts: &[HashSlotPart],
    times: Times,
    deadline: Option<Deadline>,
) -> Vec<Result<Verdict, Error>> {
    ask_all(commit, parts, Times::LOOK, times.min().max(1), deadline).await
}

/// Asks for all parts, each of them `costs` times its costs.
async fn ask_all(
    commit: &Commit,
    parts: &[HashSlotPart],
    times: Times,
    costs: u32,
    deadline: Option<Deadline>,
) -> Vec<Result<Verdict, Error>> {
    let answers = all(parts.iter().map(|part| part.ask(commit, times, costs, deadline)).collect()).await;
    answers.into_iter().map(|answer| answer.map(Answered::accept)).collect()
}

/// Waits for all answers. All were asked before the first is awaited.
async fn all<A>(asked: Vec<Result<AnswerReceiver<A>, Error>>) -> Vec<Result<A, Error>> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(match answer {
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(Cause::Stopped.into())),
            Err(error) => Err(error),
        });
    }
    answers
}

/// Gives back what was granted more often than `keep` times.
async fn return_surplus(
    commit: &Commit,
    parts: &[HashSlotPart],
    verdicts: &mut [Result<Verdict, Error>],
    keep: u32,
) {
    let mut returns = Returns::default();
    for (part, answer) in parts.iter().zip(verdicts) {
        let Ok(verdict) = answer else { continue };
        let surplus = verdict.times().saturating_sub(keep);
        let entries = refunds(&commit.context, &part.args, &part.keys, verdict, surplus);
        entries.into_iter().for_each(|entry| returns.add(part.hash_slot, entry));
        if keep > 0 && surplus > 0 {
            *answer = Ok(part.kept(verdict, keep, surplus));
        }
    }
    // What fails here stays charged, which errs on the side of the limit.
    let _ = give_back(commit, returns).await;
}

/// The verdicts of a denied set. A part that could not be asked reports nothing left and no wait.
fn known(parts: &[HashSlotPart], looks: Vec<Result<Verdict, Error>>) -> Vec<Verdict> {
    let unknown = Status::new(0, Wait::None, Duration::ZERO, Stamp::default());
    let of_part = |(part, look): (&HashSlotPart, Result<Verdict, Error>)| {
        look.unwrap_or_else(|_| Verdict::new(0, Duration::ZERO, part.args.iter().map(|_| unknown)))
    };
    parts.iter().zip(looks).map(of_part).collect()
}

/// The verdict over all parts, with the statuses in the order of the pairs.
fn verdict(parts: &[HashSlotPart], granted: u32, verdicts: Vec<Verdict>) -> Verdict {
    let mut each: SmallVec<[Option<Status>; 4]> = SmallVec::new();
    let mut delay = Duration::ZERO;
    for (part, verdict) in parts.iter().zip(&verdicts) {
        delay = delay.max(verdict.delay());
        for (at, status) in part.at.iter().zip(verdict.each()) {
            if each.len() <= *at {
                each.resize(at + 1, None);
            }
            each[*at] = Some(*status);
        }
    }
    let whole = Verdict::new(granted, delay, each.into_iter().flatten());
    match verdicts.iter().max_by_key(|part| part.decided_at()) {
        Some(last) => whole.as_decided_by(last),
        None => whole,
    }
}

impl HashSlotPart {
    /// A verdict of which only `keep` times are kept. Its stamps still refund those. Delay and
    /// reset stay those of the whole, and so does what a queue has left: the surplus was behind the
    /// kept places.
    fn kept(&self, verdict: &Verdict, keep: u32, surplus: u32) -> Verdict {
        let each = self.args.iter().zip(verdict.each()).map(|(args, status)| {
            let units = args.cost.saturating_mul(u64::from(surplus));
            let stamp = status.stamp().after_refund(&args.policy, units);
            let left = match args.policy.algorithm() {
                Algorithm::LeakyBucket { .. } => status.remaining(),
                _ => status.remaining().saturating_add(units),
            };
            Status::new(left, status.wait(), status.reset_after(), stamp)
        });
        Verdict::new(keep, verdict.delay(), each).as_decided_by(verdict)
    }

    /// Asks for the pairs of this part, each at `costs` times its cost.
    fn ask(
        &self,
        commit: &Commit,
        times: Times,
        costs: u32,
        deadline: Option<Deadline>,
    ) -> Result<VerdictReceiver, Error> {
        let cost = |args: &ScriptArgs| args.cost.saturating_mul(costs.into());
        let pairs: SmallVec<[Pair<'_>; 4]> =
            self.args.iter().map(|args| Pair { policy: &args.policy, cost: cost(args) }).collect();
        let is_claim = self.is_claim && times != Times::LOOK;
        commit.acquire(
            self.hash_slot,
            AcquireRequest { pairs: &pairs, keys: self.keys.clone(), times, is_claim },
            deadline,
        )
    }
}
