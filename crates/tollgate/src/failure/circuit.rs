//! The state machine of a circuit breaker.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tollgate_core::Timestamp;

use super::circuit_state::CircuitState;
use super::settings::CircuitBreaker;

/// Whether a request may ask the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitAnswer {
    Pass,
    /// Yes, as the probe with this number. Its result goes to [`Circuit::probed`].
    Probe(u32),
    /// Not before this time.
    Refuse(Timestamp),
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    Answered,
    Failed,
    /// The caller left before the answer.
    Abandoned,
}

/// The state machine of a [`CircuitBreaker`]. Reads no clock and asks no store.
#[derive(Clone, Debug)]
pub(super) struct Circuit {
    settings: CircuitBreaker,
    /// Makes the random waits differ from those of other processes.
    seed: u64,
    phase: Phase,
    /// The number of the last probe.
    probes: u32,
    /// Failed probes and openings since the store last worked.
    failed: u32,
    /// The last failed calls, so that each counts once.
    calls: [Option<u64>; CALLS],
}

/// More than a store usually has in flight.
const CALLS: usize = 32;

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The last answers. A failure before `fragile_until` belongs to the previous outage.
    Closed { answers: u128, fragile_until: Timestamp },
    /// The next probe is due at `until`.
    Open { until: Timestamp },
    /// A probe is in flight. Another one is due at `until`, if its result is still unknown then.
    HalfOpen { until: Timestamp },
}

impl Circuit {
    /// A closed circuit. The seed of the random waits should differ between processes.
    pub(super) fn new(settings: CircuitBreaker, seed: u64) -> Circuit {
        let phase = Phase::Closed { answers: 0, fragile_until: Timestamp::EPOCH };
        Circuit { settings, seed, phase, probes: 0, failed: 0, calls: [None; CALLS] }
    }

