//! When to stop asking a store that fails, and when to look whether it is back.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tollgate_core::Timestamp;

/// When a circuit breaker opens, and when it lets a request find out whether the store is back.
///
/// The last answers that requests got from the store decide when it opens: either trigger is enough. Where requests share
/// calls to the store, a failed call counts once: see [`StoreError::call`](crate::StoreError::call). Errors of kind
/// [`Overloaded`](crate::ErrorKind::Overloaded) or [`Misconfigured`](crate::ErrorKind::Misconfigured) do not count, nor do
/// refunds and resets.
///
/// Then one request at a time, the *probe*, is let through after a wait. A probe that fails, or that is not answered within
/// the wait, doubles the next wait, up to the longest. Every wait is lengthened at random by up to a half, so that the
/// processes of a fleet do not return at the same moment.
///
/// | setting | by default |
/// |---|---|
/// | [`failures_in_a_row`](CircuitBreaker::failures_in_a_row) | 5 |
/// | [`failures_of`](CircuitBreaker::failures_of) | 50 of the last 100 |
/// | [`probe_after`](CircuitBreaker::probe_after) | 500 ms, at the longest 2 s |
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreaker {
    in_a_row: u32,
    failures: u32,
    answers: u32,
    first_wait: Duration,
    longest_wait: Duration,
}

impl Default for CircuitBreaker {
    fn default() -> CircuitBreaker {
        CircuitBreaker {
            in_a_row: 5,
            failures: 50,
            answers: 100,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(2),
        }
    }
}

impl CircuitBreaker {
    /// The most answers that are remembered.
    pub const MEMORY: u32 = u128::BITS;

    /// Opens after this many failures without an answer between them: 1 to [`CircuitBreaker::MEMORY`]. As many as
    /// [`failures_of`](CircuitBreaker::failures_of) asks for open it in a row as well: for more than 50, set both.
    ///
    /// # Panics
    /// If [`CircuitBreaker::try_failures_in_a_row`] would return an error.
    #[must_use]
    pub fn failures_in_a_row(self, failures: u32) -> CircuitBreaker {
        self.try_failures_in_a_row(failures).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`CircuitBreaker::failures_in_a_row`] for a number that is known only at run time.
    ///
    /// # Errors
    /// [`CircuitBreakerError::Failures`].
    pub fn try_failures_in_a_row(self, failures: u32) -> Result<CircuitBreaker, CircuitBreakerError> {
        match failures {
            1..=CircuitBreaker::MEMORY => Ok(CircuitBreaker { in_a_row: failures, ..self }),
            _ => Err(CircuitBreakerError::Failures),
        }
    }

    /// Opens when `failures` of the last `answers` were failures, whatever their order: for a store that fails now and then.
    /// Both are 1 to [`CircuitBreaker::MEMORY`]; of a store that was asked less often, what is missing counts as answered.
    ///
    /// Of a store of which a part may be lost, such as a Cluster with one of its three masters, five answers in a row are failures
    /// by mere chance before long, and now and then 50 of 100: `.failures_in_a_row(70).failures_of(70, 100)` bears that.
    ///
    /// # Panics
    /// If [`CircuitBreaker::try_failures_of`] would return an error.
    #[must_use]
    pub fn failures_of(self, failures: u32, answers: u32) -> CircuitBreaker {
        self.try_failures_of(failures, answers).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`CircuitBreaker::failures_of`] for numbers that are known only at run time.
    ///
    /// # Errors
    /// [`CircuitBreakerError::Failures`]; also for more failures than answers.
    pub fn try_failures_of(self, failures: u32, answers: u32) -> Result<CircuitBreaker, CircuitBreakerError> {
        let fits = (1..=answers).contains(&failures) && answers <= CircuitBreaker::MEMORY;
        if fits {
            Ok(CircuitBreaker { failures, answers, ..self })
        } else {
            Err(CircuitBreakerError::Failures)
        }
    }

