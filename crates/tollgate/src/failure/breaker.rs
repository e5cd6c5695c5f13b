//! The circuit breaker: a store that fails is not asked for a while.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::{pin_project, pinned_drop};
use tollgate_core::{
    Check, Clock, ErrorKind, Grant, Key, Policy, PolicyError, Reply, Store, StoreError, Times, Timestamp,
    UsageError, Verdict,
};

use super::circuit::{Admission, Circuit, CircuitBreaker, CircuitState, Probed};
use super::event::{Event, Observer};

/// A [`Store`] behind a circuit breaker: see
/// [`FailureExt::circuit_breaker`](super::FailureExt::circuit_breaker).
#[derive(Clone, Debug)]
pub struct Breaking<S> {
    store: S,
    breaker: Arc<Breaker>,
}

impl<S: Store> Breaking<S> {
    pub(super) fn new(store: S, settings: CircuitBreaker) -> Breaking<S> {
        Breaking { store, breaker: Arc::new(Breaker::new(settings, Clock::system(), Observer::default())) }
    }

    /// Uses another clock, for tests. Starts a new circuit: call this before cloning, and before
    /// taking a [view](Breaking::circuit).
    #[must_use]
    pub fn clock(self, clock: impl Into<Clock>) -> Breaking<S> {
        let Breaker { settings, observer, .. } = &*self.breaker;
        let breaker = Breaker::new(*settings, clock.into(), observer.clone());
        Breaking { breaker: Arc::new(breaker), ..self }
    }

    /// Calls `observe` for every [`Event::Circuit`], within a request: it must not block. Only the
    /// last observer is called. Starts a new circuit: call this before cloning, and before taking a
    /// [view](Breaking::circuit).
    ///
    /// Two events of the same moment may arrive in either order. To show the state, read
    /// [`CircuitView::state`].
    #[must_use]
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> Breaking<S> {
        let Breaker { settings, clock, .. } = &*self.breaker;
        let breaker = Breaker::new(*settings, clock.clone(), Observer::new(observe));
        Breaking { breaker: Arc::new(breaker), ..self }
    }

    /// Returns a view of the circuit, for metrics. Do not use it for a health check that takes a
    /// node out of service: requests are the probes, so without requests the circuit stays open.
    pub fn circuit(&self) -> CircuitView {
        CircuitView(Arc::clone(&self.breaker))
    }

    #[inline]
    fn ask<T, F>(
        &self,
        admitted: Result<Role, Duration>,
        ask: impl FnOnce(&S) -> Reply<Result<T, S::Error>, F>,
    ) -> Reply<Result<T, BreakerError<S::Error>>, Watched<F>> {
        let role = match admitted {
            Ok(role) => role,
            Err(retry_in) => return Reply::Now(Err(BreakerError::Open { retry_in })),
        };
        match ask(&self.store) {
            Reply::Now(answer) => {
                self.breaker.record(role, answer.as_ref().err());
                Reply::Now(answer.map_err(BreakerError::Store))
            }
            Reply::Later(future) => {
                Reply::Later(Watched { future, breaker: Arc::clone(&self.breaker), role: Some(role) })
            }
        }
    }
}

