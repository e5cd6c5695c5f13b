//! The failure policies open and closed: requests pass, or are refused, while the store fails.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tollgate_core::{
    Check, Grant, Key, Policy, PolicyError, Reply, Source, Store, StoreError, Times, UsageError, Verdict,
};

use super::done::Done;
use super::event::Event;
use super::outage::{Outage, undecided};

/// A [`Store`] that lets requests pass, or refuses them, while the inner store fails: see
/// [`fail_open`](super::FailureExt::fail_open) and [`fail_closed`](super::FailureExt::fail_closed).
#[derive(Clone, Debug)]
pub struct OnFailure<S> {
    store: S,
    passes: bool,
    outage: Outage,
}

impl<S: Store> OnFailure<S> {
    pub(super) fn open(store: S) -> OnFailure<S> {
        let outage = Outage::new("requests pass without limit", Source::Policy);
        OnFailure { store, passes: true, outage }
    }

    pub(super) fn closed(store: S) -> OnFailure<S> {
        let outage = Outage::new("requests are refused", Source::Policy);
        OnFailure { store, passes: false, outage }
    }

    /// Calls `observe` for every [`Event::Decided`] and [`Event::Failed`], within the request: it
    /// must not block. Call this before cloning: existing clones keep their observer. Only the last
    /// observer is called.
    #[must_use]
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> OnFailure<S> {
        OnFailure { outage: self.outage.observe(observe), ..self }
    }
}

impl<S: Store> Store for OnFailure<S> {
    type Error = Infallible;
    type Acquire = Decided<S::Acquire>;
    type Done = Done<S::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        // A request without a cost always passes: no store would refuse it.
        let passes = self.passes || set.iter().all(|check| check.cost == 0);
        let on_failure = if passes { times.max() } else { 0 };
        match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                self.outage.record_decision(&answer);
                Reply::Now(Ok(answer.unwrap_or_else(|_| undecided(on_failure, Source::Policy))))
            }
            Reply::Later(future) => Reply::Later(Decided { future, on_failure, outage: self.outage.clone() }),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        Done::of(Some(self.store.refund(grants)), None, &self.outage)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        Done::of(Some(self.store.reset(key, policies)), None, &self.outage)
    }

    fn patient(&self) -> OnFailure<S> {
        OnFailure { store: self.store.patient(), ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }

    async fn usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        self.store.usage(policy, key, interval).await
    }
}

/// The decision of a store, or that of the failure policy if the store fails.
#[pin_project]
#[derive(Debug)]
pub struct Decided<F> {
    #[pin]
    future: F,
    /// How often the set is granted if the store fails.
    on_failure: u32,
    outage: Outage,
}

impl<F, E> Future for Decided<F>
where
    F: Future<Output = Result<Verdict, E>>,
    E: StoreError,
{
    type Output = Result<Verdict, Infallible>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.future.poll(cx));
        this.outage.record_decision(&answer);
        Poll::Ready(Ok(answer.unwrap_or_else(|_| undecided(*this.on_failure, Source::Policy))))
    }
}
