//! The generic cell rate algorithm (ITU-T I.371, annex A; ATM Forum TM 4.0): a token bucket whose whole state is the
//! *theoretical arrival time* TAT, the time at which the bucket will be full again.
//!
//! A cost of c units conforms if max(TAT, now) + c × T ≤ now + τ, where T is the emission interval and τ the span of
//! a full bucket, burst × T.

use crate::exact::Exact;
use crate::{Policy, Stamp};

/// TAT, in rational microseconds since the epoch; the epoch itself for a key that has used nothing.
///
/// The denominator of the fraction is that of the policy. Where the limit has changed since, a fraction counts in the
/// new denominator, or as a whole microsecond where it exceeds that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tat(Exact);

impl Tat {
    pub(super) fn restore(us: u64, frac: u64) -> Tat {
        // More than any denominator counts as a whole microsecond, as it does in `clamp`.
        Tat(Exact { us, frac: u32::try_from(frac).unwrap_or(u32::MAX) })
    }

    /// Brings a TAT that neither this policy nor one beside it could have produced back to their horizon: an empty bucket.
    /// The clock ran ahead, or the burst was lowered.
    #[inline]
    pub(super) fn clamp(&mut self, policy: &Policy, now: u64) {
        if self.0.frac >= policy.interval.parts {
            self.0 = Exact::from_us(self.0.us.saturating_add(1));
        }
        self.0 = policy.interval.min(self.0, last(policy, now));
    }

    /// How far TAT lies ahead of now: what the bucket lacks, as the time that it takes to refill.
    #[inline]
    pub(super) fn ahead(&self, policy: &Policy, now: u64) -> Exact {
        policy.interval.saturating_sub(self.0, Exact::from_us(now))
    }

    #[inline]
    pub(super) fn charge(&mut self, policy: &Policy, now: u64, units: u32) -> Stamp {
        if units > 0 {
            let base = policy.interval.max(self.0, Exact::from_us(now));
            self.0 = policy.interval.add(base, policy.interval.times(units));
        }
        Stamp { us: self.0.us, frac: self.0.frac }
    }

    /// The wait until `units` come within the policy's horizon, rounded up. Shared with the leaky bucket.
    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u32) -> u64 {
        let wanted = policy.interval.add(self.ahead(policy, now), policy.interval.times(units));
        policy.interval.saturating_sub(wanted, policy.horizon).ceil()
    }

    pub(super) fn is(&self, stamp: Stamp) -> bool {
        self.0 == Exact { us: stamp.us, frac: stamp.frac }
    }

    pub(super) fn pull_back(&mut self, policy: &Policy, span: Exact) {
        self.0 = policy.interval.saturating_sub(self.0, span);
    }
}

/// The latest that TAT can be.
#[inline]
fn last(policy: &Policy, now: u64) -> Exact {
    policy.interval.add(Exact::from_us(now), policy.furthest)
}

/// Units that conform without delay: those that fit between TAT and now + τ.
#[inline]
pub(super) fn remaining(tat: &Tat, policy: &Policy, now: u64) -> u32 {
    let left = policy.interval.saturating_sub(policy.tolerance, tat.ahead(policy, now));
    policy.interval.whole_units_in(left)
}

/// Gives back what of the charge has not been refilled yet.
///
/// The bucket owed up to the stamp because of this charge, and has refilled as time approached it: what lies between
/// now and the stamp is still owed. Giving back more, the whole cost say, would return tokens that time has returned
/// already, and let burst + cost through at once. A stamp beyond any that there can be now is one of before the clock stepped
/// back: what lies beyond was forgiven then, and does not come back once more.
pub(super) fn refund(tat: &mut Tat, policy: &Policy, now: u64, units: u32, stamp: Stamp) {
    let end = end(policy, stamp);
    let owed = policy.interval.saturating_sub(end, Exact::from_us(now));
    let forgiven = policy.interval.saturating_sub(end, last(policy, now));
    tat.pull_back(policy, policy.interval.saturating_sub(span(policy, units).min(owed), forgiven));
}

/// When the rest of a grant's debt ends, of which `units` came back.
pub(crate) fn stamp_after_refund(policy: &Policy, units: u32, stamp: Stamp) -> Stamp {
    let Exact { us, frac } = policy.interval.saturating_sub(end(policy, stamp), span(policy, units));
    Stamp { us, frac }
}

/// Where the limit has changed since the grant, its fraction counts in another denominator: rounded down then, since a
/// smaller debt gives less back.
fn end(policy: &Policy, stamp: Stamp) -> Exact {
    let frac = if stamp.frac < policy.interval.parts { stamp.frac } else { 0 };
    Exact { us: stamp.us, frac }
}

/// More than the policy could grant now, if its burst was larger then: never more than TAT can lie ahead.
fn span(policy: &Policy, units: u32) -> Exact {
    if units > policy.largest_cost() { policy.horizon } else { policy.interval.times(units) }
}
