//! Logs when a store begins to fail and when it answers again, instead of a line per request.

use std::error::Error;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate_core::{Clock, StoreError, Timestamp};

/// The log of one store.
#[derive(Debug)]
pub(super) struct OutageLog {
    meaning: &'static str,
    clock: Clock,
    logged: Logged,
}

impl OutageLog {
    pub(super) fn new(meaning: &'static str) -> OutageLog {
        OutageLog { meaning, clock: Clock::system(), logged: Logged::default() }
    }

    /// Costs one atomic load while the store works.
    #[inline]
    pub(super) fn answered(&self) {
        if self.logged.is_failing() {
            self.recovered();
        }
    }

    #[cold]
    fn recovered(&self) {
        if self.logged.recovers() {
            tracing::info!("the rate limit store answers again");
        }
    }

    #[cold]
    pub(super) fn failed(&self, error: &dyn StoreError) {
        let level = if error.is_transient() { WARNING } else { ERROR };
        // Checked before the clock is read: during an outage every request comes here.
        if self.logged.includes(level) || !self.logged.fails(level, self.clock.now()) {
            return;
        }
        let (meaning, cause) = (self.meaning, error as &(dyn Error + 'static));
        if level == WARNING {
            tracing::warn!(error = cause, "the rate limit store fails: {meaning} until it answers again");
        } else {
            tracing::error!(
                error = cause,
                "the rate limit store fails, and will not recover by itself: {meaning} until it answers again"
            );
        }
    }
}

/// What was logged last.
#[derive(Debug, Default)]
struct Logged {
    level: AtomicU8,
    quiet_until: AtomicU64,
}

const NOTHING: u8 = 0;
/// The store fails, and may recover by itself.
const WARNING: u8 = 1;
/// The store fails until an operator fixes it.
const ERROR: u8 = 2;

/// The shortest time between two logged outages: a store that fails every other request would fill
/// the log.
const QUIET: Duration = Duration::from_secs(10);

impl Logged {
    #[inline]
    fn is_failing(&self) -> bool {
        self.level.load(Relaxed) != NOTHING
    }

    /// Whether a failure of this level was already logged.
    #[inline]
    fn includes(&self, level: u8) -> bool {
        self.level.load(Relaxed) >= level
    }

    /// Records a failure. Returns whether to log it.
    fn fails(&self, level: u8, now: Timestamp) -> bool {
        let before = self.level.load(Relaxed);
        let is_quiet = before == NOTHING && now.as_micros() < self.quiet_until.load(Relaxed);
        if is_quiet || self.level.fetch_max(level, Relaxed) >= level {
            return false;
        }
        if before == NOTHING {
            self.quiet_until.store(now.saturating_add(QUIET).as_micros(), Relaxed);
        }
        true
    }

    /// Records an answer. Returns whether to log it.
    fn recovers(&self) -> bool {
        self.level.swap(NOTHING, Relaxed) != NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Timestamp {
        Timestamp::EPOCH.saturating_add(seconds * SECOND)
    }

    #[test]
    fn an_outage_and_its_end_are_logged_once() {
        let logged = Logged::default();
        assert!(logged.fails(WARNING, at(0)));
        assert!(!logged.fails(WARNING, at(0)) && !logged.fails(WARNING, at(3_600)));
        assert!(logged.is_failing() && logged.recovers());
        assert!(!logged.is_failing() && !logged.recovers());
    }

    #[test]
    fn a_store_that_fails_every_other_request_does_not_fill_the_log() {
        let logged = Logged::default();
        let mut lines = 0;
        for second in 0..60 {
            for _ in 0..100 {
                lines += u32::from(logged.fails(WARNING, at(second))) + u32::from(logged.recovers());
            }
        }
        assert_eq!(lines, 12, "two lines every 10 s");
    }

    /// Otherwise the last line of the log would say that the store answers.
    #[test]
    fn an_outage_that_begins_in_the_quiet_time_is_logged_after_it() {
        let logged = Logged::default();
        assert!(logged.fails(WARNING, at(0)) && logged.recovers());
        assert!(!logged.fails(WARNING, at(1)) && !logged.recovers(), "its end is not logged either");
        assert!(!logged.fails(WARNING, at(9)));
        assert!(logged.fails(WARNING, at(10)));
    }

    /// A server that restarts with another password first refuses connections.
    #[test]
    fn an_error_is_logged_after_a_warning() {
        let logged = Logged::default();
        assert!(logged.fails(WARNING, at(0)));
        assert!(logged.fails(ERROR, at(1)));
        assert!(!logged.fails(WARNING, at(20)) && !logged.fails(ERROR, at(20)));
        assert!(logged.recovers());
    }
}
