//! What the log is told of a store that fails: that it does, and that it answers again; not a line for each request.

use std::error::Error;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate_core::{Clock, StoreError, Timestamp};

/// Tells the log of one store.
#[derive(Debug)]
pub(super) struct Log {
    meaning: &'static str,
    clock: Clock,
    told: Told,
}

impl Log {
    pub(super) fn new(meaning: &'static str) -> Log {
        Log { meaning, clock: Clock::system(), told: Told::default() }
    }

    /// All that a store which does not fail pays: a load.
    #[inline]
    pub(super) fn answers(&self) {
        if self.told.is_failing() {
            self.answers_again();
        }
    }

    #[cold]
    fn answers_again(&self) {
        if self.told.answers() {
            tracing::info!("the rate limit store answers again");
        }
    }

    #[cold]
    pub(super) fn fails(&self, error: &dyn StoreError) {
        let level = if error.is_transient() { WARNING } else { ERROR };
        // Before the clock is read: during an outage this is on every request's way.
        if self.told.knows(level) || !self.told.fails(level, self.clock.now()) {
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

/// What the log was told last.
#[derive(Debug, Default)]
struct Told {
    level: AtomicU8,
    quiet_until: AtomicU64,
}

const NOTHING: u8 = 0;
/// That it fails, and may recover by itself.
const WARNING: u8 = 1;
/// That it fails, and somebody has to mend something.
const ERROR: u8 = 2;

/// The least time between two outages that the log is told of: a store that answers every other request would fill it.
const QUIET: Duration = Duration::from_secs(10);

impl Told {
    #[inline]
    fn is_failing(&self) -> bool {
        self.level.load(Relaxed) != NOTHING
    }

    /// Whether the log was told already that the store fails so.
    #[inline]
    fn knows(&self, level: u8) -> bool {
        self.level.load(Relaxed) >= level
    }

    /// Whether the log has to be told that the store fails.
    fn fails(&self, level: u8, now: Timestamp) -> bool {
        let told = self.level.load(Relaxed);
        let is_quiet = told == NOTHING && now.as_micros() < self.quiet_until.load(Relaxed);
        if is_quiet || self.level.fetch_max(level, Relaxed) >= level {
            return false;
        }
        if told == NOTHING {
            self.quiet_until.store(now.saturating_add(QUIET).as_micros(), Relaxed);
        }
        true
    }

    /// Whether the log has to be told that the store answers.
    fn answers(&self) -> bool {
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
    fn an_outage_is_told_once_and_its_end_once() {
        let told = Told::default();
        assert!(told.fails(WARNING, at(0)));
        assert!(!told.fails(WARNING, at(0)) && !told.fails(WARNING, at(3_600)));
        assert!(told.is_failing() && told.answers());
        assert!(!told.is_failing() && !told.answers());
    }

    #[test]
    fn a_store_that_answers_every_other_request_does_not_fill_the_log() {
        let told = Told::default();
        let mut lines = 0;
        for second in 0..60 {
            for _ in 0..100 {
                lines += u32::from(told.fails(WARNING, at(second))) + u32::from(told.answers());
            }
        }
        assert_eq!(lines, 12, "a pair each 10 s");
    }

    /// Or the last that the log says of it is that it answers.
    #[test]
    fn an_outage_that_began_in_the_quiet_is_told_after_it() {
        let told = Told::default();
        assert!(told.fails(WARNING, at(0)) && told.answers());
        assert!(!told.fails(WARNING, at(1)) && !told.answers(), "nor is told that it has ended");
        assert!(!told.fails(WARNING, at(9)));
        assert!(told.fails(WARNING, at(10)));
    }

    /// A server that restarts with another password refuses connections first.
    #[test]
    fn a_warning_does_not_hide_that_somebody_has_to_mend_something() {
        let told = Told::default();
        assert!(told.fails(WARNING, at(0)));
        assert!(told.fails(ERROR, at(1)));
        assert!(!told.fails(WARNING, at(20)) && !told.fails(ERROR, at(20)));
        assert!(told.answers());
    }
}
