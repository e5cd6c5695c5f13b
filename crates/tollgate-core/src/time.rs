//! Time, as every decision sees it: microseconds since the Unix epoch, handed in as a parameter.
//!
//! This is the only module of the published crates that reads a clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
#[cfg(feature = "tsc")]
use std::{sync::OnceLock, time::Instant};

/// A point in time: whole microseconds since the Unix epoch, at most [`Timestamp::MAX`].
///
/// ```
/// use tollgate_core::Timestamp;
///
/// let t = Timestamp::from_micros(1_500_000);
/// assert_eq!(t.as_micros(), 1_500_000);
/// assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// The latest representable time, 2^52 µs after the epoch (in the year 2112).
    ///
    /// A state may lie up to 2^52 µs ahead of `now`, and the sum of the two must stay below 2^53, where the
    /// doubles that Lua computes with cease to be exact.
    pub const MAX: Timestamp = Timestamp(1 << 52);

    /// The time `micros` microseconds after the epoch; later than [`Timestamp::MAX`] becomes that.
    pub const fn from_micros(micros: u64) -> Timestamp {
        if micros > Timestamp::MAX.0 { Timestamp::MAX } else { Timestamp(micros) }
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time `span` later, rounded down to a microsecond, at most [`Timestamp::MAX`].
    #[inline]
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(whole_micros(span)))
    }
}

/// Rounded down. In u64, since this is on every request's way and arithmetic in u128 is not cheap.
#[inline]
fn whole_micros(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(span.subsec_micros()))
}

/// What a store asks for the time.
///
/// The system clock is the wall time at the moment of its construction plus the monotonic time elapsed since:
/// a wall clock that is stepped (by NTP, by an operator) changes no decision. A [`ManualClock`] stands still
/// until it is told otherwise, for tests.
///
/// Cloning is cheap, and clones of a manual clock share their time.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System { wall: Timestamp, since: Monotonic },
    Manual(Arc<AtomicU64>),
}

/// See [`Clock::systems_constructed`].
static SYSTEMS: AtomicU64 = AtomicU64::new(0);

impl Clock {
    /// The system's clock, immune to later steps of the wall clock.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn system() -> Clock {
        // A wall clock set before 1970 reads as the epoch: only differences matter to a single process.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SYSTEMS.fetch_add(1, Ordering::Relaxed);
        Clock(Source::System { wall: Timestamp::EPOCH.saturating_add(wall), since: Monotonic::start() })
    }

    /// How many system clocks this process has constructed: for the test that no decision constructs one, which is dear
    /// where the processor's features have to be asked for.
    #[doc(hidden)]
    pub fn systems_constructed() -> u64 {
        SYSTEMS.load(Ordering::Relaxed)
    }

    /// Whether it never goes back: the system's does not (but by a moment where a processor's counter begins anew), a
    /// [`ManualClock`] may be set.
    #[inline]
    pub fn only_moves_forward(&self) -> bool {
        matches!(self.0, Source::System { .. })
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { wall, since } => {
                Timestamp::from_micros(wall.0.saturating_add(since.elapsed_us()))
            }
            Source::Manual(micros) => Timestamp(micros.load(Ordering::Acquire)),
        }
    }
}

/// The time since a start, which no step of the wall clock changes.
#[cfg(not(feature = "tsc"))]
#[derive(Clone)]
struct Monotonic(std::time::Instant);

#[cfg(not(feature = "tsc"))]
impl Monotonic {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn start() -> Monotonic {
        Monotonic(std::time::Instant::now())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    #[inline]
    fn elapsed_us(&self) -> u64 {
        whole_micros(self.0.elapsed())
    }
}

/// The same by the time-stamp counter. The counter is calibrated once for the process, at the first clock: constructing a
/// clock asks the processor what it can do, which a virtual machine may have to answer in its stead, so that no decision
/// ever constructs one.
#[cfg(feature = "tsc")]
#[derive(Clone)]
struct Monotonic {
    clock: quanta::Clock,
    start: u64,
    /// The same moment by the system's clock, by which it goes on where the counter has begun anew.
    since: Instant,
}

/// What the counter has shown at least, written now and then; or that it has begun anew, and tells nothing from then on.
#[cfg(feature = "tsc")]
static SHOWN: AtomicU64 = AtomicU64::new(0);

/// More than it ever shows: from this, all that it does show is far.
#[cfg(feature = "tsc")]
const BEGUN_ANEW: u64 = 1 << 63;

/// What the counter had shown when it was found to have begun anew, and when that was.
#[cfg(feature = "tsc")]
static BEFORE: OnceLock<(u64, Instant)> = OnceLock::new();

/// By so much the counter may be ahead of what it is known to have shown: a fraction of a second, at several GHz.
#[cfg(feature = "tsc")]
const UNNOTICED: u64 = 1 << 30;

#[cfg(feature = "tsc")]
impl Monotonic {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn start() -> Monotonic {
        let clock = quanta::Clock::new();
        let begin = || Monotonic { start: clock.raw(), since: Instant::now(), clock: clock.clone() };
        // If the counter has begun anew and nobody has noticed, the first does, and the second begins after that.
        begin().elapsed_us();
        begin()
    }

