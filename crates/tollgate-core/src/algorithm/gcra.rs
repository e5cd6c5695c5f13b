//! The generic cell rate algorithm (ITU-T I.371, annex A; ATM Forum TM 4.0), a token bucket. Its
//! only state is the *theoretical arrival time* TAT, when the bucket will be full again.
//!
//! A cost of c units conforms if max(TAT, now) + c × T ≤ now + τ. T is the emission interval, and τ
//! the time to refill an empty bucket, burst × T.

use crate::exact::Exact;
use crate::policy::Policy;
use crate::verdict::Stamp;

/// TAT, in rational microseconds since the epoch. The epoch itself if the key has used nothing.
///
/// The fraction is in [`Policy::parts`]. After a change of the limit it is read in the new parts,
/// or as a whole microsecond if it is too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tat(Exact);

impl Tat {
    pub(super) fn restore(us: u64, frac: u64) -> Tat {
        // A larger fraction counts as a whole microsecond, as in `clamp`.
        Tat(Exact { us, frac: u32::try_from(frac).unwrap_or(u32::MAX) })
    }

    /// Cuts a TAT that is too far ahead.
    #[inline]
    pub(super) fn clamp(&mut self, policy: &Policy, now: u64) {
        if self.0.frac >= policy.interval.parts {
            self.0 = Exact::from_us(self.0.us.saturating_add(1));
        }
        self.0 = cut(policy, now, self.0);
    }

    /// How far TAT lies ahead of now: the time until the bucket is full.
    #[inline]
    pub(super) fn ahead(&self, policy: &Policy, now: u64) -> Exact {
        policy.interval.saturating_sub(self.0, Exact::from_us(now))
    }

    #[inline]
    pub(super) fn charge(&mut self, policy: &Policy, now: u64, units: u64) -> Stamp {
        if units > 0 {
            let base = policy.interval.max(self.0, Exact::from_us(now));
            self.0 = policy.interval.add(base, policy.interval.times(units));
        }
        Stamp { us: self.0.us, frac: self.0.frac }
    }

    /// The wait for `units`, rounded up. Shared with the leaky bucket.
    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
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

/// A TAT beyond [`Policy::furthest`] comes from a clock that ran ahead. It becomes that of an empty
/// bucket.
#[inline]
fn cut(policy: &Policy, now: u64, tat: Exact) -> Exact {
    let after = |span| policy.interval.add(Exact::from_us(now), span);
    if tat > after(policy.furthest) { after(policy.horizon) } else { tat }
}

/// Units that conform without delay: those that fit between TAT and now + τ.
#[inline]
pub(super) fn remaining(tat: &Tat, policy: &Policy, now: u64) -> u64 {
    let left = policy.interval.saturating_sub(policy.tolerance, tat.ahead(policy, now));
    policy.interval.whole_units_in(left)
}

/// Refunds the part of the charge that time has not refilled yet.
///
/// Only the span between now and the stamp is still owed. A refund of the whole cost would return
/// refilled tokens again, and admit burst + cost at once. The part of a stamp that is cut was
/// forgiven when the clock stepped back.
pub(super) fn refund(tat: &mut Tat, policy: &Policy, now: u64, units: u64, stamp: Stamp) {
    let end = end(policy, stamp);
    let owed = policy.interval.saturating_sub(end, Exact::from_us(now));
    let forgiven = policy.interval.saturating_sub(end, cut(policy, now, end));
    tat.pull_back(policy, policy.interval.saturating_sub(span(policy, units).min(owed), forgiven));
}

/// The end of a grant's debt after a refund of `units`.
pub(super) fn stamp_after_refund(policy: &Policy, units: u64, stamp: Stamp) -> Stamp {
    let Exact { us, frac } = policy.interval.saturating_sub(end(policy, stamp), span(policy, units));
    Stamp { us, frac }
}

/// After a change of the limit, a fraction that is too large is dropped: less debt refunds less.
fn end(policy: &Policy, stamp: Stamp) -> Exact {
    let frac = if stamp.frac < policy.interval.parts { stamp.frac } else { 0 };
    Exact { us: stamp.us, frac }
}

/// If the burst was larger at the time of the grant, a horizon is refunded at most.
fn span(policy: &Policy, units: u64) -> Exact {
    if units > policy.largest_cost() { policy.horizon } else { policy.interval.times(units) }
}
