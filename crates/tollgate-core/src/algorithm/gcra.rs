//! The generic cell rate algorithm (ITU-T I.371, annex A; ATM Forum TM 4.0), a token bucket. Its
//! state is the *theoretical arrival time* TAT, when the bucket will be full again.
//!
//! A cost of c units conforms if max(TAT, now) + c × T ≤ now + τ. T is the emission interval, and τ
//! the time to refill an empty bucket, burst × T.
//!
//! One TAT is enough while all callers ask with one limit and burst. `versions.rs` has the state of
//! a key that several versions of a policy ask for.

use crate::exact::Exact;
use crate::policy::Policy;
use crate::store::verdict::Stamp;

/// TAT, in rational microseconds since the epoch. The epoch itself if the key has used nothing.
///
/// The fraction is in [`PolicyNumbers::parts`](crate::PolicyNumbers::parts). After a change of the
/// limit it is read in the new parts, or as a whole microsecond if it is too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tat {
    us: u64,
    frac: u32,
    /// Whether a store keeps a TAT for each version, and this is the one of the version that asks.
    is_own: bool,
}

impl Tat {
    pub(super) fn restore(us: u64, frac: u64) -> Tat {
        // A larger fraction counts as a whole microsecond, as in `at`.
        Tat { us, frac: u32::try_from(frac).unwrap_or(u32::MAX), is_own: true }
    }

    pub(super) fn new(at: Exact) -> Tat {
        Tat { us: at.us, frac: at.frac, is_own: false }
    }

    /// The TAT as a policy reads it.
    #[inline]
    pub(super) fn at(&self, policy: &Policy) -> Exact {
        if self.frac >= policy.numbers().interval.parts {
            return Exact::from_us(self.us.saturating_add(1));
        }
        Exact { us: self.us, frac: self.frac }
    }

    /// The TAT by which a policy decides.
    #[inline]
    pub(super) fn seen(&self, policy: &Policy, now: u64) -> Exact {
        let at = self.at(policy);
        if is_beyond(policy, now, at) { self.seen_beyond(policy, now, at) } else { at }
    }

    /// A bucket used up, unless the version itself is in debt.
    #[cold]
    fn seen_beyond(&self, policy: &Policy, now: u64, at: Exact) -> Exact {
        if !policy.numbers().has_versions() {
            return after(now, policy.numbers().horizon);
        }
        let owes = self.is_own && at <= after(now, policy.numbers().most_owed());
        if owes { at } else { after(now, policy.numbers().reach) }
    }

    /// Cuts a TAT beyond the reach that is of no version: the clock has stepped back.
    #[cold]
    pub(super) fn cut(&mut self, policy: &Policy, now: u64) {
        if !self.is_of_another_version(policy, now) {
            self.set(self.seen(policy, now));
        }
    }

    /// Whether the TAT is that of another version, which it keeps in a record.
    pub(super) fn is_of_another_version(&self, policy: &Policy, now: u64) -> bool {
        let at = self.at(policy);
        policy.numbers().has_versions()
            && !self.is_own
            && is_beyond(policy, now, at)
            && at.ceil() <= now.saturating_add(policy.numbers().furthest())
    }

    /// Whether it is the TAT of the one who asks, who may then be in debt.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    #[inline]
    pub(super) fn set(&mut self, at: Exact) {
        (self.us, self.frac) = (at.us, at.frac);
    }

    /// Refunds the part of the charge that time has not refilled yet.
    pub(super) fn refund(&mut self, policy: &Policy, now: u64, units: u64, stamp: Stamp) {
        let owed = owed(policy, now, units, stamp);
        if owed > Exact::default() {
            let is_of_another = self.is_of_another_version(policy, now);
            let at = if is_of_another { self.at(policy) } else { self.seen(policy, now) };
            self.set(policy.numbers().interval.saturating_sub(at, owed));
        }
    }

    pub(super) fn is(&self, policy: &Policy, now: u64, stamp: Stamp) -> bool {
        self.seen(policy, now) == Exact { us: stamp.us, frac: stamp.frac }
    }
}

/// The time of a span from now on. Whole microseconds carry nothing.
#[inline]
fn after(now: u64, span: Exact) -> Exact {
    Exact { us: now + span.us, frac: span.frac }
}

/// Whether a TAT lies further ahead than any charge of this version without debt could move it.
#[inline]
pub(super) fn is_beyond(policy: &Policy, now: u64, tat: Exact) -> bool {
    tat > after(now, policy.numbers().reach)
}

/// How far TAT lies ahead of now: the time until the bucket is full.
#[inline]
pub(super) fn ahead(policy: &Policy, now: u64, tat: Exact) -> Exact {
    policy.numbers().interval.saturating_sub(tat, Exact::from_us(now))
}

/// TAT after a charge.
#[inline]
pub(super) fn charged(policy: &Policy, now: u64, tat: Exact, units: u64) -> Exact {
    policy
        .numbers()
        .interval
        .add(policy.numbers().interval.max(tat, Exact::from_us(now)), policy.numbers().interval.times(units))
}

/// The wait for `units`, rounded up. Shared with the leaky bucket.
pub(super) fn wait(policy: &Policy, now: u64, tat: Exact, units: u64) -> u64 {
    let wanted =
        policy.numbers().interval.add(ahead(policy, now, tat), policy.numbers().interval.times(units));
    policy.numbers().interval.saturating_sub(wanted, policy.numbers().horizon).ceil()
}

/// Units that conform without delay: those that fit between TAT and now + τ.
#[inline]
pub(super) fn remaining(policy: &Policy, now: u64, tat: Exact) -> u64 {
    let left = policy.numbers().interval.saturating_sub(policy.numbers().tolerance, ahead(policy, now, tat));
    policy.numbers().interval.whole_units_in(left)
}

/// How much of a grant time has not refilled yet.
///
/// Only the span between now and the stamp is still owed. A refund of the whole cost would return
/// refilled tokens again, and admit burst + cost at once. A stamp that is further ahead than any
/// debt is from before the clock stepped back. What exceeds a bucket used up was forgiven then.
pub(super) fn owed(policy: &Policy, now: u64, units: u64, stamp: Stamp) -> Exact {
    let interval = policy.numbers().interval;
    if stamp == Stamp::NEWEST {
        return span(policy, units);
    }
    let owed = ahead(policy, now, end(policy, stamp));
    let (most, used_up) = match policy.numbers().has_versions() {
        true => (policy.numbers().most_owed(), policy.numbers().reach),
        false => (policy.numbers().reach, policy.numbers().horizon),
    };
    let forgiven = if owed > most { interval.saturating_sub(owed, used_up) } else { Exact::default() };
    interval.saturating_sub(span(policy, units).min(owed), forgiven)
}

/// The end of a grant's debt after a refund of `units`.
pub(super) fn stamp_after_refund(policy: &Policy, units: u64, stamp: Stamp) -> Stamp {
    let Exact { us, frac } =
        policy.numbers().interval.saturating_sub(end(policy, stamp), span(policy, units));
    Stamp { us, frac }
}

/// After a change of the limit, a fraction that is too large is dropped: less debt refunds less.
fn end(policy: &Policy, stamp: Stamp) -> Exact {
    let frac = if stamp.frac < policy.numbers().interval.parts { stamp.frac } else { 0 };
    Exact { us: stamp.us, frac }
}

/// If the burst was larger at the time of the grant, a horizon is refunded at most.
fn span(policy: &Policy, units: u64) -> Exact {
    if units > policy.largest_cost() {
        policy.numbers().horizon
    } else {
        policy.numbers().interval.times(units)
    }
}