    /// The wait before the first probe, and the longest that it grows to, before chance lengthens it.
    ///
    /// # Panics
    /// If [`CircuitBreaker::try_probe_after`] would return an error.
    #[must_use]
    pub fn probe_after(self, first: Duration, longest: Duration) -> CircuitBreaker {
        self.try_probe_after(first, longest).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`CircuitBreaker::probe_after`] for times that are known only at run time.
    ///
    /// # Errors
    /// [`CircuitBreakerError::Wait`] for a first wait below 1 ms, or a longest that is shorter than the first.
    pub fn try_probe_after(
        self,
        first: Duration,
        longest: Duration,
    ) -> Result<CircuitBreaker, CircuitBreakerError> {
        if first < Duration::from_millis(1) || longest < first {
            return Err(CircuitBreakerError::Wait);
        }
        Ok(CircuitBreaker { first_wait: first, longest_wait: longest, ..self })
    }

    /// Whether these answers, the latest in the lowest bit and failures set, open the circuit.
    fn opens(&self, answers: u128) -> bool {
        let last = answers & (u128::MAX >> (CircuitBreaker::MEMORY - self.answers));
        answers.trailing_ones() >= self.in_a_row || last.count_ones() >= self.failures
    }

    /// The wait before the probe that follows so many failed ones.
    fn wait(&self, failed: u32, chance: u64) -> Duration {
        let factor = 1_u32.checked_shl(failed).unwrap_or(u32::MAX);
        let wait = self.first_wait.saturating_mul(factor).min(self.longest_wait);
        // A 64th of a half, 0 to 64 times.
        wait.saturating_add((wait / 128).saturating_mul(u32::try_from(chance % 65).unwrap_or(0)))
    }
}

/// Why something is not a [`CircuitBreaker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitBreakerError {
    /// A number of failures or answers outside of 1 to [`CircuitBreaker::MEMORY`], or more failures than answers.
    Failures,
    /// A first wait below 1 ms, or a longest wait below the first.
    Wait,
}

impl fmt::Display for CircuitBreakerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CircuitBreakerError::Failures => {
                "a circuit breaker opens after 1 to 128 failures, or so many of the last 1 to 128 answers"
            }
            CircuitBreakerError::Wait => {
                "a circuit breaker's first wait must be at least 1 ms, and the longest no shorter than the first"
            }
        })
    }
}

impl std::error::Error for CircuitBreakerError {}

/// Whether a circuit breaker lets requests through to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// All of them.
    Closed,
    /// None: the store failed too often.
    Open,
    /// One, the probe, which finds out whether the store is back.
    HalfOpen,
}

impl CircuitState {
    /// A word for it in logs and metrics, such as `half-open`.
    pub const fn name(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "half-open",
        }
    }
}

/// What a circuit breaker says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Ask the store.
    Pass,
    /// Ask the store, and tell [`Circuit::probed`] what came of it, by this number.
    Probe(u32),
    /// Do not ask before this time.
    Refuse(Timestamp),
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    /// The store answered.
    Answered,
    /// It failed.
    Failed,
    /// Nobody waited for the answer.
    Abandoned,
}

/// The state of a [`CircuitBreaker`]: a state machine that reads no clock and asks no store.
#[derive(Clone, Debug)]
pub(super) struct Circuit {
    settings: CircuitBreaker,
    /// What makes its chances others than those of the rest of the fleet.
    seed: u64,
    phase: Phase,
    /// How many probes there have been, by which an answer is known to be that of the last.
    probes: u32,
    /// How many of them have failed since the store was in order last.
    failed: u32,
    /// The calls that failed last, so that each counts once.
    calls: [Option<u64>; CALLS],
}

/// More calls than a store has in flight at once, as a rule.
const CALLS: usize = 32;

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The last answers, and until when a failure is taken for that of the outage which seemed to be over.
    Closed { answers: u128, fragile_until: Timestamp },
    /// No probe before this time.
    Open { until: Timestamp },
    /// Another probe after this time, if nobody has heard of the last.
    HalfOpen { until: Timestamp },
}

impl Circuit {
    /// A closed circuit. The seed decides how much longer than set its waits are: a different one in each process.
    pub(super) fn new(settings: CircuitBreaker, seed: u64) -> Circuit {
        let phase = Phase::Closed { answers: 0, fragile_until: Timestamp::EPOCH };
        Circuit { settings, seed, phase, probes: 0, failed: 0, calls: [None; CALLS] }
    }

