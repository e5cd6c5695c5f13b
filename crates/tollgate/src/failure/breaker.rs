//! The circuit breaker: a store that fails is not asked for a while.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tollgate_core::{
    After, Check, ErrorKind, Grant, Key, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Store,
    StoreError, Then, Times, Timestamp, Verdict,
};

use super::circuit::{Admission, Circuit, Probed};
use super::circuit_state::CircuitState;
use super::event::Event;
use super::settings::CircuitBreaker;
use super::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use super::sync::{Mutex, MutexGuard};

/// The reply of the store inside, which the circuit watches.
type Watched<T, E, F> = Reply<Result<T, BreakerError<E>>, Then<F, Role>>;

/// A [`Store`] behind a circuit breaker: see
/// [`StoreExt::circuit_breaker`](crate::StoreExt::circuit_breaker).
#[derive(Clone, Debug)]
pub struct Breaker<S> {
    store: S,
    shared: Arc<SharedCircuit>,
    is_in_shadow: bool,
}

impl<S: Store> Breaker<S> {
    pub(crate) fn new(store: S, settings: CircuitBreaker) -> Breaker<S> {
        Breaker { store, shared: Arc::new(SharedCircuit::new(settings)), is_in_shadow: false }
    }

    /// Returns a view of the circuit, for metrics. Do not use it for a health check that takes a
    /// node out of service: requests are the probes, so without requests the circuit stays open.
    pub fn circuit(&self) -> CircuitView {
        CircuitView(Arc::clone(&self.shared))
    }

    #[inline]
    fn ask<T, F>(
        &self,
        admitted: Result<Role, Duration>,
        ask: impl FnOnce(&S) -> Reply<Result<T, S::Error>, F>,
    ) -> Watched<T, S::Error, F>
    where
        F: Future<Output = Result<T, S::Error>>,
    {
        match admitted {
            Ok(role) => ask(&self.store).then(&self.shared, role),
            Err(retry_in) => Reply::Now(Err(BreakerError::Open { retry_in })),
        }
    }
}

