//! The wait for an answer, and its end.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::commit::AnswerReceiver;
use crate::error::{Cause, Error};

/// The end of the wait of a caller in another runtime.
pub(crate) type Timer = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// An answer that comes in time.
pub(crate) struct AnswerInTime<A> {
    answer: AnswerReceiver<A>,
    /// `None` in the store's runtime, where a task watches deadlines.
    end: Option<Timer>,
    is_polled: bool,
}

impl<A> AnswerInTime<A> {
    pub(crate) fn new(answer: AnswerReceiver<A>, end: Option<Timer>) -> AnswerInTime<A> {
        AnswerInTime { answer, end, is_polled: false }
    }
}

impl<A> Future for AnswerInTime<A> {
    type Output = Result<A, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match Pin::new(&mut this.answer).poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer.unwrap_or_else(|_| Err(Cause::Stopped.into()))),
            Poll::Pending => {
                let Some(end) = &mut this.end else { return Poll::Pending };
                if !mem::replace(&mut this.is_polled, true) {
                    // The end of a grant is polled once where its runtime may have stopped, which
                    // has no timer then.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                ready!(end.as_mut().poll(cx));
                // By now the answer is there, unless the set is over several hash slots.
                Poll::Ready(this.answer.try_recv().unwrap_or_else(|_| Err(Cause::Late.into())))
            }
        }
    }
}
