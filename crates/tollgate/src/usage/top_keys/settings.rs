//! The settings of a recorder.

use std::time::Duration;

use tollgate_core::Clock;

/// The most for [`Recording::one_in`].
pub(super) const MOST_ONE_IN: u32 = 1 << 16;

/// The most for [`Recording::keys`].
pub(super) const MOST_KEYS: usize = 10_000;

/// How a process counts usage: see [`TopKeys::record`](super::TopKeys::record).
///
/// ```
/// use std::time::Duration;
/// use tollgate::usage::top_keys::Recording;
///
/// let recording = Recording::default().keys(50).keep_for(Duration::from_secs(24 * 3_600));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Recording {
    pub(super) keys: usize,
    pub(super) one_in: u32,
    pub(super) exact_up_to: u32,
    pub(super) flush_every: Duration,
    pub(super) keep_for: Duration,
    pub(super) clock: Clock,
}

/// How many keys are counted in memory for each key of a page.
const WATCHED: usize = 10;

impl Default for Recording {
    fn default() -> Recording {
        Recording {
            keys: 100,
            one_in: 16,
            exact_up_to: 10_000,
            flush_every: Duration::from_secs(10),
            keep_for: Duration::from_secs(3_600),
            clock: Clock::system(),
        }
    }
}

impl Recording {
    /// Sets how many keys a process stores of each minute: that many that were allowed and that
    /// many that were denied, from 1 to 10,000. The default is 100. It counts ten times as many in
    /// memory.
    pub fn keys(mut self, keys: usize) -> Recording {
        self.keys = keys.clamp(1, MOST_KEYS);
        self
    }

    /// Sets that a busy process counts one in `n` decisions, from 1 to 65,536. The default is 16. A
    /// process counts the first 10,000 decisions of a minute one by one.
    ///
    /// 1 counts every decision, which costs about a tenth of a microsecond for each.
    pub fn one_in(mut self, n: u32) -> Recording {
        self.one_in = n.clamp(1, MOST_ONE_IN);
        self
    }

    /// Sets how often the counts are stored. The default is 10 seconds. A process that is killed
    /// loses what it counted since.
    ///
    /// A time below 100 milliseconds counts as that.
    pub fn flush_every(mut self, interval: Duration) -> Recording {
        self.flush_every = interval.max(Duration::from_millis(100));
        self
    }

    /// Sets how long the counts of a minute are kept after the last flush. The default is an hour.
    pub fn keep_for(mut self, time: Duration) -> Recording {
        self.keep_for = time;
        self
    }

    /// Sets the clock that tells the minutes. A [`ManualClock`](crate::ManualClock) is for tests.
    ///
    /// The default is [`Clock::system`], which does not follow later steps of the wall clock. Start
    /// to count after the machine has set its clock.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Recording {
        self.clock = clock.into();
        self
    }

    /// How many keys are counted in memory, of each outcome.
    pub(super) fn watched(&self) -> usize {
        self.keys * WATCHED
    }
}
