//! What the policies open and closed have in common: whatever happens, there is an answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tollgate_core::{Check, Grant, Key, Policy, PolicyError, Reply, Store, StoreError, Times, Verdict};

use super::event::{Event, Source};
use super::outage::Outage;

/// A store, and who hears its answers.
#[derive(Clone, Debug)]
pub(super) struct Guarded<S> {
    store: S,
    outage: Outage,
}

impl<S: Store> Guarded<S> {
    /// `meaning` is what happens to requests during an outage, for the log.
    pub(super) fn new(store: S, meaning: &'static str) -> Guarded<S> {
        Guarded { store, outage: Outage::new(meaning, Source::Policy) }
    }

    pub(super) fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> Guarded<S> {
        Guarded { outage: self.outage.observe(observe), ..self }
    }

    pub(super) fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }

    /// As the store decides; if it fails, the set is granted `otherwise` times.
    #[inline]
    pub(super) fn acquire(
        &self,
        set: &[Check<'_>],
        times: Times,
        otherwise: u32,
    ) -> Reply<Result<Verdict, Infallible>, Decided<S::Acquire>> {
        match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                self.outage.decided(&answer);
                Reply::Now(Ok(answer.unwrap_or_else(|_| unasked(otherwise))))
            }
            Reply::Later(future) => Reply::Later(Decided { future, otherwise, outage: self.outage.clone() }),
        }
    }

    pub(super) fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Done<S::Done>> {
        self.done(self.store.refund(grants))
    }

    pub(super) fn reset(
        &self,
        key: &Key,
        policies: &[&Policy],
    ) -> Reply<Result<(), Infallible>, Done<S::Done>> {
        self.done(self.store.reset(key, policies))
    }

    fn done(
        &self,
        reply: Reply<Result<(), S::Error>, S::Done>,
    ) -> Reply<Result<(), Infallible>, Done<S::Done>> {
        match reply {
            Reply::Now(answer) => {
                self.outage.hear(&answer);
                Reply::Now(Ok(()))
            }
            Reply::Later(future) => Reply::Later(Done { future, outage: self.outage.clone() }),
        }
    }
}

/// The verdict of a policy that does not know how its rules stand.
#[cold]
fn unasked(times: u32) -> Verdict {
    Verdict::new(times, Duration::ZERO, [])
}

/// The decision of a store, or of the failure policy in its place.
#[pin_project]
#[derive(Debug)]
pub struct Decided<F> {
    #[pin]
    future: F,
    otherwise: u32,
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
        this.outage.decided(&answer);
        Poll::Ready(Ok(answer.unwrap_or_else(|_| unasked(*this.otherwise))))
    }
}

/// The end of a refund or a reset, whether or not the store has done it.
#[pin_project]
#[derive(Debug)]
pub struct Done<F> {
    #[pin]
    future: F,
    outage: Outage,
}

impl<F, E> Future for Done<F>
where
    F: Future<Output = Result<(), E>>,
    E: StoreError,
{
    type Output = Result<(), Infallible>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.future.poll(cx));
        this.outage.hear(&answer);
        Poll::Ready(Ok(()))
    }
}
