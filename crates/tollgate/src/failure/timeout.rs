//! The timeout: waits for a store end after a limit.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tollgate_core::{
    After, Check, ErrorKind, Grant, Key, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Store,
    StoreError, Then, Times, Verdict,
};

use crate::setup_error::SetupError;

/// A [`Store`] with a limit on the wait for its answers: see
/// [`StoreExt::timeout`](crate::StoreExt::timeout).
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    store: S,
    limit: Duration,
    /// Whether this wrapper has to end the waits, since the store does not.
    needs_timer: bool,
}

impl<S: Store> Timeout<S> {
    pub(crate) fn try_new(mut store: S, limit: Duration) -> Result<Timeout<S>, SetupError> {
        if limit.is_zero() {
            return Err(SetupError::ZeroTimeout);
        }
        let needs_timer = !store.end_waits_after(limit);
        Ok(Timeout { store, limit, needs_timer })
    }

    /// Ends the wait for an answer that comes later. The limit counts from here, not from the first
    /// poll: what the caller does before polling is part of the request's time.
    #[inline]
    fn limited<T, F>(&self, reply: Reply<T, F>) -> Reply<T, Limited<F>>
    where
        F: Future<Output = T>,
    {
        match reply {
            Reply::Now(answer) => Reply::Now(answer),
            Reply::Later(future) if self.needs_timer => {
                Reply::Later(Limited::Timed(tokio::time::timeout(self.limit, future), self.limit))
            }
            Reply::Later(future) => Reply::Later(Limited::Untimed(future)),
        }
    }
}

/// Marks an error as that of the store.
#[derive(Debug)]
pub struct OfStore;

impl<T, E> After<Result<T, E>> for OfStore {
    type Shared = ();
    type Output = Result<T, TimeoutError<E>>;

    #[inline]
    fn after(self, (): &(), answer: Result<T, E>) -> Result<T, TimeoutError<E>> {
        answer.map_err(TimeoutError::Store)
    }
}

impl<S: Store> Timeout<S> {
    /// Waits for an answer until the limit has passed.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, S::Error>>,
    ) -> Result<T, TimeoutError<S::Error>> {
        let mut answer = pin!(answer);
        // A store that answers at once needs no timer, nor a runtime.
        let at_once = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
        let answer = match at_once {
            Poll::Ready(answer) => answer,
            Poll::Pending if self.needs_timer => {
                // Only in a task, since there is no timer in a runtime that has stopped.
                tokio::task::yield_now().await;
                let limited = tokio::time::timeout(self.limit, answer).await;
                limited.map_err(|_| TimeoutError::Elapsed(self.limit))?
            }
            Poll::Pending => answer.await,
        };
        answer.map_err(TimeoutError::Store)
    }
}

impl<S: Store> Store for Timeout<S> {
    type Error = TimeoutError<S::Error>;
    type Acquire = Limited<Then<S::Acquire, OfStore>>;
    type Done = Limited<Then<S::Done, OfStore>>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
        self.limited(self.store.acquire(set, times).then(&(), OfStore))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Self::Error>, Self::Done> {
        self.limited(self.store.refund(grants).then(&(), OfStore))
    }

    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Self::Error> {
        self.in_time(self.store.settle(grants, total)).await
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Self::Error> {
        self.in_time(self.store.renew(grants)).await
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Self::Error>, Self::Done> {
        self.limited(self.store.reset(key, policies).then(&(), OfStore))
    }

    fn node_of(&self, key: &Key) -> u64 {
        self.store.node_of(key)
    }

    fn wait_limit(&self) -> Option<Duration> {
        Some(self.store.wait_limit().map_or(self.limit, |limit| limit.min(self.limit)))
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn patient(&self) -> Timeout<S> {
        Timeout { store: self.store.patient(), needs_timer: false, limit: Duration::MAX }
    }

    fn in_shadow(&self) -> Timeout<S> {
        Timeout { store: self.store.in_shadow(), ..*self }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

/// The answer of a store, or an error once the limit has passed.
#[pin_project(project = LimitedProjection)]
#[derive(Debug)]
pub enum Limited<F> {
    /// The store ends the wait by itself, or no limit holds.
    Untimed(#[pin] F),
    Timed(#[pin] tokio::time::Timeout<F>, Duration),
}

impl<F, T, E> Future for Limited<F>
where
    F: Future<Output = Result<T, TimeoutError<E>>>,
{
    type Output = Result<T, TimeoutError<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            LimitedProjection::Untimed(future) => future.poll(cx),
            LimitedProjection::Timed(future, limit) => {
                Poll::Ready(ready!(future.poll(cx)).unwrap_or(Err(TimeoutError::Elapsed(*limit))))
            }
        }
    }
}

/// Reasons why a store behind a [`Timeout`] did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeoutError<E> {
    /// No answer came within this limit. The store may still have done, or may still do, what it
    /// was asked.
    Elapsed(Duration),
    /// The store failed. Or it [ended the wait](Store::end_waits_after) by itself, with an error of
    /// the same kind as [`TimeoutError::Elapsed`].
    Store(E),
}

impl<E: StoreError> StoreError for TimeoutError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            TimeoutError::Elapsed(_) => ErrorKind::Timeout,
            TimeoutError::Store(error) => error.kind(),
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            TimeoutError::Elapsed(_) => true,
            TimeoutError::Store(error) => error.is_transient(),
        }
    }

    fn call(&self) -> Option<u64> {
        match self {
            TimeoutError::Elapsed(_) => None,
            TimeoutError::Store(error) => error.call(),
        }
    }

    fn executed_nothing(&self) -> bool {
        match self {
            TimeoutError::Elapsed(_) => false,
            TimeoutError::Store(error) => error.executed_nothing(),
        }
    }

    fn is_timeout(&self) -> bool {
        match self {
            TimeoutError::Elapsed(_) => true,
            TimeoutError::Store(error) => error.is_timeout(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for TimeoutError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeoutError::Elapsed(limit) => write!(f, "no answer within {limit:?}"),
            TimeoutError::Store(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for TimeoutError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TimeoutError::Elapsed(_) => None,
            // Skips the store's error, whose message `Display` already shows.
            TimeoutError::Store(error) => error.source(),
        }
    }
}
