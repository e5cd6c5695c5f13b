//! An answer of a store that is available or comes later, and what follows it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

/// An answer that is available, or its future. The first needs no allocation and no wake-up.
#[derive(Debug)]
pub enum Reply<T, F> {
    /// The answer.
    Now(T),
    /// The future of the answer.
    Later(F),
}

impl<T, F: Future<Output = T>> Reply<T, F> {
    /// Waits for the answer, if it is not available yet.
    pub async fn wait(self) -> T {
        match self {
            Reply::Now(answer) => answer,
            Reply::Later(future) => future.await,
        }
    }

    /// Follows the answer with the rule of a wrapper: now, or when the answer comes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tollgate_core::{After, Reply};
    ///
    /// /// Counts answers, each with its weight.
    /// struct Count(u64);
    ///
    /// impl<T> After<T> for Count {
    ///     type Shared = Arc<AtomicU64>;
    ///     type Output = T;
    ///
    ///     fn after(self, count: &Arc<AtomicU64>, answer: T) -> T {
    ///         count.fetch_add(self.0, Ordering::Relaxed);
    ///         answer
    ///     }
    /// }
    ///
    /// let count = Arc::new(AtomicU64::new(0));
    /// let reply: Reply<&str, std::future::Ready<&str>> = Reply::Now("granted");
    /// let Reply::Now("granted") = reply.then(&count, Count(2)) else { panic!("it was available") };
    /// assert_eq!(count.load(Ordering::Relaxed), 2);
    /// ```
    #[inline]
    pub fn then<A: After<T>>(self, shared: &A::Shared, after: A) -> Reply<A::Output, Then<F, A>> {
        match self {
            Reply::Now(answer) => Reply::Now(after.after(shared, answer)),
            Reply::Later(future) => Reply::Later(Then { future, shared: shared.clone(), after: Some(after) }),
        }
    }
}

/// The rule of a wrapper: what follows an answer of the store inside. It is written once, for
/// answers that are available and for those that come later: see [`Reply::then`].
///
/// It holds what the wrapper knows of one request. If the caller leaves before the answer, the rule
/// is dropped.
pub trait After<T> {
    /// What all requests of the wrapper share. It is cloned only if the answer comes later.
    type Shared: Clone;
    /// The answer of the wrapper.
    type Output;

    /// Makes the answer of the wrapper from that of the store inside.
    fn after(self, shared: &Self::Shared, answer: T) -> Self::Output;
}

/// The future of [`Reply::then`].
#[pin_project]
pub struct Then<F: Future, A: After<F::Output>> {
    #[pin]
    future: F,
    shared: A::Shared,
    /// `None` once the answer is there.
    after: Option<A>,
}

impl<F: Future, A: After<F::Output>> Future for Then<F, A> {
    type Output = A::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        let this = self.project();
        let answer = ready!(this.future.poll(cx));
        let after = this.after.take().expect("a future is not polled after it was ready");
        Poll::Ready(after.after(this.shared, answer))
    }
}

impl<F: Future, A: After<F::Output>> fmt::Debug for Then<F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Then").finish_non_exhaustive()
    }
}
