//! The leaky bucket as a queue (Turner 1986; the "meter" is GCRA): a request that comes too early reserves the next
//! slot and is delayed until then, if that is within the longest wait.
//!
//! The state is GCRA's, and so is the arithmetic. Only the horizon differs: TAT may lie as far ahead as the burst and
//! the longest wait together.

use super::Look;
use super::gcra::{self, Tat};
use crate::exact::Exact;
use crate::{Policy, Stamp};

pub(super) fn look(tat: &mut Tat, policy: &Policy, now: u64) -> Look {
    tat.clamp(policy, now);
    let left = policy.interval.saturating_sub(policy.horizon, tat.ahead(policy, now));
    Look { remaining: gcra::remaining(tat, policy, now), room: policy.interval.whole_units_in(left) }
}

/// How long the request that was just charged has to be held back.
pub(super) fn delay(tat: &Tat, policy: &Policy, now: u64) -> u64 {
    policy.interval.saturating_sub(tat.ahead(policy, now), policy.tolerance).ceil()
}

/// Only the latest reservation can come back: those behind it have been told their delay already.
pub(super) fn refund(tat: &mut Tat, policy: &Policy, now: u64, units: u32, stamp: Stamp) {
    if tat.is(stamp) && tat.ahead(policy, now) > Exact::default() {
        gcra::refund(tat, policy, now, units, stamp);
    }
}
