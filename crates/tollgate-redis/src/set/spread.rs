//! Sets whose keys live in several slots of a Cluster.
//!
//! No node can decide such a set in one step. All slots are looked at first, at the same time: a
//! set that one of them refuses is denied there and reserves nothing, so that a caller that is
//! always refused holds no quota of others. Then all slots are charged at the same time. If one
//! refuses now, what the others granted is given back. Meanwhile other callers may be refused units
//! that come back a moment later; never is too much granted.
//!
//! What cannot be given back stays charged: a node may fail in between, and a place in a leaky
//! bucket's queue comes back only while no later place is taken.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Stamp, Status, Times, Verdict, Wait};

use crate::commit::{Answer, Ask, Commit, Pair, Return, SetKeys};
use crate::error::Cause;
use crate::error::Error;
use crate::wire::layout::SlidingLogLayout;
use crate::wire::terms::Terms;

/// The pairs of one slot.
pub(crate) struct Leg {
    slot: u16,
    terms: Vec<Terms>,
    keys: SetKeys,
    /// Which pairs of the set these are.
    at: Vec<usize>,
}

pub(crate) fn legs(pairs: &[Pair<'_>], keys: &SetKeys, slots: &[u16], log: SlidingLogLayout) -> Vec<Leg> {
    let mut legs: Vec<Leg> = Vec::new();
    for (at, (pair, slot)) in pairs.iter().zip(slots).enumerate() {
        let leg = legs.iter().position(|leg| leg.slot == *slot).unwrap_or_else(|| {
            legs.push(Leg { slot: *slot, terms: Vec::new(), keys: SetKeys::new(), at: Vec::new() });
            legs.len() - 1
        });
        legs[leg].terms.push(Terms::new(pair.policy, pair.cost, log));
        legs[leg].keys.push(keys[at].clone());
        legs[leg].at.push(at);
    }
    legs
}

/// Acquires the set of these legs. The verdict has a status for each pair.
pub(crate) async fn acquire(commit: &Commit, legs: &[Leg], times: Times) -> Result<Verdict, Error> {
    let looks = look(commit, legs, times).await;
    let is_refused = |look: &Result<Verdict, Error>| {
        look.as_ref().is_ok_and(|look| look.each().iter().any(|status| status.wait() != Wait::None))
    };
    if looks.iter().any(is_refused) {
        return Ok(verdict(legs, 0, known(legs, looks)));
    }
    let looks: Vec<Verdict> = looks.into_iter().collect::<Result<_, _>>()?;
    if times.max() == 0 {
        return Ok(verdict(legs, 0, looks));
    }
    let mut verdicts = all(legs.iter().map(|leg| leg.ask(commit, times, 1)).collect()).await;
    let granted =
        verdicts.iter().map(|verdict| verdict.as_ref().map_or(0, Verdict::times)).min().unwrap_or(0);
    let granted = if granted < times.min() { 0 } else { granted };
    return_surplus(commit, legs, &mut verdicts, granted).await;
    if granted > 0 {
        return Ok(verdict(legs, granted, verdicts.into_iter().collect::<Result<_, _>>()?));
    }
    let is_refusal =
        |answer: &Result<Verdict, Error>| answer.as_ref().is_ok_and(|verdict| !verdict.is_granted());
    let failure = verdicts.iter().find_map(|answer| answer.as_ref().err());
    if let Some(failure) = failure.filter(|_| !verdicts.iter().any(is_refusal)) {
        return Err(failure.clone().of_part());
    }
    // Another caller took the units since the look. It may have given them back by now, so a second
    // look alone could show no reason for the denial.
    let looks = look(commit, legs, times).await;
    let denied =
        verdicts.into_iter().zip(looks).map(|(answer, look)| if is_refusal(&answer) { answer } else { look });
    Ok(verdict(legs, 0, known(legs, denied.collect())))
}

/// Gives back entries of several slots. Reports the first failure, after all have been tried.
pub(crate) async fn give_back(commit: &Commit, of_slot: Vec<(u16, Vec<Return>)>) -> Result<Verdict, Error> {
    let given = of_slot.into_iter().map(|(slot, entries)| commit.give_back(slot, entries, None)).collect();
    let given: Result<Vec<Verdict>, Error> = all(given).await.into_iter().collect();
    given.map(|_| Verdict::without_statuses(0)).map_err(Error::of_part)
}

/// Looks at all legs, for a caller that would acquire the set as often as the least that is asked
/// for.
async fn look(commit: &Commit, legs: &[Leg], times: Times) -> Vec<Result<Verdict, Error>> {
    all(legs.iter().map(|leg| leg.ask(commit, Times::LOOK, times.min().max(1))).collect()).await
}

/// Waits for all answers. All were asked before the first is awaited.
async fn all(asked: Vec<Result<Answer, Error>>) -> Vec<Result<Verdict, Error>> {
    let mut verdicts = Vec::with_capacity(asked.len());
    for answer in asked {
        verdicts.push(match answer {
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(Cause::Stopped.into())),
            Err(error) => Err(error),
        });
    }
    verdicts
}

