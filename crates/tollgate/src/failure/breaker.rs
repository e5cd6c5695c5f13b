//! A store that fails is left alone for a while.

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
    Verdict,
};

use super::circuit::{Admission, Circuit, CircuitBreaker, CircuitState, Probed};
use super::event::{Event, Observer};

/// A [`Store`] that is not asked while it fails: see [`FailureExt::circuit_breaker`](super::FailureExt::circuit_breaker)
/// and the [module docs](super).
#[derive(Clone, Debug)]
pub struct Breaking<S> {
    store: S,
    breaker: Arc<Breaker>,
}

impl<S: Store> Breaking<S> {
    pub(super) fn new(store: S, settings: CircuitBreaker) -> Breaking<S> {
        Breaking { store, breaker: Arc::new(Breaker::new(settings, Clock::system(), Observer::default())) }
    }

    /// The same settings by another clock, for tests. Before clones are made, and [views](Breaking::circuit): those are of another
    /// circuit.
    pub fn clock(self, clock: impl Into<Clock>) -> Breaking<S> {
        let Breaker { settings, observer, .. } = &*self.breaker;
        let breaker = Breaker::new(*settings, clock.into(), observer.clone());
        Breaking { breaker: Arc::new(breaker), ..self }
    }

    /// Tells `observe` of every [`Event::Circuit`]. It is called within a request and must not block. Before clones are made, and
    /// [views](Breaking::circuit): those are of another circuit. Of several observers the last is told.
    ///
    /// Two events of the same moment may be told in either order: what shows the state asks [`CircuitView::state`].
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> Breaking<S> {
        let Breaker { settings, clock, .. } = &*self.breaker;
        let breaker = Breaker::new(*settings, clock.clone(), Observer::new(observe));
        Breaking { breaker: Arc::new(breaker), ..self }
    }

    /// What shows the state of the circuit, for metrics. It is not for a check that takes a node out of service: probes are
    /// requests, and without any the circuit stays open.
    pub fn circuit(&self) -> CircuitView {
        CircuitView(Arc::clone(&self.breaker))
    }

