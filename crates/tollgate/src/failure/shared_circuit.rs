//! The circuit that clones of a store share: a store that fails is not asked for a while.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tollgate_core::{ErrorKind, StoreError, Timestamp};

use super::circuit::{Circuit, CircuitAnswer, Probed};
use super::circuit_state::CircuitState;
use super::event::Event;
use super::settings::CircuitBreaker;
use super::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use super::sync::{Mutex, MutexGuard};

/// A view of the state of a circuit. Does not keep the store alive.
#[derive(Clone, Debug)]
pub struct CircuitView(Option<Arc<SharedCircuit>>);

impl CircuitView {
    pub(super) fn of(circuit: Option<Arc<SharedCircuit>>) -> CircuitView {
        CircuitView(circuit)
    }

    /// The current state: [`CircuitState::Closed`] without a circuit breaker.
    pub fn state(&self) -> CircuitState {
        self.0.as_ref().map_or(CircuitState::Closed, |circuit| circuit.circuit().state())
    }
}

/// Shared by the clones of a store.
pub(super) struct SharedCircuit {
    settings: CircuitBreaker,
    circuit: Mutex<Circuit>,
    /// When the refusals end, in microseconds, so that most requests need no lock; 0 if the circuit
    /// is closed.
    refuses_until: AtomicU64,
    /// Answers since the last failure, counted up to what the circuit remembers.
    answered: AtomicU32,
    /// How often the circuit closed.
    closings: AtomicU32,
}

/// The role of a check for the circuit. Nothing else has one: the answers to refunds, corrections,
/// renewals, resets, empty requests and checks in shadow do not count.
#[derive(Debug)]
pub(super) enum Role {
    /// A check under a closed circuit, and how often the circuit had closed before. Its failure
    /// does not count if a probe was answered since.
    Passing(u32),
    /// The probe.
    Probe(Probe),
}

/// The probe with this number. If its caller leaves, the next request becomes the probe.
#[derive(Debug)]
pub(super) struct Probe {
    circuit: Arc<SharedCircuit>,
    number: u32,
    result: Probed,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.circuit.probed(self.number, self.result);
    }
}

impl SharedCircuit {
    pub(super) fn new(settings: CircuitBreaker) -> SharedCircuit {
        let seed = RandomState::new().hash_one(0);
        SharedCircuit {
            circuit: Mutex::new(Circuit::new(settings.clone(), seed)),
            settings,
            refuses_until: AtomicU64::new(0),
            answered: AtomicU32::new(0),
            closings: AtomicU32::new(0),
        }
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The role of a check, or the time until the next probe.
    #[inline]
    pub(super) fn admit(self: &Arc<Self>) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            0 => Ok(self.passing()),
            until => self.admit_at(until),
        }
    }

    /// Refuses an operation that does not count until the next probe is due. It is never a probe.
    /// On a quiet node there is none, and corrections must not fail for ever.
    pub(super) fn admit_uncounted(&self) -> Result<(), Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            0 => Ok(()),
            until => {
                let left = Timestamp::from_micros(until).saturating_since(self.settings.clock.now());
                if left.is_zero() { Ok(()) } else { Err(left) }
            }
        }
    }

    #[inline]
    fn passing(&self) -> Role {
        Role::Passing(self.closings.load(Ordering::Relaxed))
    }

    fn admit_at(self: &Arc<Self>, until: u64) -> Result<Role, Duration> {
        let now = self.settings.clock.now();
        if now.as_micros() < until {
            return Err(Timestamp::from_micros(until).saturating_since(now));
        }
        match self.change(|circuit| circuit.admit(now)) {
            CircuitAnswer::Pass => Ok(self.passing()),
            CircuitAnswer::Probe(number) => {
                Ok(Role::Probe(Probe { circuit: Arc::clone(self), number, result: Probed::Abandoned }))
            }
            CircuitAnswer::Refuse(until) => Err(until.saturating_since(now)),
        }
    }

    /// Records the result of an admitted request.
    #[inline]
    pub(super) fn record<E: StoreError>(&self, role: Role, error: Option<&E>) {
        match (role, error) {
            (Role::Passing(_), None) => {
                // Once the count is full this is only a load, so threads do not contend for the
                // line.
                if self.answered.load(Ordering::Relaxed) < CircuitBreaker::MEMORY {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
            }
            (Role::Passing(closings), Some(error)) => {
                let is_alive = matches!(error.kind(), ErrorKind::Overloaded | ErrorKind::Moving);
                let counts = error.is_transient() && !is_alive;
                if counts {
                    self.failed(closings, error.call());
                }
            }
            (Role::Probe(mut probe), None) => probe.result = Probed::Answered,
            (Role::Probe(mut probe), Some(error)) => {
                probe.result = match error.kind() {
                    // The store was not asked, so the next request is the probe.
                    ErrorKind::Overloaded => Probed::Abandoned,
                    // The store did answer, and an open circuit would hide the misconfiguration.
                    ErrorKind::Misconfigured | ErrorKind::Moving => Probed::Answered,
                    _ => Probed::Failed,
                };
            }
        }
    }

    #[cold]
    fn failed(&self, closings: u32, call: Option<u64>) {
        let now = self.settings.clock.now();
        self.change(|circuit| {
            // Under the lock, so that no probe closes the circuit between the two.
            if closings == self.closings.load(Ordering::Relaxed) {
                circuit.failed(now, call, || self.answered.swap(0, Ordering::Relaxed));
            }
        });
    }

    #[cold]
    fn probed(&self, number: u32, probed: Probed) {
        let now = self.settings.clock.now();
        self.change(|circuit| circuit.probed(now, number, probed));
    }

    /// Changes the circuit. Logs a new state and notifies the observer.
    fn change<T>(&self, change: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.circuit();
        let before = circuit.state();
        let result = change(&mut circuit);
        let state = circuit.state();
        let until = circuit.refuses_until().map_or(0, |until| until.as_micros().max(1));
        if state == CircuitState::Closed && state != before {
            // Before `refuses_until`, so that each request that passes sees the new count.
            self.closings.fetch_add(1, Ordering::Relaxed);
        }
        self.refuses_until.store(until, Ordering::Release);
        drop(circuit);
        if state != before {
            log(before, state);
            self.settings.observers.notify(Event::Circuit(state));
        }
        result
    }
}

/// Logs when the circuit opens and closes, and at `debug` each other change.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the log reads them"))]
fn log(before: CircuitState, state: CircuitState) {
    #[cfg(feature = "tracing")]
    match (before, state) {
        (CircuitState::Closed, _) => {
            tracing::warn!("the circuit breaker of the rate limit store opens: only probes ask it now");
        }
        (_, CircuitState::Closed) => {
            tracing::info!("the circuit breaker of the rate limit store closes: it is asked again");
        }
        _ => tracing::debug!(state = state.name(), "the circuit breaker of the rate limit store"),
    }
}

impl fmt::Debug for SharedCircuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCircuit").field("state", &self.circuit().state()).finish_non_exhaustive()
    }
}
