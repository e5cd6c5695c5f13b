//! Sets of checks: each pair of policy and key once, and sets over several slots of a Cluster.

pub(crate) mod spread;

use smallvec::SmallVec;
use tollgate_core::{Check, Verdict};

use crate::commit::Pair;

/// Which pair each check of a set is.
pub(crate) type Order = SmallVec<[usize; 4]>;

/// Each pair once, with the sum of its costs.
pub(crate) fn pairs<'a>(set: &[Check<'a>]) -> (SmallVec<[Pair<'a>; 4]>, Order) {
    let mut pairs: SmallVec<[Pair<'a>; 4]> = SmallVec::new();
    let order = set
        .iter()
        .map(|check| {
            let is_same = |pair: &Pair<'_>| {
                pair.policy.scope_hash() == check.policy.scope_hash()
                    && pair.key == check.key
                    && pair.policy.scope() == check.policy.scope()
            };
            let at = pairs.iter().position(is_same).unwrap_or_else(|| {
                pairs.push(Pair { policy: check.policy, key: check.key, cost: 0 });
                pairs.len() - 1
            });
            pairs[at].cost += u64::from(check.cost);
            at
        })
        .collect();
    (pairs, order)
}

/// A verdict over pairs, as one over the checks that name them.
pub(crate) fn in_order(verdict: &Verdict, order: &[usize]) -> Verdict {
    let each = verdict.each();
    Verdict::new(verdict.times(), verdict.delay(), order.iter().filter_map(|at| each.get(*at).copied()))
}