    /// The state.
    pub(super) fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::Open { .. } => CircuitState::Open,
            Phase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// Until when every request is refused; `None` while all pass.
    pub(super) fn refuses_until(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { until } | Phase::HalfOpen { until } => Some(until),
        }
    }

    /// Whether a request may ask the store.
    pub(super) fn admit(&mut self, now: Timestamp) -> Admission {
        match self.phase {
            Phase::Closed { .. } => Admission::Pass,
            Phase::Open { until } | Phase::HalfOpen { until } if now < until => Admission::Refuse(until),
            phase => {
                // A probe that nobody hears of in all that time, such as one whose caller does not let go of it, must not be the
                // last; and is none that succeeded.
                if let Phase::HalfOpen { .. } = phase {
                    self.failed = self.failed.saturating_add(1);
                }
                self.probes = self.probes.wrapping_add(1);
                self.phase = Phase::HalfOpen { until: now.saturating_add(self.wait(now)) };
                Admission::Probe(self.probes)
            }
        }
    }

    /// Counts a failure of a request that was let through by [`Admission::Pass`], while the circuit is closed. Failures of
    /// the same `call` count once. `answered` returns how many requests were answered since the last failure, and starts
    /// that count again.
    pub(super) fn failed(&mut self, now: Timestamp, call: Option<u64>, answered: impl FnOnce() -> u32) {
        if call.is_some() {
            if self.calls.contains(&call) {
                return;
            }
            self.calls.rotate_right(1);
            self.calls[0] = call;
        }
        let Phase::Closed { answers, fragile_until } = &mut self.phase else { return };
        *answers = answers.checked_shl(answered().saturating_add(1)).unwrap_or(0) | 1;
        if self.settings.opens(*answers) {
            // A store that fails as soon as it is asked by all again was never in order.
            if now >= *fragile_until {
                self.failed = 0;
            }
            self.open(now);
        }
    }

    /// What came of the probe of that number.
    pub(super) fn probed(&mut self, now: Timestamp, number: u32, probed: Probed) {
        let Phase::HalfOpen { .. } = self.phase else { return };
        match probed {
            // Though it may be the answer of an earlier probe: the store does answer.
            Probed::Answered => {
                let fragile_until = now.saturating_add(self.wait(now));
                self.phase = Phase::Closed { answers: 0, fragile_until };
            }
            _ if number != self.probes => {}
            Probed::Failed => self.open(now),
            Probed::Abandoned => self.phase = Phase::Open { until: now },
        }
    }

    fn open(&mut self, now: Timestamp) {
        self.phase = Phase::Open { until: now.saturating_add(self.wait(now)) };
        self.failed = self.failed.saturating_add(1);
    }

    fn wait(&self, now: Timestamp) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.seed, now, self.probes).hash(&mut hasher);
        self.settings.wait(self.failed, hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + micros)
    }

    fn circuit(settings: CircuitBreaker) -> Circuit {
        Circuit::new(settings, 1)
    }

    /// Opened by one failure, whose waits are 1 s to 8 s.
    fn fragile() -> CircuitBreaker {
        CircuitBreaker::default().failures_in_a_row(1).probe_after(SECOND, 8 * SECOND)
    }

    #[track_caller]
    fn refused_until(circuit: &mut Circuit, now: Timestamp) -> Timestamp {
        match circuit.admit(now) {
            Admission::Refuse(until) => until,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn probe(circuit: &mut Circuit, now: Timestamp) -> u32 {
        match circuit.admit(now) {
            Admission::Probe(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_between_failures_keep_it_closed() {
        let mut circuit = circuit(CircuitBreaker::default().failures_in_a_row(3).failures_of(128, 128));
        for _ in 0..50 {
            circuit.failed(at(0), None, || 1);
            circuit.failed(at(0), None, || 0);
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
        circuit.failed(at(0), None, || 0);
        assert_eq!(circuit.state(), CircuitState::Open);
    }

    #[test]
    fn a_share_of_failures_opens_it_however_they_are_spread() {
        // (failures, answers, answers between failures, failures after which it opens)
        for (failures, answers, between, after) in [
            (10, 20, 1, 10),
            (10, 20, 2, 0),
            (1, 1, 9, 1),
            (128, 128, 0, 128),
            (42, 128, 2, 42),
            (43, 128, 2, 43),
            (44, 128, 2, 0),
        ] {
            let mut circuit =
                circuit(CircuitBreaker::default().failures_in_a_row(128).failures_of(failures, answers));
            let opened = (1..=300).find(|_| {
                circuit.failed(at(0), None, || between);
                circuit.state() == CircuitState::Open
            });
            assert_eq!(opened.unwrap_or(0), after, "{failures} of {answers}, {between} between");
        }
    }

    #[test]
    fn failures_are_forgotten_after_as_many_answers_as_are_looked_at() {
        let settings = CircuitBreaker::default().failures_in_a_row(100).failures_of(2, 100);
        for (answered, state) in [
            (98, CircuitState::Open),
            (99, CircuitState::Closed),
            (128, CircuitState::Closed),
            (u32::MAX, CircuitState::Closed),
        ] {
            let mut circuit = circuit(settings);
            circuit.failed(at(0), None, || 0);
            circuit.failed(at(0), None, || answered);
            assert_eq!(circuit.state(), state, "{answered}");
        }
    }

    /// A Cluster that has lost one of three masters: what the docs say of that.
    #[test]
    fn a_third_that_fails_by_chance_opens_it_unless_it_is_told_to_bear_that() {
        let opens_within = |settings: CircuitBreaker, requests: u32| {
            let (mut circuit, mut random, mut answered) = (circuit(settings), 1_u64, 0);
            (0..requests).any(|_| {
                // Knuth's MMIX.
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (random >> 33).is_multiple_of(3) {
                    circuit.failed(at(0), None, || answered);
                    answered = 0;
                } else {
                    answered += 1;
                }
                circuit.state() == CircuitState::Open
            })
        };
        assert!(opens_within(CircuitBreaker::default(), 5_000));
        let patient = CircuitBreaker::default().failures_in_a_row(70).failures_of(70, 100);
        assert!(!opens_within(patient, 1_000_000));
    }

    #[test]
    fn there_is_one_probe_at_a_time_and_none_too_early() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let until = refused_until(&mut circuit, at(0));
        assert!(until >= at(1_000_000) && until <= at(1_500_000), "{until:?}");
        assert_eq!(circuit.refuses_until(), Some(until));
        refused_until(&mut circuit, Timestamp::from_micros(until.as_micros() - 1));
        probe(&mut circuit, until);
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        for _ in 0..10 {
            refused_until(&mut circuit, until);
        }
    }

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_it_was_in_order() {
        let mut circuit = circuit(fragile());
        let mut now = at(0);
        circuit.failed(now, None, || 0);
        for wait in [1, 2, 4, 8, 8, 8] {
            let until = refused_until(&mut circuit, now);
            let waited = until.as_micros() - now.as_micros();
            assert!((wait * 1_000_000..=wait * 1_500_000).contains(&waited), "{waited} of {wait} s");
            now = until;
            let number = probe(&mut circuit, now);
            circuit.probed(now, number, Probed::Failed);
        }
        now = refused_until(&mut circuit, now);
        let number = probe(&mut circuit, now);
        circuit.probed(now, number, Probed::Answered);
        // At once again: the store cannot bear what is asked of it.
        circuit.failed(now, None, || 0);
        assert!(refused_until(&mut circuit, now) >= now.saturating_add(8 * SECOND));
        now = refused_until(&mut circuit, now);
        let number = probe(&mut circuit, now);
        circuit.probed(now, number, Probed::Answered);
        now = now.saturating_add(13 * SECOND);
        circuit.failed(now, None, || 0);
        assert!(refused_until(&mut circuit, now) <= now.saturating_add(2 * SECOND));
    }

    #[test]
    fn a_probe_that_was_given_up_makes_room_for_the_next() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let now = refused_until(&mut circuit, at(0));
        for _ in 0..5 {
            let number = probe(&mut circuit, now);
            refused_until(&mut circuit, now);
            circuit.probed(now, number, Probed::Abandoned);
        }
        probe(&mut circuit, now);
    }

    #[test]
    fn a_probe_that_nobody_hears_of_again_is_not_the_last() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let now = refused_until(&mut circuit, at(0));
        let lost = probe(&mut circuit, now);
        let later = refused_until(&mut circuit, now);
        let second = probe(&mut circuit, later);
        // What comes of the first now says nothing of the second, unless it is an answer.
        circuit.probed(later, lost, Probed::Failed);
        circuit.probed(later, lost, Probed::Abandoned);
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        let mut other = circuit.clone();
        other.probed(later, lost, Probed::Answered);
        assert_eq!(other.state(), CircuitState::Closed);
        circuit.probed(later, second, Probed::Failed);
        assert_eq!(circuit.state(), CircuitState::Open);
        circuit.probed(later, second, Probed::Answered);
        assert_eq!(circuit.state(), CircuitState::Open, "it has been told of that probe");
    }

    /// A store whose timeout is longer than the first wait.
    #[test]
    fn probes_that_nothing_is_heard_of_become_rarer() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let (mut now, mut waits) = (at(0), Vec::new());
        for _ in 0..6 {
            let until = refused_until(&mut circuit, now);
            waits.push((until.as_micros() - now.as_micros()) / 1_000_000);
            now = until;
            probe(&mut circuit, now);
        }
        assert_eq!(waits[0], 1, "{waits:?}");
        assert!(waits.iter().zip([1, 2, 4, 8, 8, 8]).all(|(wait, least)| *wait >= least), "{waits:?}");
    }

    #[test]
    fn what_was_asked_before_it_opened_neither_closes_nor_prolongs_it() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let until = circuit.refuses_until();
        for late in 0..100 {
            circuit.failed(at(late * 1_000), None, || 0);
        }
        assert_eq!((circuit.state(), circuit.refuses_until()), (CircuitState::Open, until));
    }

    #[test]
    fn a_fleet_does_not_return_in_step() {
        let mut untils: Vec<u64> = (0..100)
            .map(|seed| {
                let mut circuit = Circuit::new(fragile(), seed);
                circuit.failed(at(0), None, || 0);
                circuit.refuses_until().unwrap().as_micros()
            })
            .collect();
        untils.sort_unstable();
        untils.dedup();
        assert!(untils.len() > 30, "{} different times", untils.len());
        assert!(untils[untils.len() - 1] - untils[0] > 400_000);
    }

    #[test]
    fn time_that_ends_or_steps_back_breaks_nothing() {
        let mut circuit =
            circuit(CircuitBreaker::default().failures_in_a_row(1).probe_after(Duration::MAX, Duration::MAX));
        circuit.failed(Timestamp::MAX, None, || u32::MAX);
        assert_eq!(circuit.refuses_until(), Some(Timestamp::MAX));
        probe(&mut circuit, Timestamp::MAX);
        circuit.probed(Timestamp::EPOCH, 1, Probed::Failed);
        assert_eq!(circuit.admit(Timestamp::EPOCH), Admission::Refuse(Timestamp::MAX));
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let settings = CircuitBreaker::default();
        for failures in [0, 129, u32::MAX] {
            assert_eq!(settings.try_failures_in_a_row(failures), Err(CircuitBreakerError::Failures));
        }
        for (failures, answers) in [(0, 0), (0, 1), (2, 1), (1, 129), (129, 129)] {
            assert_eq!(settings.try_failures_of(failures, answers), Err(CircuitBreakerError::Failures));
        }
        assert!(settings.try_failures_of(128, 128).is_ok());
        for (first, longest) in [(0, 0), (0, 10), (20, 10), (20, 19)] {
            let wait = settings.try_probe_after(Duration::from_millis(first), Duration::from_millis(longest));
            assert_eq!(wait, Err(CircuitBreakerError::Wait), "{first} {longest}");
        }
        assert!(settings.try_probe_after(SECOND, SECOND).is_ok());
    }
}
