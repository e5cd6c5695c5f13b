//! The settings of a circuit breaker.

use std::time::Duration;

use tollgate_core::Clock;

use super::event::{Event, EventObservers};
use crate::errors::{SetupError, or_panic};

/// Settings of a circuit breaker: when it opens, and when it probes whether the store is back.
///
/// It opens by the last answers of the store; either of the two triggers is enough. If requests
/// share a call to the store, a failed call counts once: see
/// [`StoreError::call`](crate::store::StoreError::call). So does a stall of Redis, whatever the
/// load; a silence of twice the timeout or more is one failure after another. Errors of kind
/// [`Overloaded`](crate::store::ErrorKind::Overloaded), [`Moving`](crate::store::ErrorKind::Moving)
/// or [`Misconfigured`](crate::store::ErrorKind::Misconfigured) do not count, nor do refunds and
/// resets.
///
/// After a wait, an open circuit admits one request at a time, the *probe*. A probe that fails, or
/// gets no answer within the wait, doubles the next wait, up to the longest. Every wait is extended
/// at random by up to a half, so that the processes of a fleet do not return at the same moment.
///
/// | setting | default |
/// |---|---|
/// | [`failures_in_a_row`](CircuitBreaker::failures_in_a_row) | 5 |
/// | [`failures_of`](CircuitBreaker::failures_of) | 50 of the last 100 |
/// | [`probe_after`](CircuitBreaker::probe_after) | 500 ms, at most 2 s |
///
/// ```
/// use std::time::Duration;
/// use tollgate::CircuitBreaker;
///
/// let eager = CircuitBreaker::default()
///     .failures_in_a_row(3)
///     .failures_of(10, 50)
///     .probe_after(Duration::from_millis(100), Duration::from_secs(5));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CircuitBreaker {
    in_a_row: u32,
    failures: u32,
    answers: u32,
    first_wait: Duration,
    longest_wait: Duration,
    pub(super) clock: Clock,
    pub(super) observers: EventObservers,
}

impl Default for CircuitBreaker {
    fn default() -> CircuitBreaker {
        CircuitBreaker {
            in_a_row: 5,
            failures: 50,
            answers: 100,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(2),
            clock: Clock::system(),
            observers: EventObservers::default(),
        }
    }
}

impl CircuitBreaker {
    /// How many of the last answers it remembers.
    pub const MEMORY: u32 = u128::BITS;

    /// Opens after this many failures in a row: 1 to [`CircuitBreaker::MEMORY`].
    ///
    /// [`failures_of`](CircuitBreaker::failures_of) also counts failures in a row: for more than
    /// 50, set both.
    ///
    /// # Panics
    /// If [`CircuitBreaker::try_failures_in_a_row`] would return an error.
    #[track_caller]
    pub fn failures_in_a_row(self, failures: u32) -> CircuitBreaker {
        or_panic(self.try_failures_in_a_row(failures))
    }

    /// [`CircuitBreaker::failures_in_a_row`] for a number that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::BreakerFailures`].
    pub fn try_failures_in_a_row(self, failures: u32) -> Result<CircuitBreaker, SetupError> {
        match failures {
            1..=CircuitBreaker::MEMORY => Ok(CircuitBreaker { in_a_row: failures, ..self }),
            _ => Err(SetupError::BreakerFailures),
        }
    }

    /// Opens when `failures` of the last `answers` are failures, in any order: for a store that
    /// fails now and then. Both are 1 to [`CircuitBreaker::MEMORY`]. Before the store was asked
    /// that often, the missing answers count as successes.
    ///
    /// A Cluster that lost one of three masters soon fails five times in a row by chance, and at
    /// times 50 of 100. `.failures_in_a_row(70).failures_of(70, 100)` tolerates that.
    ///
    /// # Panics
    /// If [`CircuitBreaker::try_failures_of`] would return an error.
    #[track_caller]
    pub fn failures_of(self, failures: u32, answers: u32) -> CircuitBreaker {
        or_panic(self.try_failures_of(failures, answers))
    }

    /// [`CircuitBreaker::failures_of`] for numbers that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::BreakerFailures`], also for more failures than answers.
    pub fn try_failures_of(self, failures: u32, answers: u32) -> Result<CircuitBreaker, SetupError> {
        let fits = (1..=answers).contains(&failures) && answers <= CircuitBreaker::MEMORY;
        if fits { Ok(CircuitBreaker { failures, answers, ..self }) } else { Err(SetupError::BreakerFailures) }
    }

    /// Sets the wait before the first probe, and the longest wait, both before the random
    /// extension.
    ///
    /// # Panics
    /// If [`CircuitBreaker::try_probe_after`] would return an error.
    #[track_caller]
    pub fn probe_after(self, first: Duration, longest: Duration) -> CircuitBreaker {
        or_panic(self.try_probe_after(first, longest))
    }

    /// [`CircuitBreaker::probe_after`] for times that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::BreakerWait`] for a first wait below 1 ms, or a longest that is shorter than
    /// the first.
    pub fn try_probe_after(self, first: Duration, longest: Duration) -> Result<CircuitBreaker, SetupError> {
        if first < Duration::from_millis(1) || longest < first {
            return Err(SetupError::BreakerWait);
        }
        Ok(CircuitBreaker { first_wait: first, longest_wait: longest, ..self })
    }

    /// Calls `observe` for every [`Event::Circuit`], within a request: it must not block. Several
    /// observers may be added.
    ///
    /// Two events of the same moment may arrive in either order. To show the state, read
    /// [`CircuitView::state`](crate::failure::CircuitView::state).
    pub fn observe(mut self, observe: impl Fn(Event) + Send + Sync + 'static) -> CircuitBreaker {
        self.observers.add(observe);
        self
    }

    /// Sets the clock. A [`ManualClock`](crate::ManualClock) is for tests.
    pub fn clock(self, clock: impl Into<Clock>) -> CircuitBreaker {
        CircuitBreaker { clock: clock.into(), ..self }
    }

    /// Whether these answers open the circuit. The latest is the lowest bit; a failure is a 1.
    pub(super) fn opens(&self, answers: u128) -> bool {
        let last = answers & (u128::MAX >> (CircuitBreaker::MEMORY - self.answers));
        answers.trailing_ones() >= self.in_a_row || last.count_ones() >= self.failures
    }

    /// The wait before the next probe, after `failed` failed ones.
    pub(super) fn wait(&self, failed: u32, chance: u64) -> Duration {
        let factor = 1_u32.checked_shl(failed).unwrap_or(u32::MAX);
        let wait = self.first_wait.saturating_mul(factor).min(self.longest_wait);
        // Adds 0 to 64 steps of a 128th.
        wait.saturating_add((wait / 128).saturating_mul(u32::try_from(chance % 65).unwrap_or(0)))
    }
}