impl<S: Store> Store for Breaking<S> {
    type Error = BreakerError<S::Error>;
    type Acquire = Watched<S::Acquire>;
    type Done = Watched<S::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
        // No probe without checks: the answer would not show whether the store works.
        let admitted = if set.is_empty() { Ok(Role::Uncounted) } else { self.breaker.admit() };
        self.ask(admitted, |store| store.acquire(set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Self::Error>, Self::Done> {
        let asks = grants.iter().any(|grant| grant.units > 0);
        self.ask(self.breaker.admit_uncounted(asks), |store| store.refund(grants))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Self::Error>, Self::Done> {
        self.ask(self.breaker.admit_uncounted(!policies.is_empty()), |store| store.reset(key, policies))
    }

    fn patient(&self) -> Breaking<S> {
        Breaking { store: self.store.patient(), ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }

    async fn usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        if let Err(retry_in) = self.breaker.admit_uncounted(true) {
            return Err(UsageError::of_store(&BreakerError::<S::Error>::Open { retry_in }));
        }
        self.store.usage(policy, key, interval).await
    }
}

/// A view of the state of a circuit. Does not keep the store alive.
#[derive(Clone, Debug)]
pub struct CircuitView(Arc<Breaker>);

impl CircuitView {
    /// The current state.
    pub fn state(&self) -> CircuitState {
        self.0.circuit().state()
    }
}

/// Shared by the clones of a store.
struct Breaker {
    settings: CircuitBreaker,
    clock: Clock,
    observer: Observer,
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
#[derive(Clone, Copy, Debug)]
enum Role {
    /// A check under a closed circuit, and how often the circuit had closed before. Its failure
    /// does not count if a probe was answered since.
    Passing(u32),
    /// The probe with this number.
    Probe(u32),
    /// A refund, a reset or an empty request. Its answer does not count.
    Uncounted,
}

impl Breaker {
    fn new(settings: CircuitBreaker, clock: Clock, observer: Observer) -> Breaker {
        let seed = RandomState::new().hash_one(0);
        Breaker {
            settings,
            clock,
            observer,
            circuit: Mutex::new(Circuit::new(settings, seed)),
            refuses_until: AtomicU64::new(0),
            answered: AtomicU32::new(0),
            closings: AtomicU32::new(0),
        }
    }

    fn circuit(&self) -> std::sync::MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The role of a check, or the time until the next probe.
    #[inline]
    fn admit(&self) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            0 => Ok(self.passing()),
            until => self.admit_at(until),
        }
    }

    /// Refuses a refund or a reset unless the circuit is closed. They are never probes.
    fn admit_uncounted(&self, asks: bool) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            until if asks && until > 0 => Err(span(self.clock.now(), until)),
            _ => Ok(Role::Uncounted),
        }
    }

    #[inline]
    fn passing(&self) -> Role {
        Role::Passing(self.closings.load(Ordering::Relaxed))
    }

    #[inline(never)]
    fn admit_at(&self, until: u64) -> Result<Role, Duration> {
        let now = self.clock.now();
        if now.as_micros() < until {
            return Err(span(now, until));
        }
        match self.change(|circuit| circuit.admit(now)) {
            Admission::Pass => Ok(self.passing()),
            Admission::Probe(number) => Ok(Role::Probe(number)),
            Admission::Refuse(until) => Err(span(now, until.as_micros())),
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
                if counts && closings == self.closings.load(Ordering::Relaxed) {
                    self.failed(error.call());
                }
            }
            (Role::Probe(number), None) => self.probed(number, Probed::Answered),
            (Role::Probe(number), Some(error)) => {
                let probed = match error.kind() {
                    // The store was not asked, so the next request is the probe.
                    ErrorKind::Overloaded => Probed::Abandoned,
                    // The store did answer, and an open circuit would hide the misconfiguration.
                    ErrorKind::Misconfigured | ErrorKind::Moving => Probed::Answered,
                    _ => Probed::Failed,
                };
                self.probed(number, probed);
            }
        }
    }

    #[cold]
    fn failed(&self, call: Option<u64>) {
        let now = self.clock.now();
        self.change(|circuit| circuit.failed(now, call, || self.answered.swap(0, Ordering::Relaxed)));
    }

    #[cold]
    fn probed(&self, number: u32, probed: Probed) {
        let now = self.clock.now();
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
            self.observer.notify(Event::Circuit(state));
        }
        result
    }
}

/// The time from `now` until `until`, in microseconds since the epoch.
fn span(now: Timestamp, until: u64) -> Duration {
    Duration::from_micros(until.saturating_sub(now.as_micros()))
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

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("state", &self.circuit().state()).finish_non_exhaustive()
    }
}

/// The answer of a store behind a circuit breaker.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
pub struct Watched<F> {
    #[pin]
    future: F,
    breaker: Arc<Breaker>,
    /// `None` once the result is recorded.
    role: Option<Role>,
}

impl<F, T, E> Future for Watched<F>
where
    F: Future<Output = Result<T, E>>,
    E: StoreError,
{
    type Output = Result<T, BreakerError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.future.poll(cx));
        if let Some(role) = this.role.take() {
            this.breaker.record(role, answer.as_ref().err());
        }
        Poll::Ready(answer.map_err(BreakerError::Store))
    }
}

/// If the caller of a probe leaves, the next request becomes the probe.
#[pinned_drop]
impl<F> PinnedDrop for Watched<F> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(Role::Probe(number)) = *this.role {
            this.breaker.probed(number, Probed::Abandoned);
        }
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
