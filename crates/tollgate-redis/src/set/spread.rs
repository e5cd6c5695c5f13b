//! Sets whose keys live in several slots of a Cluster.
//!
//! No node can decide them, so that they cannot be one atomic step: each slot is asked in its turn, and what was granted is
//! given back if a later one refuses. Meanwhile others may be refused what comes back a moment later, never granted too much.
//! What cannot be given back stays charged: a node may fail in between, and a place in a leaky bucket's queue comes back only as
//! long as nobody stands behind it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Key, Policy, Stamp, Status, Times, Verdict, Wait};

use crate::batch::{Ask, SetKeys};
use crate::store::{Inner, Order, Pair, in_order};
use crate::wire::terms::Terms;
use crate::{Error, SlidingLogLayout};

/// The pairs of one slot.
pub(crate) struct Leg {
    slot: u16,
    terms: Vec<Terms>,
    keys: SetKeys,
    /// Which pairs of the set these are.
    at: Vec<usize>,
}

pub(crate) fn legs(pairs: &[Pair<'_>], slots: &[u16], log: SlidingLogLayout) -> Vec<Leg> {
    let mut legs: Vec<Leg> = Vec::new();
    for (at, (pair, slot)) in pairs.iter().zip(slots).enumerate() {
        let leg = legs.iter().position(|leg| leg.slot == *slot).unwrap_or_else(|| {
            legs.push(Leg { slot: *slot, terms: Vec::new(), keys: SetKeys::new(), at: Vec::new() });
            legs.len() - 1
        });
        legs[leg].terms.push(Terms::new(pair.policy, pair.cost, log));
        legs[leg].keys.push(pair.key.clone());
        legs[leg].at.push(at);
    }
    legs
}

pub(crate) async fn acquire(
    inner: Arc<Inner>,
    legs: Vec<Leg>,
    order: Order,
    times: Times,
) -> Result<Verdict, Error> {
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(legs.len());
    let mut granted = times.max();
    let mut refused = false;
    for leg in &legs {
        // After a denial the others are only looked at, so that all are reported.
        let answer = if refused {
            leg.look(&inner, times).await
        } else {
            leg.ask(&inner, Times::between(times.min().min(granted), granted), 1).await
        };
        let verdict = match answer {
            Ok(verdict) => verdict,
            // What is refused stays so, whoever cannot be asked for the report.
            Err(_) if refused => leg.unknown(),
            Err(error) => {
                give_back(&inner, &legs, &mut verdicts, 0).await;
                return Err(error);
            }
        };
        if !refused {
            granted = granted.min(verdict.times());
            refused = granted < times.min() || (granted == 0 && times.max() > 0);
        }
        verdicts.push(verdict);
    }
    let granted = if refused { 0 } else { granted };
    give_back(&inner, &legs, &mut verdicts, granted).await;
    if refused {
        // What came back changes what is left: it is looked at once more.
        for (leg, verdict) in legs.iter().zip(&mut verdicts).filter(|(_, verdict)| verdict.is_granted()) {
            *verdict = leg.look(&inner, times).await.unwrap_or_else(|_| leg.unknown());
        }
    }
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
    let verdict = Verdict::new(granted, delay, each.into_iter().flatten());
    Ok(in_order(verdict, &order))
}

/// Gives back what was granted more often than `keep` times.
async fn give_back(inner: &Inner, legs: &[Leg], verdicts: &mut [Verdict], keep: u32) {
    for (leg, verdict) in legs.iter().zip(verdicts) {
        let Some(too_many) = verdict.times().checked_sub(keep).filter(|too_many| *too_many > 0) else {
            continue;
        };
        let refund = leg.terms.iter().zip(verdict.each()).zip(&leg.keys).map(|((terms, status), key)| {
            let cost = terms.cost.saturating_mul(u64::from(too_many));
            (key.clone(), Terms { cost, ..terms.clone() }, status.stamp())
        });
        let refund: Vec<(Key, Terms, Stamp)> = refund.filter(|(_, terms, _)| terms.cost > 0).collect();
        if !refund.is_empty() {
            // What fails here stays charged, which errs to the side of the limit.
            let _ = inner.refund(leg.slot, refund).await;
        }
        if keep > 0 {
            *verdict = leg.kept(verdict, keep, too_many);
        }
    }
}

impl Leg {
    /// What is told of policies that could not be asked, beside others that refuse.
    fn unknown(&self) -> Verdict {
        let status = Status::new(0, Wait::None, Duration::ZERO, Stamp::default());
        Verdict::new(0, Duration::ZERO, self.terms.iter().map(|_| status))
    }

    /// A verdict of which only so much is kept: by its stamps that can be given back once more, and not the rest. Its delay and
    /// its reset stay those of the whole, which is on the safe side; and so does what a queue has left, since what comes back to it
    /// were places further behind.
    fn kept(&self, verdict: &Verdict, keep: u32, too_many: u32) -> Verdict {
        let each = self.terms.iter().zip(verdict.each()).map(|(terms, status)| {
            let units = u32::try_from(terms.cost.saturating_mul(u64::from(too_many))).unwrap_or(u32::MAX);
            let stamp = status.stamp().after_refund(&terms.policy, units);
            let left = match terms.policy.algorithm() {
                Algorithm::LeakyBucket { .. } => status.remaining(),
                _ => status.remaining().saturating_add(units),
            };
            Status::new(left, status.wait(), status.reset_after(), stamp)
        });
        Verdict::new(keep, verdict.delay(), each)
    }

    /// How things stand, for who would have acquired it so often: the wait is that of the least that was asked for.
    async fn look(&self, inner: &Inner, times: Times) -> Result<Verdict, Error> {
        self.ask(inner, Times::LOOK, times.min().max(1)).await
    }

    /// Each check at so many times its cost.
    async fn ask(&self, inner: &Inner, times: Times, costs: u32) -> Result<Verdict, Error> {
        let pairs = self.terms.iter().zip(&self.keys);
        let checks: SmallVec<[(&Policy, &Key, u64); 4]> =
            pairs.map(|(terms, key)| (&terms.policy, key, terms.cost.saturating_mul(costs.into()))).collect();
        let ask = Ask { checks, times };
        let answer = inner.commit.ask(self.slot, ask, None)?;
        answer.await.map(Verdict::from)
    }
}
