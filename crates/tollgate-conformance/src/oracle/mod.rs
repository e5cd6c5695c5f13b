//! The algorithms once more, naively: slow, obviously right, and without a line in common with `tollgate-core`.
//!
//! Every oracle counts in `i128`, where nothing overflows and nothing is rounded before the end. It keeps a history
//! of what was allowed, or the textbook's formulation where that is another than the implementation's. Waits come
//! from no formula: the oracle searches for the first microsecond at which it would let the request pass.
//!
//! ```
//! use std::time::Duration;
//! use tollgate_conformance::oracle::Oracle;
//! use tollgate_core::{Policy, Quota, Timestamp, Wait};
//!
//! let policy = Policy::new("api", Quota::per_second(3));
//! let now = Timestamp::from_micros(1_767_225_600_000_000);
//! let mut oracle = Oracle::new(&policy);
//! assert_eq!(oracle.look(&policy, now).room, 3);
//! oracle.charge(&policy, now, 3);
//! assert_eq!(oracle.wait(&policy, now, 1), Wait::For(Duration::from_micros(333_334)));
//! ```

mod entries;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod ledger;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;

use std::fmt;
use std::time::Duration;

use tollgate_core::algorithm::Look;
use tollgate_core::{Algorithm, Policy, Timestamp, Wait};

pub use ledger::{Answer, Ledger, Standing};

/// What one (policy, key) pair should answer.
///
/// As with [`State`](tollgate_core::algorithm::State), a [`look`](Oracle::look) at `now` comes before anything else
/// that is asked at that `now`.
#[derive(Debug)]
pub struct Oracle(Box<dyn Model>);

/// What finds a grant again in the oracle's history, for [`Oracle::refund`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// A window, a sub-window, a time; for the bucket algorithms the finish × `scale`.
    at: i128,
    scale: i128,
}

impl Oracle {
    /// A key that has used nothing.
    ///
    /// # Panics
    /// If the policy's algorithm is one that this version does not know.
    pub fn new(policy: &Policy) -> Oracle {
        Oracle(match policy.algorithm() {
            Algorithm::Gcra => Box::new(gcra::TokenBucket::default()),
            Algorithm::LeakyBucket { .. } => Box::new(leaky_bucket::Queue::default()),
            Algorithm::FixedWindow { .. } => Box::new(fixed_window::FixedWindow::default()),
            Algorithm::SlidingWindow => Box::new(sliding_window::SlidingWindow::default()),
            Algorithm::SlidingBuckets { .. } => Box::new(sliding_buckets::SlidingBuckets::default()),
            Algorithm::SlidingLog { .. } => Box::new(sliding_log::SlidingLog::default()),
            other => panic!("no oracle knows the algorithm {}", other.name()),
        })
    }

    /// What can be granted at `now`. Limit and burst of the policy may differ from those of earlier calls, and `now`
    /// may lie before theirs.
    pub fn look(&mut self, policy: &Policy, now: Timestamp) -> Look {
        let (terms, now) = (Terms::of(policy), micros(now));
        self.0.settle(&terms, now);
        Look { remaining: units(self.0.remaining(&terms, now)), room: units(self.0.room(&terms, now)) }
    }

    /// Takes `units`, at most the room; returns also how long the request is held back.
    pub fn charge(&mut self, policy: &Policy, now: Timestamp, units: u32) -> (Mark, Duration) {
        let (terms, now) = (Terms::of(policy), micros(now));
        let mark = self.0.charge(&terms, now, i128::from(units));
        // A cost of 0 only looks: nothing of it has to wait behind the queue.
        let delay = if units == 0 { 0 } else { self.0.delay(&terms, now) };
        (mark, span(delay))
    }

    /// How long `units` would have to wait.
    pub fn wait(&self, policy: &Policy, now: Timestamp, units: u64) -> Wait {
        if units > u64::from(largest_cost(policy)) {
            return Wait::Never;
        }
        let (terms, units) = (Terms::of(policy), i128::from(units));
        match first(micros(now), |t| units == 0 || self.0.room(&terms, t) >= units) {
            0 => Wait::None,
            wait => Wait::For(span(wait)),
        }
    }

