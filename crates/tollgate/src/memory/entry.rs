//! The steps of a decision for one key, after a look at its state.
//!
//! `at` is the time of the policy when the clock of the table shows `now`: see
//! [`Shards::time_for`](super::shards::Shards::time_for).

use tollgate_core::algorithm::{Charged, Look, State};
use tollgate_core::{Policy, Stamp, Status, Times, Timestamp, Wait};

use crate::table::TableEntry;

/// How often a cost can be granted, at most `most` times.
#[inline]
pub(super) fn grants(policy: &Policy, look: Look, cost: u64, most: u32) -> u32 {
    match most {
        // Avoids the division.
        1 => u32::from(cost <= look.room && cost <= policy.largest_cost()),
        most => look.times(policy, cost).min(most),
    }
}

impl TableEntry<State> {
    #[inline]
    pub(super) fn refuse(
        &mut self,
        policy: &Policy,
        now: Timestamp,
        at: Timestamp,
        look: Look,
        cost: u64,
        times: Times,
    ) -> Status {
        let status = self.value.refuse(policy, at, look, cost, times);
        // A denied key stays until its reset: otherwise its caller could regain quota by inventing
        // keys. But requests that can never pass cost an attacker nothing.
        if times.max() > 0 && matches!(status.wait(), Wait::For(_)) {
            self.pin();
        }
        if self.value.is_record() {
            // The entry of a version may end later than others.
            self.renew(expiry(now, at, self.value.expires(policy, at)), false);
        }
        status
    }

    #[inline]
    pub(super) fn charge(
        &mut self,
        policy: &Policy,
        now: Timestamp,
        at: Timestamp,
        look: Look,
        units: u64,
    ) -> Charged {
        let charge = self.value.charge(policy, at, look, units);
        // Once the quota was full again, earlier denials no longer count.
        let was_full = look.remaining == policy.capacity() && !self.value.is_record();
        self.renew(expiry(now, at, charge.expires), was_full);
        if is_owed(policy, &charge.status) {
            self.pin();
        }
        charge
    }

    /// Returns whether the state equals that of an unused key now.
    pub(super) fn refund(
        &mut self,
        policy: &Policy,
        now: Timestamp,
        at: Timestamp,
        units: u64,
        stamp: Stamp,
    ) -> bool {
        self.value.refund(policy, at, units, stamp);
        let expires = self.value.expires(policy, at);
        self.renew(expiry(now, at, expires), false);
        expires == at
    }
}

/// Whether a charge has made a block or debt, from which its caller could escape by inventing keys.
#[inline]
fn is_owed(policy: &Policy, charged: &Status) -> bool {
    policy.numbers().most_debt() > 0
        && (policy.numbers().is_block() || charged.remaining() < policy.numbers().most_debt())
}

/// When a table may forget a state that expires at `expires` by the time of its policy.
#[inline]
fn expiry(now: Timestamp, at: Timestamp, expires: Timestamp) -> Timestamp {
    if at == now { expires } else { now.saturating_add(expires.saturating_since(at)) }
}
