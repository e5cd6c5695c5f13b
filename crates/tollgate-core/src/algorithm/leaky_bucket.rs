//! The leaky bucket as a queue (Turner 1986; the "meter" variant is GCRA). A request that comes too
//! early is delayed until the next free slot, or denied if that exceeds the longest wait.
//!
//! State and arithmetic are GCRA's. Only the horizon differs: the burst plus the longest wait. A
//! queue has one TAT for all versions of a policy, since its delays are real.

use super::gcra::{self, Tat};
use crate::exact::Exact;
use crate::policy::Policy;
use crate::store::verdict::Stamp;

/// The units that can be granted now, including those that would be delayed.
pub(super) fn room(policy: &Policy, now: u64, tat: Exact) -> u64 {
    let left =
        policy.numbers().interval.saturating_sub(policy.numbers().horizon, gcra::ahead(policy, now, tat));
    policy.numbers().interval.whole_units_in(left).min(policy.largest_cost())
}

/// How long to delay the request that was just charged.
pub(super) fn delay(policy: &Policy, now: u64, tat: Exact) -> u64 {
    policy.numbers().interval.saturating_sub(gcra::ahead(policy, now, tat), policy.numbers().tolerance).ceil()
}

/// Only the latest reservation can be refunded: later ones already have their delay.
pub(super) fn refund(tat: &mut Tat, policy: &Policy, now: u64, units: u64, stamp: Stamp) {
    if tat.is(policy, now, stamp) && gcra::ahead(policy, now, tat.at(policy)) > Exact::default() {
        tat.refund(policy, now, units, stamp);
    }
}
