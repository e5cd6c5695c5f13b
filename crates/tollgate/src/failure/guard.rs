//! The guard of a store that can be late or down: a timeout and a circuit breaker.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{
    Check, Grant, Key, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Store, Times, Verdict,
};

use super::guard_error::GuardError;
use super::guarding::Guarding;
use super::settings::CircuitBreaker;
use super::shared_circuit::{CircuitView, Role, SharedCircuit};
use crate::setup_error::{SetupError, or_panic};

/// A [`Store`] with a limit on the wait for its answers, behind a circuit breaker, or with one of
/// the two: see [`StoreExt::timeout`](crate::StoreExt::timeout) and
/// [`StoreExt::circuit_breaker`](crate::StoreExt::circuit_breaker). The order of the two calls does
/// not matter: the circuit counts an answer that is late.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    store: S,
    /// The shortest of all timeouts.
    limit: Option<Duration>,
    /// Whether the guard has to end the waits, since the store does not.
    needs_timer: bool,
    circuit: Option<Arc<SharedCircuit>>,
    is_in_shadow: bool,
}

/// The reply of the store inside, under guard.
type GuardedReply<T, E, F> = Reply<Result<T, GuardError<E>>, Guarding<F>>;

impl<S: Store> Guarded<S> {
    pub(crate) fn new(store: S) -> Guarded<S> {
        Guarded { store, limit: None, needs_timer: false, circuit: None, is_in_shadow: false }
    }

    /// Sets a limit on the wait for an answer, as [`StoreExt::timeout`](crate::StoreExt::timeout)
    /// does. The shortest of several holds.
    ///
    /// # Panics
    /// If `limit` is zero. A request panics as `StoreExt::timeout` says.
    #[track_caller]
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Guarded<S> {
        or_panic(self.try_timeout(limit))
    }

    /// [`Guarded::timeout`] for a limit that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::ZeroTimeout`].
    pub fn try_timeout(mut self, limit: Duration) -> Result<Guarded<S>, SetupError> {
        if limit.is_zero() {
            return Err(SetupError::ZeroTimeout);
        }
        self.shorten(limit);
        Ok(self)
    }

    /// Sets the circuit breaker, as
    /// [`StoreExt::circuit_breaker`](crate::StoreExt::circuit_breaker) does. A second one replaces
    /// the first, whose [views](Guarded::circuit) see no more changes of this store.
    #[must_use]
    pub fn circuit_breaker(self, settings: CircuitBreaker) -> Guarded<S> {
        Guarded { circuit: Some(Arc::new(SharedCircuit::new(settings))), ..self }
    }

    /// Returns a view of the circuit, for metrics. Without a circuit breaker the circuit is always
    /// closed.
    ///
    /// Do not use it for a health check that takes a node out of service: requests are the probes,
    /// so without requests the circuit stays open.
    pub fn circuit(&self) -> CircuitView {
        CircuitView::of(self.circuit.clone())
    }

    fn shorten(&mut self, limit: Duration) {
        self.needs_timer = !self.store.end_waits_after(limit);
        self.limit = Some(self.limit.map_or(limit, |shorter| shorter.min(limit)));
    }

    /// The limit of a wait that the store does not end.
    #[inline]
    fn timer(&self) -> Option<Duration> {
        self.limit.filter(|_| self.needs_timer)
    }

    /// Asks for a refund or a reset, which is no probe.
    fn ask_uncounted<T, F>(
        &self,
        asks: bool,
        ask: impl FnOnce(&S) -> Reply<Result<T, S::Error>, F>,
    ) -> GuardedReply<T, S::Error, F> {
        if let Err(retry_in) = self.admit_uncounted(asks) {
            return Reply::Now(Err(GuardError::Open { retry_in }));
        }
        match ask(&self.store) {
            Reply::Now(answer) => Reply::Now(answer.map_err(GuardError::Store)),
            Reply::Later(future) => Reply::Later(Guarding::new(future, None, self.timer())),
        }
    }

    fn admit_uncounted(&self, asks: bool) -> Result<(), Duration> {
        match &self.circuit {
            Some(circuit) if asks => circuit.admit_uncounted(),
            _ => Ok(()),
        }
    }

    /// The role of a check. None without checks: the answer would not show whether the store works.
    #[inline]
    fn admit(&self, set: &[Check<'_>]) -> Result<Option<(&Arc<SharedCircuit>, Role)>, Duration> {
        match &self.circuit {
            Some(circuit) if self.is_in_shadow && !set.is_empty() => circuit.admit_uncounted().map(|()| None),
            Some(circuit) if !set.is_empty() => circuit.admit().map(|role| Some((circuit, role))),
            _ => Ok(None),
        }
    }

    /// Waits for a correction or a renewal, which is no probe.
    async fn wait_uncounted<T>(
        &self,
        asks: bool,
        answer: impl Future<Output = Result<T, S::Error>>,
    ) -> Result<T, GuardError<S::Error>> {
        self.admit_uncounted(asks).map_err(|retry_in| GuardError::Open { retry_in })?;
        let mut answer = pin!(answer);
        // A store that answers at once needs no timer, nor a runtime.
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
            return answer.map_err(GuardError::Store);
        }
        let timer = self.timer();
        if timer.is_some() {
            // Only in a task, since there is no timer in a runtime that has stopped.
            tokio::task::yield_now().await;
        }
        Guarding::new(answer, None, timer).await
    }
}

impl<S: Store> Store for Guarded<S> {
    type Error = GuardError<S::Error>;
    type Acquire = Guarding<S::Acquire>;
    type Done = Guarding<S::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> GuardedReply<Verdict, S::Error, S::Acquire> {
        let role = match self.admit(set) {
            Ok(role) => role,
            Err(retry_in) => return Reply::Now(Err(GuardError::Open { retry_in })),
        };
        match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                if let Some((circuit, role)) = role {
                    circuit.record(role, answer.as_ref().err());
                }
                Reply::Now(answer.map_err(GuardError::Store))
            }
            Reply::Later(future) => {
                let role = role.map(|(circuit, role)| (Arc::clone(circuit), role));
                Reply::Later(Guarding::new(future, role, self.timer()))
            }
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> GuardedReply<(), S::Error, S::Done> {
        let asks = grants.iter().any(|grant| grant.units > 0);
        self.ask_uncounted(asks, |store| store.refund(grants))
    }

    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Self::Error> {
        self.wait_uncounted(!grants.is_empty(), self.store.settle(grants, total)).await
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Self::Error> {
        self.wait_uncounted(!grants.is_empty(), self.store.renew(grants)).await
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> GuardedReply<(), S::Error, S::Done> {
        self.ask_uncounted(!policies.is_empty(), |store| store.reset(key, policies))
    }

    fn node_of(&self, key: &Key) -> u64 {
        self.store.node_of(key)
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.shorten(limit);
        true
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit().into_iter().chain(self.limit).min()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn patient(&self) -> Guarded<S> {
        Guarded { store: self.store.patient(), limit: None, ..self.clone() }
    }

    /// Its checks neither open the circuit nor are probes.
    fn in_shadow(&self) -> Guarded<S> {
        Guarded { store: self.store.in_shadow(), is_in_shadow: true, ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}
