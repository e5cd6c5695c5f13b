//! A second, naive implementation of the algorithms, independent of `tollgate-core`.
//!
//! Every oracle counts in `i128`, without overflow and without rounding before the end. It keeps a
//! history of all grants, or uses the textbook's formula if the implementation uses another one. It
//! finds waits by searching for the first microsecond at which it would grant the request.
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

mod calendar_window;
mod entries;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod ledger;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod slots;

use std::fmt;
use std::time::Duration;

use tollgate_core::algorithm::Look;
use tollgate_core::{Algorithm, Policy, Quota, Settled, Timestamp, Wait};

pub use ledger::{Answer, Ledger, Standing};
pub use slots::SlotOracle;

/// The expected answers of one (policy, key) pair.
///
/// As with [`State`](tollgate_core::algorithm::State), look first at each `now`.
#[derive(Debug)]
pub struct Oracle {
    model: Box<dyn Model>,
}

/// Identifies a grant in the oracle's history, for [`Oracle::refund`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// A window, a sub-window or a time. For the bucket algorithms, the finish time × `scale`.
    at: i128,
    scale: i128,
}

impl Oracle {
    /// The oracle of an unused key.
    ///
    /// # Panics
    /// If there is no oracle for the policy's algorithm.
    pub fn new(policy: &Policy) -> Oracle {
        let model: Box<dyn Model> = match policy.algorithm() {
            Algorithm::Gcra => Box::new(gcra::TokenBuckets::default()),
            Algorithm::LeakyBucket { .. } => Box::new(leaky_bucket::Queue::default()),
            Algorithm::FixedWindow { .. } => Box::new(fixed_window::FixedWindow::default()),
            Algorithm::CalendarWindow { .. } => Box::new(calendar_window::CalendarWindow::default()),
            Algorithm::SlidingWindow => Box::new(sliding_window::SlidingWindow::default()),
            Algorithm::SlidingBuckets { .. } => Box::new(sliding_buckets::SlidingBuckets::default()),
            Algorithm::SlidingLog { .. } => Box::new(sliding_log::SlidingLog::default()),
            other => panic!("no oracle knows the algorithm {}", other.name()),
        };
        Oracle { model }
    }

    /// Returns what can be granted at `now`. Limit and burst may differ from those of earlier
    /// calls. `now` may be earlier than theirs.
    pub fn look(&mut self, policy: &Policy, now: Timestamp) -> Look {
        let (terms, now) = (Terms::of(policy), micros(now));
        let Oracle { model } = self;
        model.settle(&terms, now);
        Look { remaining: units(model.remaining(&terms, now)), room: units(model.room(&terms, now)) }
    }

    /// The units that are left after a charge at the same `now`.
    pub fn remaining(&self, policy: &Policy, now: Timestamp) -> u64 {
        units(self.model.remaining(&Terms::of(policy), micros(now)))
    }

    /// Refuses a request after a look at the same `now`: a version of a bucket begins with its
    /// first refusal.
    pub fn refuse(&mut self, policy: &Policy, now: Timestamp) {
        self.model.refuse(&Terms::of(policy), micros(now));
    }

    /// Takes `units`, at most the room. Also returns how long to delay the request.
    pub fn charge(&mut self, policy: &Policy, now: Timestamp, units: u64) -> (Mark, Duration) {
        let (terms, now) = (Terms::of(policy), micros(now));
        let mark = self.model.charge(&terms, now, i128::from(units));
        // A cost of 0 only looks and is not queued.
        let delay = if units == 0 { 0 } else { self.model.delay(&terms, now) };
        (mark, span(delay))
    }

