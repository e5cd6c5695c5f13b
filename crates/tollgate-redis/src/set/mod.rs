//! Sets of checks: each pair of policy and key once, and sets over several hash slots of a Cluster.

pub(crate) mod several_hash_slots;

use smallvec::SmallVec;
use tollgate_core::{Check, Verdict};

use crate::commit::{Pair, SetKeys};
use crate::wire::names::KeyNames;

/// Each pair of policy and key once, with the sum of its costs and its key; and which of them each
/// check of a set is.
pub(crate) fn pairs<'a>(
    set: &[Check<'a>],
    names: &KeyNames,
) -> (SmallVec<[Pair<'a>; 4]>, SetKeys, SmallVec<[usize; 4]>) {
    let (mut pairs, mut keys, mut order) = (SmallVec::new(), SetKeys::new(), SmallVec::<[usize; 4]>::new());
    for (i, check) in set.iter().enumerate() {
        let before = &set[..i];
        let is_same = |other: &Check<'_>| {
            other.policy.numbers().scope_hash() == check.policy.numbers().scope_hash()
                && other.key == check.key
                && other.policy.scope() == check.policy.scope()
        };
        if let Some(same) = before.iter().position(is_same) {
            let pair: &mut Pair<'_> = &mut pairs[order[same]];
            pair.cost = pair.cost.saturating_add(check.cost);
            order.push(order[same]);
            continue;
        }
        // Rules often share a key. A long one is hashed once.
        let same = before.iter().position(|other| other.key == check.key);
        keys.push(same.map_or_else(|| names.bounded(check.key), |same| keys[order[same]].clone()));
        order.push(pairs.len());
        pairs.push(Pair { policy: check.policy, cost: check.cost });
    }
    (pairs, keys, order)
}

/// A verdict over pairs, as one over the checks that name them.
pub(crate) fn in_order(verdict: &Verdict, order: &[usize]) -> Verdict {
    let each = verdict.each();
    let in_order = order.iter().filter_map(|at| each.get(*at).copied());
    Verdict::new(verdict.times(), verdict.delay(), in_order).as_decided_by(verdict)
}
