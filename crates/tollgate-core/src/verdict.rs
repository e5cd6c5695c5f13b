//! What a store answers.

use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::stamp_after_refund;
use crate::{Algorithm, Policy, Share};

/// Until when a request has to wait before its cost would pass, if nothing else were taken meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// It passes now.
    None,
    /// It would pass after this time: rounded up to a microsecond, and exact. A microsecond earlier it would not.
    For(Duration),
    /// It can never pass: the cost exceeds [`Policy::largest_cost`](crate::Policy::largest_cost).
    Never,
}

/// What a refund needs to find the grant again: GCRA's TAT after it, the start of its window, its sub-window, or its
/// time in the log. It means something only beside the policy and key of the grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    pub(crate) us: u64,
    pub(crate) frac: u32,
}

/// How one policy stands for one key, after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    // 32 bytes, since a verdict is moved about on every request's way.
    wait_us: u64,
    reset_us: u64,
    stamp_us: u64,
    stamp_frac: u32,
    remaining: u32,
}

/// `wait_us` of what can never pass: no wait comes near it.
const NEVER: u64 = u64::MAX;

impl Stamp {
    /// A stamp of a store that decides for itself: whole microseconds (or the number of a sub-window), and for the bucket
    /// algorithms what is left of TAT in parts of one.
    pub fn new(us: u64, frac: u32) -> Stamp {
        Stamp { us, frac }
    }

    /// The stamp of what is left of a grant of which `units` were given back, for a further refund of the same grant: the debt of
    /// a bucket ends the sooner for them, and with the stamp as it was what time has returned would come back once more.
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota, Stamp};
    ///
    /// let a_second_a_unit = Policy::new("api", Quota::per_minute(60));
    /// let stamp = Stamp::new(1_767_225_600_000_000, 0);
    /// assert_eq!(stamp.after_refund(&a_second_a_unit, 2).micros(), stamp.micros() - 2_000_000);
    /// ```
    #[must_use]
    pub fn after_refund(self, policy: &Policy, units: u32) -> Stamp {
        match policy.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => stamp_after_refund(policy, units, self),
            // A window, a sub-window or a time in the log stays what it is.
            _ => self,
        }
    }

    /// Whole microseconds, or the number of a sub-window.
    pub fn micros(&self) -> u64 {
        self.us
    }

    /// What is left of TAT in parts of a microsecond.
    pub fn fraction(&self) -> u32 {
        self.frac
    }
}

impl Status {
    /// A status, from a store that decides for itself. Times are rounded up to a microsecond.
    pub fn new(remaining: u32, wait: Wait, reset_after: Duration, stamp: Stamp) -> Status {
        let wait_us = match wait {
            Wait::None => 0,
            Wait::For(span) => micros_up(span).min(NEVER - 1),
            Wait::Never => NEVER,
        };
        let reset_us = micros_up(reset_after);
        Status { wait_us, reset_us, stamp_us: stamp.us, stamp_frac: stamp.frac, remaining }
    }

    /// Of a charge.
    pub(crate) fn granted(remaining: u32, reset_us: u64, stamp: Stamp) -> Status {
        Status { wait_us: 0, reset_us, stamp_us: stamp.us, stamp_frac: stamp.frac, remaining }
    }

    /// Units left: what would pass now without delay, after this decision.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Whether this policy refused the cost, and until when. [`Wait::None`] on every policy of an allowed set, and
    /// on those policies of a denied set that had room.
    #[inline]
    pub fn wait(&self) -> Wait {
        match self.wait_us {
            0 => Wait::None,
            NEVER => Wait::Never,
            us => Wait::For(Duration::from_micros(us)),
        }
    }

    /// The time until the whole quota is back, if nothing else were taken meanwhile.
    #[inline]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_us)
    }

    /// What a refund of this grant needs. Of no use on a denied set.
    pub fn stamp(&self) -> Stamp {
        Stamp { us: self.stamp_us, frac: self.stamp_frac }
    }
}

#[inline]
fn micros_up(span: Duration) -> u64 {
    // In u64, since this is on every request's way and a division of u128 is not cheap.
    let micros = u64::from(span.subsec_nanos().div_ceil(1_000));
    span.as_secs().saturating_mul(1_000_000).saturating_add(micros)
}

/// The decision over a set of checks.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    times: u32,
    share: Option<Share>,
    delay_us: u64,
    each: SmallVec<[Status; 4]>,
}

// Not derived, which would clone the statuses one by one.
impl Clone for Verdict {
    #[inline]
    fn clone(&self) -> Verdict {
        Verdict {
            times: self.times,
            share: self.share,
            delay_us: self.delay_us,
            each: SmallVec::from_slice(&self.each),
        }
    }
}

impl Verdict {
    /// The whole set was granted `times` times; the request is to be delayed by `delay` (rounded up to a
    /// microsecond), which only leaky buckets ask for. With `times` 0, nothing was charged.
    pub fn new(times: u32, delay: Duration, each: impl IntoIterator<Item = Status>) -> Verdict {
        Verdict { times, share: None, delay_us: micros_up(delay), each: each.into_iter().collect() }
    }

    /// [`Verdict::new`] for a set of one check, which is what most sets are.
    #[inline]
    pub fn of_one(times: u32, delay: Duration, status: Status) -> Verdict {
        let mut each = SmallVec::new();
        each.push(status);
        Verdict { times, share: None, delay_us: micros_up(delay), each }
    }

    /// The same verdict, over that share of each policy's quota.
    #[must_use]
    pub fn of_share(self, share: Share) -> Verdict {
        Verdict { share: Some(share), ..self }
    }

    /// The share of each policy's quota that the statuses are of: of a verdict that a fallback gave. `None` is the whole,
    /// decided by the store itself.
    #[inline]
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// How often the set was granted; 0 if it was denied, or only looked at.
    #[inline]
    pub fn times(&self) -> u32 {
        self.times
    }

    /// Whether anything was granted: false of a denial, and of [`Times::LOOK`](crate::Times::LOOK).
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.times > 0
    }

    /// How long the request is to be held back before it passes: zero unless a leaky bucket queues it. Of several
    /// buckets the longest delay.
    #[inline]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// One status for each check, in their order. Empty if a failure policy decided without a store.
    #[inline]
    pub fn each(&self) -> &[Status] {
        &self.each
    }

    /// The longest wait of the policies that refuse: [`Wait::Never`] if one of them can never pass.
    pub fn wait(&self) -> Wait {
        match self.each.iter().map(|status| status.wait_us).max() {
            None | Some(0) => Wait::None,
            Some(NEVER) => Wait::Never,
            Some(us) => Wait::For(Duration::from_micros(us)),
        }
    }
}
