//! The timeout: waits for a store end after a limit.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tollgate_core::{
    Check, ErrorKind, Grant, Key, Policy, PolicyError, Reply, Store, StoreError, Times, UsageError, Verdict,
};

/// A [`Store`] with a limit on the wait for its answers: see
/// [`FailureExt::timeout`](super::FailureExt::timeout).
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    store: S,
    limit: Duration,
    /// Whether this wrapper has to end the waits, since the store does not.
    needs_timer: bool,
}

impl<S: Store> Timeout<S> {
    pub(super) fn try_new(mut store: S, limit: Duration) -> Result<Timeout<S>, ZeroTimeout> {
        if limit.is_zero() {
            return Err(ZeroTimeout);
        }
        let needs_timer = !store.end_waits_after(limit);
        Ok(Timeout { store, limit, needs_timer })
    }

    #[inline]
    fn limited<T, F>(
        &self,
        reply: Reply<Result<T, S::Error>, F>,
    ) -> Reply<Result<T, TimeoutError<S::Error>>, Timed<F>>
    where
        F: Future<Output = Result<T, S::Error>>,
    {
        match reply {
            Reply::Now(answer) => Reply::Now(answer.map_err(TimeoutError::Store)),
            Reply::Later(future) => {
                // The deadline counts from here, not from the first poll: what the caller does
                // before polling is part of the request's time.
                let answer = if self.needs_timer {
                    Awaited::Limited(tokio::time::timeout(self.limit, future))
                } else {
                    Awaited::Unlimited(future)
                };
                Reply::Later(Timed { answer, limit: self.limit })
            }
        }
    }
}

impl<S: Store> Store for Timeout<S> {
    type Error = TimeoutError<S::Error>;
    type Acquire = Timed<S::Acquire>;
    type Done = Timed<S::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
        self.limited(self.store.acquire(set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Self::Error>, Self::Done> {
        self.limited(self.store.refund(grants))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Self::Error>, Self::Done> {
        self.limited(self.store.reset(key, policies))
    }

    fn patient(&self) -> Timeout<S> {
        Timeout { store: self.store.patient(), needs_timer: false, ..*self }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }

    async fn usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        let answer = tokio::time::timeout(self.limit, self.store.usage(policy, key, interval));
        answer
            .await
            .unwrap_or_else(|_| Err(UsageError::of_store(&TimeoutError::<S::Error>::Elapsed(self.limit))))
    }
}

/// The answer of a store, or an error once the limit has passed.
#[pin_project]
#[derive(Debug)]
pub struct Timed<F> {
    #[pin]
    answer: Awaited<F>,
    limit: Duration,
}

#[pin_project(project = AwaitedProjection)]
#[derive(Debug)]
enum Awaited<F> {
    /// The store ends the wait by itself, or no limit holds.
    Unlimited(#[pin] F),
    Limited(#[pin] tokio::time::Timeout<F>),
}

impl<F, T, E> Future for Timed<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, TimeoutError<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match this.answer.project() {
            AwaitedProjection::Unlimited(future) => ready!(future.poll(cx)).map_err(TimeoutError::Store),
            AwaitedProjection::Limited(future) => match ready!(future.poll(cx)) {
                Ok(answer) => answer.map_err(TimeoutError::Store),
                Err(_) => Err(TimeoutError::Elapsed(*this.limit)),
            },
        })
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

/// The error for a timeout of zero, which no store over a network can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroTimeout;

impl fmt::Display for ZeroTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store's timeout must be longer than zero")
    }
}

impl Error for ZeroTimeout {}
