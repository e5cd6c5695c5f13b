//! The algorithms, as pure functions of (policy, state, now, units).
//!
//! # Choosing one
//!
//! | algorithm | it guarantees | state in memory | choose it when |
//! |---|---|---|---|
//! | [`Gcra`](Algorithm::Gcra) (token bucket), the default | in any time t at most burst + t × limit / window units, exactly: no rounding of the emission interval, at 3 a second as at 1,000,000 a second | 12 bytes | always, unless a row below says why not |
//! | [`LeakyBucket`](Algorithm::LeakyBucket) | the same, but a request that comes too early is delayed until it conforms, up to a longest wait | 12 bytes | the service behind the limit needs an even flow: a slow database, an external API |
//! | [`FixedWindow`](Algorithm::FixedWindow) | at most the limit in each window; up to twice the limit around the boundary of two | 16 bytes | the quota is a promise about a window (5,000 a day) |
//! | [`CalendarWindow`](Algorithm::CalendarWindow) | the same, in windows of a calendar | 16 bytes | the quota is a promise about a day, a week or a month of a time zone (10,000 a month) |
//! | [`SlidingWindow`](Algorithm::SlidingWindow) | at most the limit, if the requests of the previous window were evenly spread; the error grows with their unevenness | 20 bytes | you want a fixed window without its boundary effect, in little memory |
//! | [`SlidingBuckets`](Algorithm::SlidingBuckets) | never more than the limit in any window; usage counts for up to window / buckets too long, each sub-window rounded up to a microsecond | 128 bytes for 10 buckets, 8 for each more | you need a hard bound over every window, or the usage of shorter intervals |
//! | [`SlidingLog`](Algorithm::SlidingLog) | exactly the limit in every window, nothing counted too long | 104 bytes, and 16 to 32 for each request allowed within the window | units are few and expensive: log-ins, transfers, text messages |
//! | [`Block`](Algorithm::Block) | nothing for a time, once a key is blocked | 16 bytes for a blocked key | callers go on after their denials: guessers of passwords |
//! | [`InFlight`](Algorithm::InFlight) | never more than the limit at once, each until it is released | 80 bytes, and about 20 for each unit in use | work is slow or holds something: exports, uploads, WebSockets |
//!
//! In memory, a key of any of these takes 60 more bytes: its digest, its expiry and the slack of
//! the table. States of 20 bytes or less fit into them.
//!
//! Waits may exceed the window: up to two windows for `SlidingWindow`, a window and a sub-window
//! for `SlidingBuckets`.
//!
//! # When time goes backwards
//!
//! A server that takes over from another may have an older clock. No algorithm then refills
//! anything, and none blocks a caller for longer than its fullest state would. Usage with a future
//! time counts as if it had happened now. For a token bucket it is that of another
//! [version](crate::PolicyNumbers::version_burst). A leaky bucket refuses until the clock has
//! caught up, or for 128 windows at most, since its queue may be that of another version.
//!
//! # Deciding
//!
//! A store first looks at every state of a set ([`State::look`]). It charges them
//! ([`State::charge`]) only if all have room. Otherwise it takes the status of each from
//! [`State::refuse`].
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::algorithm::State;
//! use tollgate_core::{Policy, Quota, Timestamp, Wait};
//!
//! let policy = Policy::new("api", Quota::per_second(2));
//! let now = Timestamp::from_micros(1_000_000);
//! let mut state = State::new(&policy);
//!
//! let look = state.look(&policy, now);
//! assert_eq!(look.room, 2);
//! assert_eq!(state.charge(&policy, now, look, 2).status.remaining(), 0);
//! assert_eq!(state.look(&policy, now).room, 0);
//! assert_eq!(state.wait(&policy, now, 1), Wait::For(Duration::from_millis(500)));
//! ```

mod block;
mod calendar_window;
mod fixed_window;
mod gcra;
mod in_flight;
mod leaky_bucket;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod versions;

use std::time::Duration;

use crate::exact::Exact;
use crate::policy::{Algorithm, Policy};
use crate::quota::Quota;
use crate::store::check::Times;
use crate::store::verdict::{Stamp, Status, Wait};
use crate::time::Timestamp;
use crate::usage::UsageError;

use block::Block;
use calendar_window::CalendarCount;
use fixed_window::FixedWindow;
use gcra::Tat;
use in_flight::UnitsInFlight;
use sliding_buckets::Ring;
use sliding_log::Log;
use sliding_window::TwoWindows;
use versions::Record;