impl<S: Store> Store for Breaker<S> {
    type Error = BreakerError<S::Error>;
    type Acquire = Then<S::Acquire, Role>;
    type Done = Then<S::Done, Role>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
        // No probe without checks: the answer would not show whether the store works.
        let admitted = match set {
            [] => Ok(Role::Uncounted),
            _ if self.is_in_shadow => self.shared.admit_uncounted(true),
            _ => self.shared.admit(),
        };
        self.ask(admitted, |store| store.acquire(set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Self::Error>, Self::Done> {
        let asks = grants.iter().any(|grant| grant.units > 0);
        self.ask(self.shared.admit_uncounted(asks), |store| store.refund(grants))
    }

    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Self::Error> {
        match self.shared.admit_uncounted(!grants.is_empty()) {
            Ok(role) => role.after(&self.shared, self.store.settle(grants, total).await),
            Err(retry_in) => Err(BreakerError::Open { retry_in }),
        }
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Self::Error> {
        match self.shared.admit_uncounted(!grants.is_empty()) {
            Ok(role) => role.after(&self.shared, self.store.renew(grants).await),
            Err(retry_in) => Err(BreakerError::Open { retry_in }),
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Self::Error>, Self::Done> {
        self.ask(self.shared.admit_uncounted(!policies.is_empty()), |store| store.reset(key, policies))
    }

    fn node_of(&self, key: &Key) -> u64 {
        self.store.node_of(key)
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn patient(&self) -> Breaker<S> {
        Breaker { store: self.store.patient(), ..self.clone() }
    }

    /// Its checks neither open the circuit nor are probes.
    fn in_shadow(&self) -> Breaker<S> {
        Breaker { store: self.store.in_shadow(), is_in_shadow: true, ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

/// A view of the state of a circuit. Does not keep the store alive.
#[derive(Clone, Debug)]
pub struct CircuitView(Arc<SharedCircuit>);

impl CircuitView {
    /// The current state.
    pub fn state(&self) -> CircuitState {
        self.0.circuit().state()
    }
}

/// Shared by the clones of a store.
pub struct SharedCircuit {
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

/// The role of a request for the circuit.
#[derive(Debug)]
pub enum Role {
    /// A check under a closed circuit, and how often the circuit had closed before. Its failure
    /// does not count if a probe was answered since.
    Passing(u32),
    /// The probe.
    Probe(Probe),
    /// A refund, a correction, a renewal, a reset, an empty request or a check in shadow. Its
    /// answer does not count.
    Uncounted,
}

/// The probe with this number. If its caller leaves, the next request becomes the probe.
#[derive(Debug)]
pub struct Probe {
    circuit: Arc<SharedCircuit>,
    number: u32,
    result: Probed,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.circuit.probed(self.number, self.result);
    }
}

impl<T, E: StoreError> After<Result<T, E>> for Role {
    type Shared = Arc<SharedCircuit>;
    type Output = Result<T, BreakerError<E>>;

    #[inline]
    fn after(self, circuit: &Arc<SharedCircuit>, answer: Result<T, E>) -> Result<T, BreakerError<E>> {
        circuit.record(self, answer.as_ref().err());
        answer.map_err(BreakerError::Store)
    }
}

impl SharedCircuit {
    fn new(settings: CircuitBreaker) -> SharedCircuit {
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
    fn admit(self: &Arc<Self>) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            0 => Ok(self.passing()),
            until => self.admit_at(until),
        }
    }

    /// Refuses an operation that does not count until the next probe is due. It is never a probe.
    /// On a quiet node there is none, and corrections must not fail for ever.
    fn admit_uncounted(&self, asks: bool) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            until if asks && until > 0 => {
                let left = Timestamp::from_micros(until).saturating_since(self.settings.clock.now());
                if left.is_zero() { Ok(Role::Uncounted) } else { Err(left) }
            }
            _ => Ok(Role::Uncounted),
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
            Admission::Pass => Ok(self.passing()),
            Admission::Probe(number) => {
                Ok(Role::Probe(Probe { circuit: Arc::clone(self), number, result: Probed::Abandoned }))
            }
            Admission::Refuse(until) => Err(until.saturating_since(now)),
        }
    }

    /// Records the result of an admitted request.
    #[inline]
    fn record<E: StoreError>(&self, role: Role, error: Option<&E>) {
        match (role, error) {
            (Role::Uncounted, _) => {}
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

/// Reasons why a store behind a circuit breaker did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakerError<E> {
    /// The circuit is open, so the store was not asked. Nothing was charged.
    Open {
        /// The time until the next probe, at the latest.
        retry_in: Duration,
    },
    /// The store failed.
    Store(E),
}

impl<E: StoreError> StoreError for BreakerError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            BreakerError::Open { .. } => ErrorKind::CircuitOpen,
            BreakerError::Store(error) => error.kind(),
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            BreakerError::Open { .. } => true,
            BreakerError::Store(error) => error.is_transient(),
        }
    }

    fn call(&self) -> Option<u64> {
        match self {
            BreakerError::Open { .. } => None,
            BreakerError::Store(error) => error.call(),
        }
    }

    fn executed_nothing(&self) -> bool {
        match self {
            BreakerError::Open { .. } => true,
            BreakerError::Store(error) => error.executed_nothing(),
        }
    }

    fn is_timeout(&self) -> bool {
        match self {
            BreakerError::Open { .. } => false,
            BreakerError::Store(error) => error.is_timeout(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for BreakerError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BreakerError::Open { .. } => f.write_str("the circuit breaker is open"),
            BreakerError::Store(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for BreakerError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BreakerError::Open { .. } => None,
            // Skips the store's error, whose message `Display` already shows.
            BreakerError::Store(error) => error.source(),
        }
    }
}