    pub(super) fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::Open { .. } => CircuitState::Open,
            Phase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// When the refusals end; `None` if the circuit is closed.
    pub(super) fn refuses_until(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { until } | Phase::HalfOpen { until } => Some(until),
        }
    }

    pub(super) fn admit(&mut self, now: Timestamp) -> CircuitAnswer {
        match self.phase {
            Phase::Closed { .. } => CircuitAnswer::Pass,
            Phase::Open { until } | Phase::HalfOpen { until } if now < until => CircuitAnswer::Refuse(until),
            phase => {
                // A probe without a result, such as one that its caller never polls, counts as
                // failed and must not be the last.
                if let Phase::HalfOpen { .. } = phase {
                    self.failed = self.failed.saturating_add(1);
                }
                self.probes = self.probes.wrapping_add(1);
                self.phase = Phase::HalfOpen { until: now.saturating_add(self.wait(now)) };
                CircuitAnswer::Probe(self.probes)
            }
        }
    }

    /// Counts a failure of a request admitted by [`CircuitAnswer::Pass`], if the circuit is closed.
    /// Failures of the same `call` count once. `answered` returns the answers since the last
    /// failure and resets that count.
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
            // A store that fails as soon as all requests reach it again never recovered.
            if now >= *fragile_until {
                self.failed = 0;
            }
            self.open(now);
        }
    }

    /// Records the result of the probe with this number.
    pub(super) fn probed(&mut self, now: Timestamp, number: u32, probed: Probed) {
        let Phase::HalfOpen { .. } = self.phase else { return };
        match probed {
            // Even the answer of an earlier probe shows that the store works.
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
    use crate::errors::SetupError;

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
            CircuitAnswer::Refuse(until) => until,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn probe(circuit: &mut Circuit, now: Timestamp) -> u32 {
        match circuit.admit(now) {
            CircuitAnswer::Probe(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_between_failures_keep_the_circuit_closed() {
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
    fn a_share_of_failures_opens_the_circuit_in_any_order() {
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
    fn failures_are_forgotten_after_the_configured_number_of_answers() {
        let settings = CircuitBreaker::default().failures_in_a_row(100).failures_of(2, 100);
        for (answered, state) in [
            (98, CircuitState::Open),
            (99, CircuitState::Closed),
            (128, CircuitState::Closed),
            (u32::MAX, CircuitState::Closed),
        ] {
            let mut circuit = circuit(settings.clone());
            circuit.failed(at(0), None, || 0);
            circuit.failed(at(0), None, || answered);
            assert_eq!(circuit.state(), state, "{answered}");
        }
    }

    /// A Cluster that lost one of three masters, as `failures_of` says.
    #[test]
    fn a_lost_third_opens_the_circuit_unless_the_settings_tolerate_it() {
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
    fn one_probe_at_a_time_and_none_before_the_wait() {
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
    fn waits_double_to_the_longest_and_restart_after_a_recovery() {
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
        // Fails again at once: the store cannot handle the load.
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
    fn an_abandoned_probe_makes_room_for_the_next() {
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
    fn a_probe_without_a_result_is_followed_by_another() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let now = refused_until(&mut circuit, at(0));
        let lost = probe(&mut circuit, now);
        let later = refused_until(&mut circuit, now);
        let second = probe(&mut circuit, later);
        // A late result of the first probe does not count for the second, unless it is an answer.
        circuit.probed(later, lost, Probed::Failed);
        circuit.probed(later, lost, Probed::Abandoned);
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        let mut other = circuit.clone();
        other.probed(later, lost, Probed::Answered);
        assert_eq!(other.state(), CircuitState::Closed);
        circuit.probed(later, second, Probed::Failed);
        assert_eq!(circuit.state(), CircuitState::Open);
        circuit.probed(later, second, Probed::Answered);
        assert_eq!(circuit.state(), CircuitState::Open, "the result of that probe is known");
    }

    /// The timeout of the store is longer than the first wait.
    #[test]
    fn probes_without_a_result_become_rarer() {
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
    fn late_failures_neither_close_nor_prolong_an_open_circuit() {
        let mut circuit = circuit(fragile());
        circuit.failed(at(0), None, || 0);
        let until = circuit.refuses_until();
        for late in 0..100 {
            circuit.failed(at(late * 1_000), None, || 0);
        }
        assert_eq!((circuit.state(), circuit.refuses_until()), (CircuitState::Open, until));
    }

    #[test]
    fn processes_of_a_fleet_probe_at_different_times() {
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
    fn the_circuit_survives_the_end_of_time_and_steps_back() {
        let mut circuit =
            circuit(CircuitBreaker::default().failures_in_a_row(1).probe_after(Duration::MAX, Duration::MAX));
        circuit.failed(Timestamp::MAX, None, || u32::MAX);
        assert_eq!(circuit.refuses_until(), Some(Timestamp::MAX));
        probe(&mut circuit, Timestamp::MAX);
        circuit.probed(Timestamp::EPOCH, 1, Probed::Failed);
        assert_eq!(circuit.admit(Timestamp::EPOCH), CircuitAnswer::Refuse(Timestamp::MAX));
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let settings = CircuitBreaker::default();
        for failures in [0, 129, u32::MAX] {
            assert_eq!(
                settings.clone().try_failures_in_a_row(failures).err(),
                Some(SetupError::BreakerFailures)
            );
        }
        for (failures, answers) in [(0, 0), (0, 1), (2, 1), (1, 129), (129, 129)] {
            assert_eq!(
                settings.clone().try_failures_of(failures, answers).err(),
                Some(SetupError::BreakerFailures)
            );
        }
        assert!(settings.clone().try_failures_of(128, 128).is_ok());
        for (first, longest) in [(0, 0), (0, 10), (20, 10), (20, 19)] {
            let wait = settings
                .clone()
                .try_probe_after(Duration::from_millis(first), Duration::from_millis(longest));
            assert_eq!(wait.err(), Some(SetupError::BreakerWait), "{first} {longest}");
        }
        assert!(settings.try_probe_after(SECOND, SECOND).is_ok());
    }
}
