//! Whether two layers count a request for the same.

use http::Extensions;
use tollgate_core::{Key, LogCode, Policy};

use crate::errors::FirstOnes;
use crate::plan::{Ask, Plan};

/// What layers have charged a request, in its extensions.
#[derive(Clone)]
struct ChargedSoFar(Vec<(Policy, Key)>);

/// Notes what one of the first requests was charged, and logs once if a layer outside of this one
/// had counted it for the same.
#[inline]
pub(super) fn note(plan: &Plan, asks: &[Ask], extensions: &mut Extensions) {
    static FIRST: FirstOnes = FirstOnes::new(1_000);
    if FIRST.is_one() {
        compare(plan, asks, extensions);
    }
}

#[cold]
fn compare(plan: &Plan, asks: &[Ask], extensions: &mut Extensions) {
    let ChargedSoFar(charged) = extensions.get_or_insert_with(|| ChargedSoFar(Vec::new()));
    let outer = charged.len();
    for ask in asks.iter().filter(|ask| ask.cost > 0) {
        let policy = plan.policy(&ask.policy);
        let is_same = |(other, key): &(Policy, Key)| other.scope() == policy.scope() && *key == ask.key;
        if charged[..outer].iter().any(is_same) && LogCode::ChargedTwice.is_first() {
            tracing::warn!(
                code = %LogCode::ChargedTwice,
                "two layers counted one request for policy {:?} and one key: both have it, or one was added twice",
                policy.name()
            );
        }
        charged.push((policy.clone(), ask.key.clone()));
    }
}