/// Gives back what was granted more often than `keep` times.
async fn return_surplus(commit: &Commit, legs: &[Leg], verdicts: &mut [Result<Verdict, Error>], keep: u32) {
    let mut of_slot = Vec::new();
    for (leg, answer) in legs.iter().zip(verdicts) {
        let Ok(verdict) = answer else { continue };
        let surplus = verdict.times().saturating_sub(keep);
        let pairs = leg.terms.iter().zip(verdict.each()).zip(&leg.keys);
        let entries: Vec<Return> = pairs
            .filter(|((terms, _), _)| surplus > 0 && terms.cost > 0)
            .map(|((terms, status), key)| {
                let cost = terms.cost.saturating_mul(u64::from(surplus));
                let terms = Terms { cost, ..terms.clone() };
                Return::refund(&commit.target.names, key, terms, status.stamp())
            })
            .collect();
        if !entries.is_empty() {
            of_slot.push((leg.slot, entries));
        }
        if keep > 0 && surplus > 0 {
            *answer = Ok(leg.kept(verdict, keep, surplus));
        }
    }
    // What fails here stays charged, which errs on the side of the limit.
    let _ = give_back(commit, of_slot).await;
}

/// The verdicts of a denied set. A leg that could not be asked reports nothing left and no wait.
fn known(legs: &[Leg], looks: Vec<Result<Verdict, Error>>) -> Vec<Verdict> {
    let unknown = Status::new(0, Wait::None, Duration::ZERO, Stamp::default());
    let of_leg = |(leg, look): (&Leg, Result<Verdict, Error>)| {
        look.unwrap_or_else(|_| Verdict::new(0, Duration::ZERO, leg.terms.iter().map(|_| unknown)))
    };
    legs.iter().zip(looks).map(of_leg).collect()
}

/// The verdict over all legs, with the statuses in the order of the pairs.
fn verdict(legs: &[Leg], granted: u32, verdicts: Vec<Verdict>) -> Verdict {
    let mut each: SmallVec<[Option<Status>; 4]> = SmallVec::new();
    let mut delay = Duration::ZERO;
    for (leg, verdict) in legs.iter().zip(&verdicts) {
        delay = delay.max(verdict.delay());
        for (at, status) in leg.at.iter().zip(verdict.each()) {
            if each.len() <= *at {
                each.resize(at + 1, None);
            }
            each[*at] = Some(*status);
        }
    }
    Verdict::new(granted, delay, each.into_iter().flatten())
}

impl Leg {
    /// A verdict of which only `keep` times are kept. Its stamps still refund those. Delay and
    /// reset stay those of the whole, and so does what a queue has left: the surplus was behind the
    /// kept places.
    fn kept(&self, verdict: &Verdict, keep: u32, surplus: u32) -> Verdict {
        let each = self.terms.iter().zip(verdict.each()).map(|(terms, status)| {
            let units = u32::try_from(terms.cost.saturating_mul(u64::from(surplus))).unwrap_or(u32::MAX);
            let stamp = status.stamp().after_refund(&terms.policy, units);
            let left = match terms.policy.algorithm() {
                Algorithm::LeakyBucket { .. } => status.remaining(),
                _ => status.remaining().saturating_add(units),
            };
            Status::new(left, status.wait(), status.reset_after(), stamp)
        });
        Verdict::new(keep, verdict.delay(), each)
    }

    /// Asks for the pairs of this leg, each at `costs` times its cost.
    fn ask(&self, commit: &Commit, times: Times, costs: u32) -> Result<Answer, Error> {
        let cost = |terms: &Terms| terms.cost.saturating_mul(costs.into());
        let pairs =
            self.terms.iter().map(|terms| Pair { policy: &terms.policy, cost: cost(terms) }).collect();
        commit.acquire(self.slot, Ask { pairs, keys: self.keys.clone(), times }, None)
    }
}