    #[inline]
    fn guarded<T, F>(
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
                self.breaker.hear(role, answer.as_ref().err());
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
        // A request that asks for nothing is no probe, and its answer says nothing of the store.
        let asks = !set.is_empty() && set.iter().all(|check| !check.key.is_empty());
        let admitted = if asks { self.breaker.admit() } else { Ok(Role::Bystander) };
        self.guarded(admitted, |store| store.acquire(set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Self::Error>, Self::Done> {
        let asks = grants.iter().any(|grant| grant.units > 0 && !grant.key.is_empty());
        self.guarded(self.breaker.admit_return(asks), |store| store.refund(grants))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Self::Error>, Self::Done> {
        let asks = !policies.is_empty() && !key.is_empty();
        self.guarded(self.breaker.admit_return(asks), |store| store.reset(key, policies))
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

/// Shows the state of a circuit. It keeps no store alive.
#[derive(Clone, Debug)]
pub struct CircuitView(Arc<Breaker>);

impl CircuitView {
    /// The state.
    pub fn state(&self) -> CircuitState {
        self.0.circuit().state()
    }
}

/// What the clones of a store have in common.
struct Breaker {
    settings: CircuitBreaker,
    clock: Clock,
    observer: Observer,
    circuit: Mutex<Circuit>,
    /// Until when requests are refused, in microseconds, so that most need not lock the circuit; 0 while all pass.
    refuses_until: AtomicU64,
    /// How often the store has answered since it failed last; more than the circuit remembers are not counted.
    answered: AtomicU32,
    /// How often the circuit has closed.
    closings: AtomicU32,
}

/// What a request is to the circuit.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// A check while the circuit is closed, asked after this many closings. If a probe was answered since, its failure says
    /// nothing of the store.
    Passing(u32),
    /// The probe of this number.
    Probe(u32),
    /// A refund, a reset, or a request that asks for nothing: its answer does not count.
    Bystander,
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

    /// What a request is; or how long to wait before the next probe.
    #[inline]
    fn admit(&self) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            0 => Ok(self.passing()),
            until => self.admit_at(until),
        }
    }

    /// Refuses a refund or a reset while the circuit is not closed. It is never a probe.
    fn admit_return(&self, asks: bool) -> Result<Role, Duration> {
        match self.refuses_until.load(Ordering::Acquire) {
            until if asks && until > 0 => Err(span(self.clock.now(), until)),
            _ => Ok(Role::Bystander),
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

    /// What came of a request that was let through.
    #[inline]
    fn hear<E: StoreError>(&self, role: Role, error: Option<&E>) {
        match (role, error) {
            (Role::Bystander, _) => {}
            (Role::Passing(_), None) => {
                // A load in the long run, and no write that processors would fight over.
                if self.answered.load(Ordering::Relaxed) < CircuitBreaker::MEMORY {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
            }
            (Role::Passing(closings), Some(error)) => {
                let counts = error.is_transient() && error.kind() != ErrorKind::Overloaded;
                if counts && closings == self.closings.load(Ordering::Relaxed) {
                    self.failed(error.call());
                }
            }
            (Role::Probe(number), None) => self.probed(number, Probed::Answered),
            (Role::Probe(number), Some(error)) => {
                let probed = match error.kind() {
                    // The store was not asked: the next request is the probe.
                    ErrorKind::Overloaded => Probed::Abandoned,
                    // The store answered. An open circuit would hide the mistake.
                    ErrorKind::Misconfigured => Probed::Answered,
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

    /// Changes the circuit, and tells those who want to know.
    fn change<T>(&self, change: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.circuit();
        let before = circuit.state();
        let told = change(&mut circuit);
        let state = circuit.state();
        let until = circuit.refuses_until().map_or(0, |until| until.as_micros().max(1));
        if state == CircuitState::Closed && state != before {
            // Before requests pass again, so that each knows after how many it does.
            self.closings.fetch_add(1, Ordering::Relaxed);
        }
        self.refuses_until.store(until, Ordering::Release);
        drop(circuit);
        if state != before {
            log(before, state);
            self.observer.tell(Event::Circuit(state));
        }
        told
    }
}

/// The time from now to a time in microseconds.
fn span(now: Timestamp, until: u64) -> Duration {
    Duration::from_micros(until.saturating_sub(now.as_micros()))
}

/// That it opens and closes; not each probe between.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the log asks for it"))]
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

/// The answer of a store that a circuit breaker watches.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
pub struct Watched<F> {
    #[pin]
    future: F,
    breaker: Arc<Breaker>,
    /// Until something was heard of it.
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
            this.breaker.hear(role, answer.as_ref().err());
        }
        Poll::Ready(answer.map_err(BreakerError::Store))
    }
}

/// A probe whose caller leaves makes room for the next.
#[pinned_drop]
impl<F> PinnedDrop for Watched<F> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(Role::Probe(number)) = *this.role {
            this.breaker.probed(number, Probed::Abandoned);
        }
    }
}

/// Why a store behind a circuit breaker did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakerError<E> {
    /// It was not asked, since it failed too often before. Nothing was charged.
    Open {
        /// The time until the next probe, unless somebody is sent before.
        retry_in: Duration,
    },
    /// It failed.
    Store(E),
}

impl<E: StoreError> StoreError for BreakerError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            BreakerError::Open { .. } => ErrorKind::CircuitOpen,
            BreakerError::Store(error) => error.kind(),
        }
    }

    fn call(&self) -> Option<u64> {
        match self {
            BreakerError::Open { .. } => None,
            BreakerError::Store(error) => error.call(),
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
            // Not the error itself, which is displayed as ours.
            BreakerError::Store(error) => error.source(),
        }
    }
}