    /// Charges `units` that were used beyond grants, for [`Ledger::settle`].
    ///
    /// Twice the capacity bounds what is charged, without what a class leaves to others.
    pub fn charge_beyond(&mut self, policy: &Policy, now: Timestamp, units: u64) -> Settled {
        let Some((terms, capacity)) = Terms::with_debt(policy) else {
            return Settled::unchanged(&[], units);
        };
        let now = micros(now);
        self.model.settle(&terms, now);
        let room = self.model.room(&terms, now).max(0);
        let charged = room.min(i128::from(units));
        if room == 0 && units > 0 {
            self.model.refuse(&terms, now);
        }
        self.model.charge(&terms, now, charged);
        // Of that room, one capacity is debt.
        let debt = charged - charged.min((room - capacity).max(0));
        let [charged, debt] = [charged, debt].map(|units| u64::try_from(units).expect("at most `units`"));
        Settled { charged, debt, forgiven: units - charged, ..Settled::default() }
    }

    /// The wait for `units`.
    pub fn wait(&self, policy: &Policy, now: Timestamp, units: u64) -> Wait {
        if units > largest_cost(policy) {
            return Wait::Never;
        }
        let (terms, units) = (Terms::of(policy), i128::from(units));
        match first(micros(now), |t| units == 0 || self.model.room(&terms, t) >= units) {
            0 => Wait::None,
            wait => Wait::For(span(wait)),
        }
    }

    /// The time until the full quota is available.
    pub fn reset_after(&self, policy: &Policy, now: Timestamp) -> Duration {
        let terms = Terms::of(policy);
        span(first(micros(now), |t| self.model.is_unused(&terms, t)))
    }

    /// The units used in the last `interval`. `None` if the algorithm stores no times.
    pub fn usage(&self, policy: &Policy, now: Timestamp, interval: Duration) -> Option<u64> {
        let terms = Terms::of(policy);
        let used = self.model.usage(&terms, micros(now), whole_micros(interval))?;
        Some(u64::try_from(used).expect("a sum of positive numbers"))
    }

    /// Refunds `units` of a grant.
    pub fn refund(&mut self, policy: &Policy, now: Timestamp, units: u64, mark: Mark) {
        if units == 0 {
            return;
        }
        let (terms, now) = (Terms::of(policy), micros(now));
        self.model.settle(&terms, now);
        self.model.refund(&terms, now, i128::from(units), mark);
    }

    /// Gives back `units`, the newest first, as [`credit`](tollgate_core::credit()).
    pub fn credit(&mut self, policy: &Policy, now: Timestamp, units: u64) {
        if units == 0 {
            return;
        }
        let (terms, now) = (Terms::of(policy), micros(now));
        self.model.settle(&terms, now);
        self.model.credit(&terms, now, i128::from(units));
    }
}

impl Mark {
    /// The mark of the rest of a grant after a refund of `units`, as
    /// [`Stamp::after_refund`](tollgate_core::Stamp::after_refund).
    #[must_use]
    pub fn after_refund(self, policy: &Policy, units: u64) -> Mark {
        let is_bucket = matches!(policy.algorithm(), Algorithm::Gcra | Algorithm::LeakyBucket { .. });
        let terms = Terms::of(policy);
        let refunded = (i128::from(units) * terms.window).min(terms.horizon());
        let refunded = if is_bucket { rescaled(refunded, terms.limit, self.scale) } else { 0 };
        Mark { at: self.at - refunded, ..self }
    }
}

/// The largest cost that can ever pass: the room of an unused key.
pub fn largest_cost(policy: &Policy) -> u64 {
    Oracle::new(policy).look(policy, Timestamp::EPOCH).room
}

/// One algorithm. Times are in microseconds; `t` is at or after the latest `settle`.
trait Model: fmt::Debug + Send {
    /// Forgets expired usage, moves usage in the future to now, and applies changed terms.
    fn settle(&mut self, terms: &Terms, now: i128);
    /// Notes a refusal.
    fn refuse(&mut self, _terms: &Terms, _now: i128) {}
    /// Units that would pass at `t` without delay, with no grants until then.
    fn remaining(&self, terms: &Terms, t: i128) -> i128;
    /// Units that would be granted at `t`, with no grants until then.
    fn room(&self, terms: &Terms, t: i128) -> i128 {
        self.remaining(terms, t)
    }
    /// Whether the state at `t` equals that of an unused key.
    fn is_unused(&self, terms: &Terms, t: i128) -> bool;
    fn charge(&mut self, terms: &Terms, now: i128, units: i128) -> Mark;
    fn delay(&self, _terms: &Terms, _now: i128) -> i128 {
        0
    }
    fn usage(&self, _terms: &Terms, _now: i128, _interval: i128) -> Option<i128> {
        None
    }
    fn refund(&mut self, terms: &Terms, now: i128, units: i128, mark: Mark);
    /// Takes back the newest units. A queue keeps its places.
    fn credit(&mut self, _terms: &Terms, _now: i128, _units: i128) {}
}

