//! The guard of a store that can be late or down: a timeout and a circuit breaker.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    BlockStart, Check, End, Grant, Key, Policy, PolicyError, RenewalReport, Reply, SentClaims, Settled,
    Share, Store, StoreError, Times, Unsent, Verdict,
};

use super::guard_error::GuardError;
use super::guarding::Guarding;
use super::settings::CircuitBreaker;
use super::shared_circuit::{CircuitView, Role, SharedCircuit};
use crate::errors::{SetupError, or_panic};

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
    pub fn try_timeout(self, limit: Duration) -> Result<Guarded<S>, SetupError> {
        if limit.is_zero() {
            return Err(SetupError::ZeroTimeout);
        }
        Ok(self.with_deadline(self.wait_limit().into_iter().chain([limit]).min()))
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

    /// The limit of a wait that the store does not end.
    #[inline]
    fn timer(&self) -> Option<Duration> {
        self.limit.filter(|_| self.needs_timer)
    }

    /// Whether to ask for what is no check, and therefore no probe.
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
}

impl<S: Store> Store for Guarded<S> {
    type Error = GuardError<S::Error>;
    type Acquire = Guarding<S::Acquire>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
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
                Reply::Later(Guarding::check(future, role, self.timer()))
            }
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Self::Error> + use<S> {
        let asks = grants.iter().any(|grant| grant.units > 0);
        ended(self.admit_uncounted(asks).map(|()| Guarding::end(self.store.refund(grants), self.timer())))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Self::Error> + use<S> {
        ended(
            self.admit_uncounted(!grants.is_empty())
                .map(|()| Guarding::end(self.store.settle(grants, total), self.timer())),
        )
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Self::Error> + use<S> {
        ended(
            self.admit_uncounted(!grants.is_empty())
                .map(|()| Guarding::end(self.store.renew(grants, report), self.timer())),
        )
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, Self::Error> + use<S> {
        ended(
            self.admit_uncounted(true)
                .map(|()| Guarding::end(self.store.block(policy, key, share), self.timer())),
        )
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Self::Error> + use<S> {
        ended(
            self.admit_uncounted(!policies.is_empty())
                .map(|()| Guarding::end(self.store.reset(key, policies), self.timer())),
        )
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> Guarded<S> {
        let store = self.store.with_deadline(deadline);
        let is_late = |limit: Duration| store.wait_limit().is_none_or(|ends| ends > limit);
        let needs_timer = deadline.is_some_and(is_late);
        Guarded { store, limit: deadline, needs_timer, ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.limit.or_else(|| self.store.wait_limit())
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    /// Its checks neither open the circuit nor are probes.
    fn in_shadow(&self) -> Guarded<S> {
        Guarded { store: self.store.in_shadow(), is_in_shadow: true, ..self.clone() }
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S> {
        self.store.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

/// Waits for what was asked, unless the circuit refused it.
async fn ended<F, T, E>(asked: Result<Guarding<F>, Duration>) -> Result<T, GuardError<E>>
where
    F: Future<Output = Result<T, E>>,
    E: StoreError,
{
    match asked {
        Ok(asked) => asked.await,
        Err(retry_in) => Err(GuardError::Open { retry_in }),
    }
}
