//! Time in microseconds since the Unix epoch, which every decision gets as a parameter.
//!
//! This is the only module of the published crates that reads a clock.

pub(crate) mod span;
mod wall_clock;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
#[cfg(feature = "tsc")]
use std::{
    sync::{LazyLock, OnceLock},
    time::Instant,
};

#[cfg(feature = "tsc")]
use self::Counter as Timer;
#[cfg(not(feature = "tsc"))]
use self::SystemTimer as Timer;

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
    /// The Unix epoch.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// The latest time: 2^52 µs after the epoch, in the year 2112.
    ///
    /// A state may lie up to 2^52 µs ahead of `now`. Lua computes with doubles, which are exact up
    /// to 2^53, so the sum of both must stay below that.
    pub const MAX: Timestamp = Timestamp(1 << 52);

    /// The time `micros` microseconds after the epoch, at most [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Timestamp {
        if micros > Timestamp::MAX.0 { Timestamp::MAX } else { Timestamp(micros) }
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time that has passed since `earlier`. Zero if `earlier` is later, because a clock
    /// stepped back.
    #[inline]
    pub fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The time `span` later, rounded down to a microsecond, at most [`Timestamp::MAX`].
    #[inline]
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(whole_micros(span)))
    }
}

/// Rounded down. Not in u128, whose arithmetic is slow on the path of every request.
#[inline]
fn whole_micros(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(span.subsec_micros()))
}

/// The clock of a store.
///
/// The system clock is the wall time at its construction plus the monotonic time since then. Steps
/// of the wall clock (by NTP, by an operator, after a suspension) only change decisions of calendar
/// windows: see [`Clock::on_the_wall`]. For tests, a [`ManualClock`] stands still until the test
/// moves it.
///
/// Clones are cheap. Clones of a manual clock share their time.
#[derive(Clone)]
pub struct Clock(TimeSource);

#[derive(Clone)]
enum TimeSource {
    System {
        wall: Timestamp,
        since: Timer,
        /// The steps of the wall clock before the construction, in microseconds.
        stepped_us: i64,
    },
    Manual(Arc<AtomicU64>),
}

static SYSTEM_CLOCKS: AtomicU64 = AtomicU64::new(0);

impl Clock {
    /// The system clock, immune to later steps of the wall clock.
    ///
    /// With the feature `tsc` it reads the processor's time-stamp counter, if that is steady: about
    /// 15 ns less for each request. The counter is calibrated once per process, for up to 200 ms.
    /// On a busy machine the result may be wrong by some hundred parts in a million. Aligned
    /// windows, and resets that are sent as a time, drift by that. After a hibernation the clock of
    /// the operating system is used.
    pub fn system() -> Clock {
        let (wall, since) = (wall_time(), Timer::start());
        SYSTEM_CLOCKS.fetch_add(1, Ordering::Relaxed);
        Clock(TimeSource::System { wall, since, stepped_us: wall_clock::stepped_us(wall) })
    }

    /// The number of system clocks that this process has constructed. A test shows that no decision
    /// constructs one, which reads several clocks.
    #[doc(hidden)]
    pub fn systems_constructed() -> u64 {
        SYSTEM_CLOCKS.load(Ordering::Relaxed)
    }

    /// Whether this clock never goes back: `true` for the system clock, `false` for a
    /// [`ManualClock`]. (If the processor's counter restarts, the system clock may go back by a
    /// fraction of a second.)
    #[inline]
    pub fn only_moves_forward(&self) -> bool {
        matches!(self.0, TimeSource::System { .. })
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            TimeSource::System { wall, since, .. } => {
                Timestamp::from_micros(wall.0.saturating_add(since.elapsed_us()))
            }
            TimeSource::Manual(micros) => Timestamp(micros.load(Ordering::Acquire)),
        }
    }

    /// The time of the wall clock when this clock showed `now`, which may go back. Follows steps of
    /// the wall clock within about a second, for windows of a calendar.
    ///
    /// The first call starts a thread, which reads the wall clock once a second for the whole
    /// process. If that fails, this is `now`. A manual clock has no other time.
    #[inline]
    pub fn on_the_wall(&self, now: Timestamp) -> Timestamp {
        match self.0 {
            TimeSource::System { stepped_us, .. } => wall_clock::followed(now, stepped_us),
            TimeSource::Manual(_) => now,
        }
    }
}