/// The state of one (policy, key) pair.
///
/// A state belongs to its policy, or to another of the same [scope](Policy::scope); keep states by
/// scope. Limit and burst may change between two calls: see
/// [`PolicyNumbers::version_burst`](crate::PolicyNumbers::version_burst). So may the boundaries of
/// a calendar, the time to live of slots and the time of a block. Name, algorithm and other windows
/// may not. A policy whose algorithm has another form of state treats the state as absent. `Gcra`
/// and `LeakyBucket` have the same form, and so do both kinds of fixed windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Tat(Tat),
    // Boxed to keep the state of the default algorithm at 24 bytes.
    Record(Box<Record>),
    FixedWindow(FixedWindow),
    CalendarWindow(CalendarCount),
    Block(Block),
    TwoWindows(TwoWindows),
    Ring(Box<Ring>),
    Log(Box<Log>),
    InFlight(Box<UnitsInFlight>),
}

/// The most units that a state counts at one time or in one window: twice [`Quota::MAX_UNITS`].
/// Only debt reaches it, and usage that a clock joined by stepping back.
pub const MAX_COUNT: u64 = 2 * Quota::MAX_UNITS;

fn bounded(count: u64) -> u64 {
    count.min(MAX_COUNT)
}

/// What a state can grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Units that would pass now without delay.
    pub remaining: u64,
    /// Units that can be granted now; a leaky bucket includes those that it would delay.
    pub room: u64,
}

impl Look {
    /// How often a cost can be granted. 0 if it exceeds [`Policy::largest_cost`].
    #[inline]
    pub fn times(&self, policy: &Policy, cost: u64) -> u32 {
        if cost > policy.largest_cost() {
            return 0;
        }
        let times = self.room.checked_div(cost).unwrap_or(u64::MAX);
        u32::try_from(times).unwrap_or(u32::MAX)
    }
}

/// The result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The status of the policy after the charge.
    pub status: Status,
    /// How long to delay the request, rounded up to a microsecond. Only leaky buckets delay.
    pub delay: Duration,
    /// When the state can be forgotten: it then equals that of an unused key.
    pub expires: Timestamp,
}