    /// The time until nothing of the quota is in use.
    pub fn reset_after(&self, policy: &Policy, now: Timestamp) -> Duration {
        let terms = Terms::of(policy);
        span(first(micros(now), |t| self.0.is_unused(&terms, t)))
    }

    /// Gives back `units` of a grant.
    pub fn refund(&mut self, policy: &Policy, now: Timestamp, units: u32, mark: Mark) {
        let (terms, now) = (Terms::of(policy), micros(now));
        self.0.settle(&terms, now);
        self.0.refund(&terms, now, i128::from(units), mark);
    }
}

/// The largest cost that can ever pass: what a key has room for that has used nothing.
pub fn largest_cost(policy: &Policy) -> u32 {
    Oracle::new(policy).look(policy, Timestamp::EPOCH).room
}

/// What an algorithm has to say. Times are microseconds; `t` is at or after the latest `settle`.
trait Model: fmt::Debug + Send {
    /// Takes notice of the time and of the terms in force: forgets what is over, pulls what lies in the future back.
    fn settle(&mut self, terms: &Terms, now: i128);
    /// Units that would pass at `t` without delay, if nothing were taken until then.
    fn remaining(&self, terms: &Terms, t: i128) -> i128;
    /// Units that would be granted at `t`, if nothing were taken until then.
    fn room(&self, terms: &Terms, t: i128) -> i128 {
        self.remaining(terms, t)
    }
    /// Whether by `t` it is as if nothing had ever been used.
    fn is_unused(&self, terms: &Terms, t: i128) -> bool;
    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark;
    /// How long the request just charged is held back.
    fn delay(&self, _terms: &Terms, _now: i128) -> i128 {
        0
    }
    fn refund(&mut self, terms: &Terms, now: i128, units: i128, mark: Mark);
}

/// A policy as plain numbers, taken from what it was built of and nothing that it derived.
#[derive(Clone, Copy, Debug)]
struct Terms {
    limit: i128,
    window: i128,
    /// Units of a full bucket.
    burst: i128,
    max_wait: i128,
    buckets: i128,
    aligned: bool,
}

impl Terms {
    fn of(policy: &Policy) -> Terms {
        let quota = policy.quota();
        let mut terms = Terms {
            limit: i128::from(quota.limit()),
            window: whole_micros(quota.window()),
            burst: i128::from(quota.given_burst().unwrap_or(quota.limit())),
            max_wait: 0,
            buckets: 1,
            aligned: true,
        };
        match policy.algorithm() {
            Algorithm::LeakyBucket { max_wait } => {
                terms.burst = i128::from(quota.given_burst().unwrap_or(1));
                terms.max_wait = whole_micros(max_wait);
            }
            Algorithm::FixedWindow { aligned } => terms.aligned = aligned,
            Algorithm::SlidingBuckets { buckets } => terms.buckets = i128::from(buckets),
            _ => {}
        }
        terms
    }
}

/// The first t ≥ `now` at which it holds, as a span from `now`. What holds once goes on holding.
fn first(now: i128, holds: impl Fn(i128) -> bool) -> i128 {
    if holds(now) {
        return 0;
    }
    let mut late = 1;
    while !holds(now + late) {
        late *= 2;
        assert!(late < 1 << 60, "what should come back in time does not come back at all");
    }
    let mut early = late / 2;
    while late - early > 1 {
        let middle = early + (late - early) / 2;
        if holds(now + middle) {
            late = middle;
        } else {
            early = middle;
        }
    }
    late
}

fn ceil_div(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}

fn micros(t: Timestamp) -> i128 {
    i128::from(t.as_micros())
}

fn whole_micros(span: Duration) -> i128 {
    i128::try_from(span.as_micros()).expect("2^64 s are below 2^127 µs")
}

fn units(n: i128) -> u32 {
    u32::try_from(n.clamp(0, i128::from(u32::MAX))).expect("it was just clamped")
}

fn span(micros: i128) -> Duration {
    Duration::from_micros(u64::try_from(micros).expect("a span of time is positive, and far below 2^64 µs"))
}
