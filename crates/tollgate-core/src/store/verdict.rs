//! The output of a store: a verdict, and a status for each check.

use std::time::Duration;

use smallvec::SmallVec;

use crate::policy::share::Share;
use crate::store::source::{PackedSource, Source};
use crate::time::Timestamp;

/// The time until a cost would pass, if no other request is granted meanwhile. The longest comes
/// last, and [`Wait::Never`] after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// It passes now.
    None,
    /// It passes after this time, and not a microsecond earlier. Rounded up to a microsecond.
    For(Duration),
    /// It can never pass: the cost exceeds [`Policy::largest_cost`](crate::Policy::largest_cost).
    Never,
}

/// Identifies a grant for a refund: GCRA's TAT after the grant, the start of its window (of a
/// calendar: its end), its sub-window, its time in the log, or the time and the number of its slot.
/// It is only valid for that policy and key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    pub(crate) us: u64,
    pub(crate) frac: u32,
}

/// The state of one policy for one key, after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    // 40 bytes: every request moves a verdict several times.
    wait_us: u64,
    reset_us: u64,
    stamp_us: u64,
    stamp_frac: u32,
    remaining: u64,
}

/// `wait_us` of a cost that can never pass. No real wait is as long.
const NEVER: u64 = u64::MAX;

impl Stamp {
    /// That of no grant: a refund with it gives back the newest units, whichever grants they are
    /// of. See [`credit`](crate::credit()). No grant has this one: no time is as late.
    pub const NEWEST: Stamp = Stamp { us: 1 << 54, frac: 0 };

    /// A stamp from a store with its own arithmetic. `us` is in microseconds, or the number of a
    /// sub-window. `frac` is the fraction of TAT, in [parts](crate::PolicyNumbers::parts) of a
    /// microsecond, or the number of a slot; 0 for other algorithms.
    pub fn new(us: u64, frac: u32) -> Stamp {
        Stamp { us, frac }
    }

    /// Microseconds since the epoch, or the number of a sub-window.
    pub fn micros(&self) -> u64 {
        self.us
    }

    /// The fraction of TAT, in [parts](crate::PolicyNumbers::parts) of a microsecond, or the number
    /// of a slot.
    pub fn fraction(&self) -> u32 {
        self.frac
    }
}

impl Status {
    /// A status from a store with its own arithmetic. Times are rounded up to a microsecond.
    pub fn new(remaining: u64, wait: Wait, reset_after: Duration, stamp: Stamp) -> Status {
        let wait_us = match wait {
            Wait::None => 0,
            Wait::For(span) => micros_up(span).min(NEVER - 1),
            Wait::Never => NEVER,
        };
        let reset_us = micros_up(reset_after);
        Status { wait_us, reset_us, stamp_us: stamp.us, stamp_frac: stamp.frac, remaining }
    }

    pub(crate) fn granted(remaining: u64, reset_us: u64, stamp: Stamp) -> Status {
        Status { wait_us: 0, reset_us, stamp_us: stamp.us, stamp_frac: stamp.frac, remaining }
    }

    /// Units left after this decision: the number that would pass now without delay.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Whether this policy refused the cost, and the time until it would pass. [`Wait::None`] for
    /// every policy of an allowed set, and for those policies of a denied set that had room.
    #[inline]
    pub fn wait(&self) -> Wait {
        match self.wait_us {
            0 => Wait::None,
            NEVER => Wait::Never,
            us => Wait::For(Duration::from_micros(us)),
        }
    }

    /// The time until the full quota is available, if no other request is granted meanwhile. For
    /// [`Algorithm::InFlight`](crate::Algorithm::InFlight): see [`Status::ends_after`].
    #[inline]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_us)
    }

    /// How long a slot that was granted is held unless it is renewed: the time to live, which is
    /// also [`reset_after`](Status::reset_after). `None` if its store keeps it until it is
    /// released, as a store in memory does.
    pub fn ends_after(&self) -> Option<Duration> {
        (self.reset_us < u64::MAX).then(|| self.reset_after())
    }

    /// The stamp that a refund of this grant needs. Meaningless if the set was denied.
    pub fn stamp(&self) -> Stamp {
        Stamp { us: self.stamp_us, frac: self.stamp_frac }
    }
}

#[inline]
fn micros_up(span: Duration) -> u64 {
    // Not in u128, whose division is slow on the path of every request.
    let micros = u64::from(span.subsec_nanos().div_ceil(1_000));
    span.as_secs().saturating_mul(1_000_000).saturating_add(micros)
}

/// The decision on a set of checks.
///
/// Equality ignores [when](Verdict::decided_at) it was decided.
#[derive(Debug)]
pub struct Verdict {
    times: u32,
    // With the source in one word: the size of a verdict is a test below.
    decider: PackedSource,
    delay_us: u64,
    /// 0 if it is not known.
    decided_us: u64,
    each: SmallVec<[Status; 1]>,
}