impl State {
    /// The state of a key that has used nothing.
    pub fn new(policy: &Policy) -> State {
        State(match policy.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => Form::Tat(Tat::default()),
            Algorithm::FixedWindow { .. } => Form::FixedWindow(FixedWindow::default()),
            Algorithm::CalendarWindow { .. } => Form::CalendarWindow(CalendarCount::default()),
            Algorithm::Block => Form::Block(Block::default()),
            Algorithm::SlidingWindow => Form::TwoWindows(TwoWindows::default()),
            Algorithm::SlidingBuckets { buckets } => Form::Ring(Box::new(Ring::new(buckets))),
            Algorithm::SlidingLog { .. } => Form::Log(Box::default()),
            Algorithm::InFlight => Form::InFlight(Box::default()),
        })
    }

    /// [`State::new`] for a store that forgets states of [`Algorithm::InFlight`]: it numbers units
    /// from `first` on, a random number. Otherwise a late release of a state that was forgotten
    /// could free a unit of a new one, taken in the same microsecond.
    pub fn numbered_from(policy: &Policy, first: u32) -> State {
        match policy.algorithm() {
            Algorithm::InFlight => State(Form::InFlight(Box::new(UnitsInFlight::numbered_from(first)))),
            _ => State::new(policy),
        }
    }

    /// A state from numbers that a store keeps elsewhere. Missing numbers count as 0, and surplus
    /// ones are ignored. Times are microseconds since the epoch. Units beyond [`MAX_COUNT`] are
    /// ignored too.
    ///
    /// | algorithm | numbers |
    /// |---|---|
    /// | `Gcra`, `LeakyBucket` | TAT of the policy's [version](crate::PolicyNumbers::version_burst), and its fraction in [`PolicyNumbers::parts`](crate::PolicyNumbers::parts) |
    /// | `FixedWindow` | the start of the window, units used in it |
    /// | `CalendarWindow` | the end of the window, units used in it |
    /// | `Block` | the end of the block, or 0 |
    /// | `SlidingWindow` | the start of the current window, units used in it, units used in the one before |
    /// | `SlidingBuckets` | the number of a sub-window since the epoch, units used in it; and so on |
    /// | `SlidingLog` | a time, units taken at it; and so on |
    /// | `InFlight` | units in use, the time at which times to live end that a refused request waits for, or 0, and the second number of the next [`Stamp`] |
    ///
    /// A store may shorten a ring or a log if it only answers one check. It may merge entries that
    /// make no difference to the answer.
    pub fn restore(policy: &Policy, numbers: &[u64]) -> State {
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let pairs = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        State(match policy.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => Form::Tat(Tat::restore(number(0), number(1))),
            Algorithm::FixedWindow { .. } => Form::FixedWindow(FixedWindow::restore(number(0), number(1))),
            Algorithm::CalendarWindow { .. } => {
                Form::CalendarWindow(CalendarCount::restore(number(0), number(1)))
            }
            Algorithm::Block => Form::Block(Block::restore(number(0))),
            Algorithm::SlidingWindow => {
                Form::TwoWindows(TwoWindows::restore(number(0), number(1), number(2)))
            }
            Algorithm::SlidingBuckets { buckets } => Form::Ring(Box::new(Ring::restore(buckets, pairs))),
            Algorithm::SlidingLog { .. } => Form::Log(Box::new(Log::restore(pairs))),
            Algorithm::InFlight => {
                Form::InFlight(Box::new(UnitsInFlight::restore(number(0), number(1), number(2))))
            }
        })
    }

    /// Returns what can be granted at `now`. Also drops expired usage, and moves usage in the
    /// future to now. Unless the clock steps back, that changes no later decision, also by other
    /// policies of the same scope.
    #[inline]
    pub fn look(&mut self, policy: &Policy, now: Timestamp) -> Look {
        if !self.belongs_to(policy) {
            *self = State::new(policy);
        }
        let now = now.as_micros();
        let remaining = match &mut self.0 {
            Form::Tat(tat) if !gcra::is_beyond(policy, now, tat.at(policy)) => {
                return look_at(policy, now, tat.at(policy));
            }
            Form::Tat(_) | Form::Record(_) => return self.look_beyond(policy, now),
            Form::FixedWindow(window) => window.look(policy, now),
            Form::CalendarWindow(window) => window.look(policy, now),
            Form::Block(block) => block.look(policy, now),
            Form::TwoWindows(windows) => windows.look(policy, now),
            Form::Ring(ring) => ring.look(policy, now),
            Form::Log(log) => log.look(policy, now),
            Form::InFlight(held) => held.look(policy),
        };
        let room = if policy.numbers().charges_nothing() && remaining > 0 { u64::MAX } else { remaining };
        Look { remaining, room }
    }

    /// Charges `units`, but at most the room of `look`, which was returned for the same `now`.
    #[inline]
    pub fn charge(&mut self, policy: &Policy, now: Timestamp, look: Look, units: u64) -> Charged {
        let now_us = now.as_micros();
        let units = if policy.numbers().charges_nothing() { 0 } else { units.min(look.room) };
        let mut delay = Duration::ZERO;
        // When the buckets of all versions are full, if there may be several.
        let mut last_us = None;
        let stamp = match &mut self.0 {
            Form::Tat(tat) => {
                let charged = gcra::charged(policy, now_us, tat.at(policy), units);
                if let Algorithm::LeakyBucket { .. } = policy.algorithm()
                    && units > 0
                {
                    delay = Duration::from_micros(leaky_bucket::delay(policy, now_us, charged));
                }
                if gcra::is_beyond(policy, now_us, charged) {
                    let stamp = self.charge_beyond(policy, now_us, units);
                    last_us = Some(self.last_us(policy).max(now_us));
                    stamp
                } else {
                    // A cost of 0 only looks and takes no place in the queue.
                    if units > 0 {
                        tat.set(charged);
                    }
                    stamp_of(charged)
                }
            }
            Form::Record(_) => {
                let stamp = self.charge_beyond(policy, now_us, units);
                last_us = Some(self.last_us(policy).max(now_us));
                stamp
            }
            Form::FixedWindow(window) => window.charge(units),
            Form::CalendarWindow(window) => window.charge(units),
            Form::Block(block) => block.charge(policy, now_us, units),
            Form::TwoWindows(windows) => windows.charge(units),
            Form::Ring(ring) => ring.charge(units),
            Form::Log(log) => log.charge(now_us, units),
            Form::InFlight(held) => held.charge(now_us, units),
        };
        let reset_us = match &self.0 {
            Form::Tat(_) | Form::Record(_) => {
                gcra::ahead(policy, now_us, Exact { us: stamp.us, frac: stamp.frac }).ceil()
            }
            _ => self.reset_us(policy, now_us),
        };
        let status = Status::granted(look.remaining.saturating_sub(units), reset_us, stamp);
        let expires = last_us.unwrap_or_else(|| now_us.saturating_add(reset_us));
        Charged { status, delay, expires: Timestamp::from_micros(expires) }
    }

    /// Looks at a bucket that may be that of another version.
    #[cold]
    fn look_beyond(&mut self, policy: &Policy, now: u64) -> Look {
        if let Form::Tat(tat) = &mut self.0 {
            tat.cut(policy, now);
        }
        look_at(policy, now, self.seen(policy, now))
    }

    /// Charges a bucket that has a record, or gets one: by debt, or after another version.
    #[cold]
    fn charge_beyond(&mut self, policy: &Policy, now: u64, units: u64) -> Stamp {
        if units == 0 {
            return stamp_of(self.seen(policy, now));
        }
        if let Form::Record(record) = &mut self.0 {
            match record.charge(policy, now, units) {
                Ok(charged) => return stamp_of(charged),
                Err(tat) => self.0 = Form::Tat(tat),
            }
        }
        if let Form::Tat(tat) = &self.0
            && tat.is_of_another_version(policy, now)
        {
            self.enter_version(policy, now);
            if let Form::Record(record) = &mut self.0
                && let Ok(charged) = record.charge(policy, now, units)
            {
                return stamp_of(charged);
            }
        }
        let charged = gcra::charged(policy, now, self.seen(policy, now), units);
        match &mut self.0 {
            Form::Tat(tat) if tat.is_own() || !gcra::is_beyond(policy, now, charged) => tat.set(charged),
            _ => self.0 = Form::Record(Box::new(Record::new(policy, None, charged))),
        }
        stamp_of(charged)
    }

    /// The status for a refused request of `cost`, after a `look` at the same `now`. It waits until
    /// the cost fits as often as `times` asks at least.
    ///
    /// Unless `times` only looks, the request gives its version of a bucket an entry in the record
    /// of the key, from which its wait counts: see
    /// [`PolicyNumbers::version_burst`](crate::PolicyNumbers::version_burst). [`State::expires`]
    /// may be later then.
    pub fn refuse(&mut self, policy: &Policy, now: Timestamp, look: Look, cost: u64, times: Times) -> Status {
        let wanted = cost.saturating_mul(times.min().max(1).into());
        let wait = if cost > policy.largest_cost() { Wait::Never } else { self.wait(policy, now, wanted) };
        let status = Status::new(look.remaining, wait, self.reset_after(policy, now), Stamp::default());
        if times.max() > 0 && wanted > look.room && self.is_of_versions(policy, now.as_micros()) {
            self.enter_version(policy, now.as_micros());
        }
        status
    }

    /// Whether a refusal may have to add an entry.
    #[inline]
    fn is_of_versions(&self, policy: &Policy, now: u64) -> bool {
        match &self.0 {
            Form::Tat(tat) => gcra::is_beyond(policy, now, tat.at(policy)),
            Form::Record(_) => true,
            _ => false,
        }
    }

    #[cold]
    fn enter_version(&mut self, policy: &Policy, now: u64) {
        let mut left = match &mut self.0 {
            &mut Form::Tat(tat) => tat,
            Form::Record(record) => match record.refuse(policy, now) {
                Ok(()) => return,
                Err(tat) => tat,
            },
            _ => return,
        };
        if gcra::is_beyond(policy, now, left.at(policy)) {
            left.cut(policy, now);
            self.0 = Form::Tat(left);
        }
        if left.is_of_another_version(policy, now) {
            let record = Record::new(policy, Some(left.at(policy).ceil()), left.seen(policy, now));
            self.0 = Form::Record(Box::new(record));
        }
    }

    /// When the state can be forgotten, for all versions of the policy: it then equals that of an
    /// unused key.
    pub fn expires(&self, policy: &Policy, now: Timestamp) -> Timestamp {
        let resets = match &self.0 {
            Form::Record(_) => now,
            _ => now.saturating_add(self.reset_after(policy, now)),
        };
        resets.max(Timestamp::from_micros(self.last_us(policy)))
    }

    /// When the buckets of all versions are full. 0 for other algorithms.
    fn last_us(&self, policy: &Policy) -> u64 {
        match &self.0 {
            Form::Tat(tat) => tat.at(policy).ceil(),
            Form::Record(record) => record.latest(),
            _ => 0,
        }
    }

    /// Whether the state is a record of several versions of a policy, or of debt: see
    /// [`PolicyNumbers::version_burst`](crate::PolicyNumbers::version_burst).
    #[inline]
    pub fn is_record(&self) -> bool {
        matches!(self.0, Form::Record(_))
    }

    /// The TAT by which a policy decides.
    fn seen(&self, policy: &Policy, now: u64) -> Exact {
        match &self.0 {
            Form::Tat(tat) => tat.seen(policy, now),
            Form::Record(record) => record.seen(policy, now),
            _ => Exact::default(),
        }
    }

    /// The wait for `units`, after a [`State::look`] at the same `now`. Those of requests in flight
    /// may be of several requests.
    pub fn wait(&self, policy: &Policy, now: Timestamp, units: u64) -> Wait {
        let most = if policy.is_in_flight() { policy.capacity() } else { policy.largest_cost() };
        if units > most {
            return Wait::Never;
        }
        let now = now.as_micros();
        let wait = match &self.0 {
            // 0 units always pass, even if the limit was lowered below the usage.
            _ if units == 0 => 0,
            Form::Tat(_) | Form::Record(_) => gcra::wait(policy, now, self.seen(policy, now), units),
            Form::FixedWindow(window) => window.wait(policy, now, units),
            Form::CalendarWindow(window) => window.wait(policy, now, units),
            Form::Block(block) => block.wait(policy, now, units),
            Form::TwoWindows(windows) => windows.wait(policy, now, units),
            Form::Ring(ring) => ring.wait(policy, now, units),
            Form::Log(log) => log.wait(policy, now, units),
            Form::InFlight(held) => held.wait(policy, now, units),
        };
        if wait == 0 { Wait::None } else { Wait::For(Duration::from_micros(wait)) }
    }

    /// The time until the full quota is available and the state can be forgotten, rounded up to 1
    /// µs.
    pub fn reset_after(&self, policy: &Policy, now: Timestamp) -> Duration {
        Duration::from_micros(self.reset_us(policy, now.as_micros()))
    }

    /// Refunds `units` of the grant with this `stamp`. See [`Store::refund`](crate::Store::refund).
    /// A refund of 0 units changes nothing.
    pub fn refund(&mut self, policy: &Policy, now: Timestamp, units: u64, stamp: Stamp) {
        if units == 0 {
            return;
        }
        self.look(policy, now);
        let now = now.as_micros();
        match &mut self.0 {
            Form::Tat(tat) => match policy.algorithm() {
                Algorithm::LeakyBucket { .. } => leaky_bucket::refund(tat, policy, now, units, stamp),
                _ => tat.refund(policy, now, units, stamp),
            },
            Form::Record(record) => {
                if let Err(mut tat) = record.refund(policy, now, units, stamp) {
                    tat.refund(policy, now, units, stamp);
                    self.0 = Form::Tat(tat);
                }
            }
            Form::FixedWindow(window) => window.refund(units, stamp),
            Form::CalendarWindow(window) => window.refund(units, stamp),
            // Time ends it, or a reset.
            Form::Block(_) => {}
            Form::TwoWindows(windows) => windows.refund(policy, units, stamp),
            Form::Ring(ring) => ring.refund(units, stamp),
            Form::Log(log) => log.refund(units, stamp),
            Form::InFlight(held) => held.refund(units, stamp),
        }
    }

    /// The units used in the last `interval`: see [`RecentUsage`](crate::RecentUsage).
    ///
    /// # Errors
    /// [`UsageError::Algorithm`] unless the algorithm is [`Algorithm::SlidingBuckets`] or
    /// [`Algorithm::SlidingLog`].
    pub fn usage(&mut self, policy: &Policy, now: Timestamp, interval: Duration) -> Result<u64, UsageError> {
        self.look(policy, now);
        let now = now.as_micros();
        let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        match &self.0 {
            Form::Ring(ring) => Ok(ring.usage(policy, now, interval)),
            Form::Log(log) => Ok(log.usage(now, interval)),
            _ => Err(UsageError::Algorithm(policy.algorithm())),
        }
    }

    #[inline]
    fn reset_us(&self, policy: &Policy, now: u64) -> u64 {
        match &self.0 {
            Form::Tat(tat) => gcra::ahead(policy, now, tat.seen(policy, now)).ceil(),
            Form::Record(record) => gcra::ahead(policy, now, record.seen(policy, now)).ceil(),
            Form::FixedWindow(window) => window.reset_after(policy, now),
            Form::CalendarWindow(window) => window.reset_after(now),
            Form::Block(block) => block.reset_after(now),
            Form::TwoWindows(windows) => windows.reset_after(policy, now),
            Form::Ring(ring) => ring.reset_after(policy, now),
            Form::Log(log) => log.reset_after(policy, now),
            Form::InFlight(held) => held.reset_after(policy),
        }
    }

    #[inline]
    fn belongs_to(&self, policy: &Policy) -> bool {
        match (&self.0, policy.algorithm()) {
            (Form::Tat(_) | Form::Record(_), Algorithm::Gcra | Algorithm::LeakyBucket { .. })
            | (Form::FixedWindow(_), Algorithm::FixedWindow { .. })
            | (Form::CalendarWindow(_), Algorithm::CalendarWindow { .. })
            | (Form::Block(_), Algorithm::Block)
            | (Form::TwoWindows(_), Algorithm::SlidingWindow)
            | (Form::Log(_), Algorithm::SlidingLog { .. })
            | (Form::InFlight(_), Algorithm::InFlight) => true,
            (Form::Ring(ring), Algorithm::SlidingBuckets { buckets }) => ring.has(buckets),
            _ => false,
        }
    }
}