/// A policy as plain numbers, computed only from the arguments of its construction.
#[derive(Clone, Copy, Debug)]
struct Terms {
    limit: i128,
    window: i128,
    burst: i128,
    max_wait: i128,
    buckets: i128,
    aligned: bool,
    /// When windows of a calendar begin.
    boundaries: &'static [u64],
    /// The burst that names the version of a token bucket: that of the base of a class.
    version: i128,
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
            boundaries: &[],
            version: 0,
        };
        match policy.algorithm() {
            Algorithm::LeakyBucket { max_wait } => {
                terms.burst = i128::from(quota.given_burst().unwrap_or(1));
                terms.max_wait = whole_micros(max_wait);
            }
            Algorithm::CalendarWindow { boundaries } => terms.boundaries = boundaries.as_micros(),
            Algorithm::FixedWindow { aligned } => terms.aligned = aligned,
            Algorithm::SlidingBuckets { buckets } => terms.buckets = i128::from(buckets),
            _ => {}
        }
        terms.version = terms.burst + i128::from(policy.numbers().headroom());
        terms
    }

    /// The terms with twice the capacity of the base of a class, and that capacity. `None` if the
    /// policy has no debt.
    fn with_debt(policy: &Policy) -> Option<(Terms, i128)> {
        let terms = Terms::of(policy);
        let of_window = terms.limit + i128::from(policy.numbers().headroom());
        match policy.algorithm() {
            Algorithm::LeakyBucket { .. } => None,
            Algorithm::Gcra => {
                terms.can_owe().then_some((Terms { burst: 2 * terms.version, ..terms }, terms.version))
            }
            _ => Some((Terms { limit: 2 * of_window, ..terms }, of_window)),
        }
    }

    /// How far ahead a bucket may lie before it is of no version, in microseconds.
    fn furthest(&self) -> i128 {
        let span = self.version * self.window;
        let most = ceil_div(if self.can_owe() { 2 * span } else { span }, self.limit);
        most.max((1_024 * self.window).min(1 << 52))
    }

    /// Whether a bucket of the version refills twice its burst in at most 2^52 µs.
    fn can_owe(&self) -> bool {
        2 * self.version * self.window <= (1 << 52) * self.limit
    }

    /// The most debt that a bucket makes under these terms, scaled by the limit.
    fn horizon(&self) -> i128 {
        self.burst * self.window + self.max_wait * self.limit
    }
}

/// The first t ≥ `now` at which `holds` returns true, as a span from `now`. It must stay true then.
fn first(now: i128, holds: impl Fn(i128) -> bool) -> i128 {
    if holds(now) {
        return 0;
    }
    let mut late = 1;
    while !holds(now + late) {
        late *= 2;
        assert!(late < 1 << 60, "no time within 2^60 µs satisfies the condition");
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

/// ceil(n × to / from), whose product may exceed an `i128`.
fn rescaled(n: i128, from: i128, to: i128) -> i128 {
    n.div_euclid(from) * to + ceil_div(n.rem_euclid(from) * to, from)
}

fn micros(t: Timestamp) -> i128 {
    i128::from(t.as_micros())
}

fn whole_micros(span: Duration) -> i128 {
    i128::try_from(span.as_micros()).expect("2^64 s are below 2^127 µs")
}

fn units(n: i128) -> u64 {
    u64::try_from(n.clamp(0, i128::from(Quota::MAX_UNITS))).expect("it was just clamped")
}

fn span(micros: i128) -> Duration {
    Duration::from_micros(u64::try_from(micros).expect("a span of time is positive, and far below 2^64 µs"))
}