impl PartialEq for Verdict {
    fn eq(&self, other: &Verdict) -> bool {
        (self.times, self.decider, self.delay_us, &self.each)
            == (other.times, other.decider, other.delay_us, &other.each)
    }
}

impl Eq for Verdict {}

// A derived `Clone` would clone the statuses one by one.
impl Clone for Verdict {
    #[inline]
    fn clone(&self) -> Verdict {
        Verdict {
            times: self.times,
            decider: self.decider,
            delay_us: self.delay_us,
            decided_us: self.decided_us,
            each: SmallVec::from_slice(&self.each),
        }
    }
}

impl Verdict {
    /// A verdict that granted the whole set `times` times. With `times` 0, nothing was charged.
    /// `delay` is rounded up to a microsecond, and zero unless a leaky bucket asks for it.
    #[inline]
    pub fn new(times: u32, delay: Duration, each: impl IntoIterator<Item = Status>) -> Verdict {
        let statuses = each.into_iter();
        let mut each = SmallVec::with_capacity(statuses.size_hint().0);
        statuses.for_each(|status| each.push(status));
        let (decider, delay_us) = (PackedSource::default(), micros_up(delay));
        Verdict { times, decider, delay_us, decided_us: 0, each }
    }

    /// [`Verdict::new`] for a set of one check, the most common size.
    #[inline]
    pub fn of_one(times: u32, delay: Duration, status: Status) -> Verdict {
        let mut each = SmallVec::new();
        each.push(status);
        let (decider, delay_us) = (PackedSource::default(), micros_up(delay));
        Verdict { times, decider, delay_us, decided_us: 0, each }
    }

    /// A verdict without statuses: of an empty set, or of a failure policy, which has no state.
    pub fn without_statuses(times: u32) -> Verdict {
        let decider = PackedSource::default();
        Verdict { times, decider, delay_us: 0, decided_us: 0, each: SmallVec::new() }
    }

    /// The same verdict, decided by a [fallback](Source::Fallback) with that share of each policy's
    /// quota.
    #[must_use]
    pub fn of_share(self, share: Share) -> Verdict {
        Verdict { decider: PackedSource::of_share(share), ..self }
    }

    /// The same verdict, decided by `source` and by the whole of each policy's quota.
    #[must_use]
    pub fn from_source(self, source: Source) -> Verdict {
        Verdict { decider: PackedSource::of_source(source), ..self }
    }

    /// The same verdict, decided at that time of the store's clock.
    #[inline]
    #[must_use]
    pub fn at(self, now: Timestamp) -> Verdict {
        Verdict { decided_us: now.as_micros(), ..self }
    }

    /// The same verdict, with the source, the share and the time of another.
    #[must_use]
    pub fn as_decided_by(self, other: &Verdict) -> Verdict {
        Verdict { decider: other.decider, decided_us: other.decided_us, ..self }
    }

    /// The time of the store's clock at the decision: that of Redis for a store in Redis. The
    /// decision follows from this time, the state before it, and what was asked. `None` if no store
    /// decided.
    #[inline]
    pub fn decided_at(&self) -> Option<Timestamp> {
        (self.decided_us > 0).then(|| Timestamp::from_micros(self.decided_us))
    }

    /// What decided: [`Source::Store`] unless a wrapper of the store did.
    #[inline]
    pub fn source(&self) -> Source {
        self.decider.source()
    }

    /// The share of each quota that this verdict was decided by, if a fallback decided. `None` if
    /// the store itself decided by the whole quota.
    #[inline]
    pub fn share(&self) -> Option<Share> {
        self.decider.share()
    }

    /// The number of grants of the set. 0 if it was denied or only looked at.
    #[inline]
    pub fn times(&self) -> u32 {
        self.times
    }

    /// Whether anything was granted. `false` for a denial and for
    /// [`Times::LOOK`](crate::Times::LOOK).
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.times > 0
    }

    /// How long to delay the request: the longest delay of its leaky buckets.
    #[inline]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// One status for each check, in order. Empty if a failure policy decided without a store.
    #[inline]
    pub fn each(&self) -> &[Status] {
        &self.each
    }

    /// The longest wait of the policies that refuse. [`Wait::Never`] if one can never pass.
    pub fn wait(&self) -> Wait {
        match self.each.iter().map(|status| status.wait_us).max() {
            None | Some(0) => Wait::None,
            Some(NEVER) => Wait::Never,
            Some(us) => Wait::For(Duration::from_micros(us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request moves a verdict several times.
    #[test]
    fn a_verdict_of_one_check_takes_72_bytes() {
        assert_eq!((size_of::<Status>(), size_of::<Verdict>()), (40, 72));
    }
}