/// What a bucket with this TAT can grant.
#[inline]
fn look_at(policy: &Policy, now: u64, tat: Exact) -> Look {
    let remaining = gcra::remaining(policy, now, tat);
    let room = match policy.algorithm() {
        Algorithm::LeakyBucket { .. } => leaky_bucket::room(policy, now, tat),
        _ => remaining,
    };
    Look { remaining, room }
}

fn stamp_of(tat: Exact) -> Stamp {
    Stamp { us: tat.us, frac: tat.frac }
}

impl Stamp {
    /// The stamp of the rest of a grant after a refund of `units`. Use it for the next refund of
    /// that grant. A refund moves the end of a bucket's debt. With the old stamp, the next refund
    /// would return units that time has already refilled. The units of
    /// [`Algorithm::InFlight`] have an identity each, and are released in a row.
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota, Stamp};
    ///
    /// let a_second_a_unit = Policy::new("api", Quota::per_minute(60));
    /// let stamp = Stamp::new(1_767_225_600_000_000, 0);
    /// assert_eq!(stamp.after_refund(&a_second_a_unit, 2).micros(), stamp.micros() - 2_000_000);
    /// ```
    #[must_use]
    pub fn after_refund(self, policy: &Policy, units: u64) -> Stamp {
        match policy.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => gcra::stamp_after_refund(policy, units, self),
            Algorithm::InFlight => in_flight::after(self, units),
            _ => self,
        }
    }

    /// Until when what was granted may count, at the longest: to the end of its window, until a
    /// bucket in debt is full, or for the time to live of a slot. After that, a correction of it
    /// changes nothing. A charge without a grant, and what is [`Stamp::NEWEST`], are of `now`.
    pub fn counts_until(self, policy: &Policy, now: Timestamp) -> Timestamp {
        let is_of_grant = self != Stamp::NEWEST && self != Stamp::default();
        let granted = is_of_grant.then(|| Timestamp::from_micros(self.us));
        let window = policy.quota().window();
        match policy.algorithm() {
            Algorithm::FixedWindow { aligned } => {
                let since_start = now.as_micros() % policy.quota().window_us();
                let start = now.as_micros() - if aligned { since_start } else { 0 };
                granted.unwrap_or(Timestamp::from_micros(start)).saturating_add(window)
            }
            // Its stamp is the end.
            Algorithm::CalendarWindow { boundaries } => {
                granted.unwrap_or_else(|| Timestamp::from_micros(boundaries.around(now)[2]))
            }
            // As much again may be debt.
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => {
                now.saturating_add(Duration::from_micros(policy.numbers().horizon.us.saturating_mul(2)))
            }
            Algorithm::InFlight | Algorithm::Block => now.saturating_add(window),
            // Windows that slide, with what counts for longer than one.
            _ => now.saturating_add(window * 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_takes_at_most_24_bytes() {
        assert!(size_of::<State>() <= 24, "{}", size_of::<State>());
    }
}