    #[inline]
    fn elapsed_us(&self) -> u64 {
        let raw = self.clock.raw();
        let shown = SHOWN.load(Ordering::Acquire);
        if raw.wrapping_sub(shown) > UNNOTICED && self.has_begun_anew(shown) {
            return self.elapsed_by_system_us();
        }
        self.clock.delta_as_nanos(self.start, raw) / 1_000
    }

    /// Notes what the counter shows; or that it shows less than it did. A machine that has hibernated starts it again, and the
    /// time would stand still for as long as that had been up.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    #[cold]
    #[inline(never)]
    fn has_begun_anew(&self, shown: u64) -> bool {
        if shown == BEGUN_ANEW {
            return true;
        }
        // Read again: it may be long ago that it was read, by a thread that was held up.
        let raw = self.clock.raw();
        if raw >= shown {
            // Whoever is late has less to say.
            SHOWN.fetch_max(raw, Ordering::Relaxed);
            return false;
        }
        // The counters of two processors need not be exactly even.
        if shown - raw > UNNOTICED {
            BEFORE.get_or_init(|| (shown, Instant::now()));
            SHOWN.store(BEGUN_ANEW, Ordering::Release);
            return true;
        }
        false
    }

    /// From what was noted last: it does not leap, and goes back by no more than had not been noted, `UNNOTICED`.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn elapsed_by_system_us(&self) -> u64 {
        whole_micros(match BEFORE.get() {
            Some((shown, then)) if self.since < *then => {
                Duration::from_nanos(self.clock.delta_as_nanos(self.start, *shown))
                    .saturating_add(then.elapsed())
            }
            _ => self.since.elapsed(),
        })
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System { .. } => "Clock(system)",
            Source::Manual(_) => "Clock(manual)",
        })
    }
}

/// A clock that moves only when told: the way to test a limit without waiting for it.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Clock, ManualClock, Timestamp};
///
/// let time = ManualClock::new(Timestamp::from_micros(1_000_000));
/// let clock = Clock::from(&time);
/// time.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Timestamp::from_micros(3_000_000));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn new(now: Timestamp) -> ManualClock {
        ManualClock(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves forward by `span`, rounded down to a microsecond; stops at [`Timestamp::MAX`].
    pub fn advance(&self, span: Duration) {
        let step = |micros| Some(Timestamp(micros).saturating_add(span).0);
        // The closure never returns None, so this cannot fail.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
    }

    /// Jumps to `now`, backwards too, as the clock of a failed-over server may.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::Release);
    }

    /// The time at which it stands.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Acquire))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Clock {
        Clock(Source::Manual(Arc::clone(&manual.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward_from_the_wall_time() {
        let clock = Clock::system();
        let (a, b) = (clock.now(), clock.now());
        assert!(a <= b);
        assert!(a.as_micros() > 1_600_000_000_000_000, "{a:?} is before 2020");
    }

    /// As after a hibernation: what the counter has shown then lies far ahead of what it shows.
    #[cfg(feature = "tsc")]
    #[test]
    fn a_counter_that_begins_anew_does_not_stop_the_time() {
        let clock = Clock::system();
        let before = clock.now();
        let ahead = quanta::Clock::new().raw() + (1 << 40);
        SHOWN.fetch_max(ahead, Ordering::Relaxed);
        // Nobody has noticed when this one begins.
        let first = Clock::system();
        assert!(first.now() < before.saturating_add(Duration::from_secs(60)), "{before:?} {:?}", first.now());
        let noticed = clock.now();
        assert_eq!(SHOWN.load(Ordering::Relaxed), BEGUN_ANEW);
        assert!(
            noticed > before.saturating_add(Duration::from_secs(60)),
            "it goes on from there: {before:?} {noticed:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
        let after = clock.now();
        assert!(after >= noticed.saturating_add(Duration::from_millis(15)), "{noticed:?} {after:?}");
        assert!(after < noticed.saturating_add(Duration::from_secs(60)), "{noticed:?} {after:?}");
        let (new, later) = (Clock::system(), Clock::system());
        let (new, later) = (new.now(), later.now());
        assert!(
            new >= before && later >= new && later < before.saturating_add(Duration::from_secs(60)),
            "{new:?} {later:?}"
        );
    }

    #[test]
    fn time_saturates_and_never_wraps() {
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
        let clock = ManualClock::new(Timestamp::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