/// The wall clock. A time before 1970 reads as the epoch: a single process only needs differences.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
fn wall_time() -> Timestamp {
    Timestamp::EPOCH.saturating_add(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The time since a start, unaffected by steps of the wall clock.
#[cfg(not(feature = "tsc"))]
#[derive(Clone)]
struct SystemTimer(std::time::Instant);

#[cfg(not(feature = "tsc"))]
impl SystemTimer {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn start() -> SystemTimer {
        SystemTimer(std::time::Instant::now())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    #[inline]
    fn elapsed_us(&self) -> u64 {
        whole_micros(self.0.elapsed())
    }
}

/// Constructed once: that queries the processor, which a virtual machine may emulate.
#[cfg(feature = "tsc")]
static PROCESSOR: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);

/// The same from the time-stamp counter, calibrated once per process.
#[cfg(feature = "tsc")]
#[derive(Clone)]
struct Counter {
    clock: quanta::Clock,
    start: u64,
    /// The same moment by the system clock, which replaces the counter once that has restarted.
    since: Instant,
}

/// The highest value that the counter has shown, updated once per [`SLACK`]; or [`RESTARTED`].
#[cfg(feature = "tsc")]
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// A value above all readings, so that each later reading takes the slow path.
#[cfg(feature = "tsc")]
const RESTARTED: u64 = 1 << 63;

/// The last known value before the counter restarted, and when the restart was noticed.
#[cfg(feature = "tsc")]
static RESTART: OnceLock<(u64, Instant)> = OnceLock::new();

/// How far the counter may be ahead of [`HIGHEST`]: a fraction of a second at several GHz.
#[cfg(feature = "tsc")]
const SLACK: u64 = 1 << 30;

#[cfg(feature = "tsc")]
impl Counter {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn start() -> Counter {
        let clock = &*PROCESSOR;
        let start = || Counter { start: clock.raw(), since: Instant::now(), clock: clock.clone() };
        // If the counter has restarted, the first call notices it.
        start().elapsed_us();
        start()
    }

    #[inline]
    fn elapsed_us(&self) -> u64 {
        let raw = self.clock.raw();
        let highest = HIGHEST.load(Ordering::Acquire);
        if raw.wrapping_sub(highest) > SLACK && self.has_restarted(highest) {
            return self.elapsed_by_system_us();
        }
        self.clock.delta_as_nanos(self.start, raw) / 1_000
    }

    /// Updates [`HIGHEST`], or detects that the counter restarted. That happens after a
    /// hibernation, and time would stand still until the counter has caught up.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    #[cold]
    #[inline(never)]
    fn has_restarted(&self, highest: u64) -> bool {
        if highest == RESTARTED {
            return true;
        }
        // Read again: a suspended thread may have read it long ago.
        let raw = self.clock.raw();
        if raw >= highest {
            HIGHEST.fetch_max(raw, Ordering::Relaxed);
            return false;
        }
        // The counters of two processors may differ a little.
        if highest - raw > SLACK {
            RESTART.get_or_init(|| (highest, Instant::now()));
            HIGHEST.store(RESTARTED, Ordering::Release);
            return true;
        }
        false
    }

    /// Continues from the highest known value. Time goes back by at most `SLACK`.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    fn elapsed_by_system_us(&self) -> u64 {
        whole_micros(match RESTART.get() {
            Some((highest, then)) if self.since < *then => {
                Duration::from_nanos(self.clock.delta_as_nanos(self.start, *highest))
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
            TimeSource::System { .. } => "Clock(system)",
            TimeSource::Manual(_) => "Clock(manual)",
        })
    }
}

/// A clock that a test moves, to test a limit without waiting.
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

    /// Moves the clock forward by `span`, rounded down to a microsecond, up to [`Timestamp::MAX`].
    pub fn advance(&self, span: Duration) {
        let step = |micros| Some(Timestamp(micros).saturating_add(span).0);
        // `step` never returns `None`, so this cannot fail.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
    }

    /// Sets the clock to `now`, also backwards, as after a failover to another server.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::Release);
    }

    /// The time of this clock.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Acquire))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Clock {
        Clock(TimeSource::Manual(Arc::clone(&manual.0)))
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

    /// Simulates a hibernation: the highest known value lies far above what the counter shows.
    #[cfg(feature = "tsc")]
    #[test]
    fn time_continues_when_the_counter_restarts() {
        let clock = Clock::system();
        let before = clock.now();
        let ahead = PROCESSOR.raw() + (1 << 40);
        HIGHEST.fetch_max(ahead, Ordering::Relaxed);
        // The restart has not been noticed when this clock starts.
        let first = Clock::system();
        assert!(first.now() < before.saturating_add(Duration::from_secs(60)), "{before:?} {:?}", first.now());
        let noticed = clock.now();
        assert_eq!(HIGHEST.load(Ordering::Relaxed), RESTARTED);
        assert!(
            noticed > before.saturating_add(Duration::from_secs(60)),
            "it must continue from the highest value: {before:?} {noticed:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
        let after = clock.now();
        assert!(after >= noticed.saturating_add(Duration::from_millis(15)), "{noticed:?} {after:?}");
        assert!(after < noticed.saturating_add(Duration::from_secs(60)), "{noticed:?} {after:?}");
        // Each begins at the wall time. They differ by what passes between two readings.
        for new in [Clock::system(), Clock::system()] {
            let (new, most) = (new.now(), before.saturating_add(Duration::from_secs(60)));
            assert!(new >= before && new < most, "{before:?} {new:?}");
        }
    }

    #[test]
    fn time_saturates_and_never_wraps() {
        assert_eq!(Timestamp::MAX.saturating_add(Duration::MAX), Timestamp::MAX);
        let clock = ManualClock::new(Timestamp::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
