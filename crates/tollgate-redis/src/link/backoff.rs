//! When to try to connect again.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Clock, Timestamp};

use crate::error::Error;

/// The first pause; each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Exponential backoff between attempts to connect. During a pause all callers fail at once, with
/// the last error. Pauses have jitter, so that a fleet does not return in step.
pub(super) struct Backoff {
    clock: Clock,
    random: RandomState,
    failing: Mutex<Option<Failing>>,
}

struct Failing {
    attempts: u32,
    until: Timestamp,
    last: Error,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff { clock: Clock::system(), random: RandomState::new(), failing: Mutex::new(None) }
    }

    /// Fails with the last error until the pause is over.
    pub(super) fn check(&self) -> Result<(), Error> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failing {
            Some(failing) if self.clock.now() < failing.until => Err(failing.last.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn failed(&self, error: Error) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let attempts = failing.as_ref().map_or(0, |failing| failing.attempts.saturating_add(1));
        let whole = FIRST_PAUSE.saturating_mul(1 << attempts.min(10)).min(LONGEST_PAUSE);
        // Jitter: between half of the pause and the whole.
        let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX) / 2;
        let pause = Duration::from_micros(micros + self.random.hash_one((now, attempts)) % (micros + 1));
        *failing = Some(Failing { attempts, until: now.saturating_add(pause), last: error });
    }

    pub(super) fn succeeded(&self) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The error of the last attempt, if it failed.
    pub(super) fn last(&self) -> Option<Error> {
        self.failing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|failing| failing.last.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least and the most that the next pause can be, whatever the machine does meanwhile.
    fn next_pause(backoff: &Backoff) -> (u64, u64) {
        let before = backoff.clock.now().as_micros();
        backoff.failed(Error::config("refused"));
        let until = backoff.failing.lock().unwrap().as_ref().unwrap().until.as_micros();
        (until.saturating_sub(backoff.clock.now().as_micros()), until - before)
    }

    #[test]
    fn pauses_grow_with_jitter_and_end_on_success() {
        let backoff = Backoff::new();
        assert!(backoff.check().is_ok());
        let pauses: Vec<_> = (0..20).map(|_| next_pause(&backoff)).collect();
        assert!(backoff.check().is_err());
        assert!(pauses[0].0 <= 10_000 && pauses[19].0 <= 500_000, "{pauses:?}");
        assert!(pauses[10..].iter().all(|(_, most)| *most >= 250_000), "{pauses:?}");
        backoff.succeeded();
        assert!(backoff.check().is_ok());
    }

    /// Stores that lose a server together do not come back together.
    #[test]
    fn pauses_of_stores_differ() {
        let backoffs: Vec<Backoff> = (0..40).map(|_| Backoff::new()).collect();
        let all: Vec<_> = backoffs
            .iter()
            .map(|backoff| (0..8).map(|_| next_pause(backoff)).last().unwrap_or_default())
            .collect();
        // Each is in the longer or in the shorter half of what it may be.
        let (long, short) = (
            all.iter().filter(|(least, _)| *least > 375_000),
            all.iter().filter(|(_, most)| *most < 375_000),
        );
        assert!(long.count() >= 4 && short.count() >= 4, "{all:?}");
    }
}
