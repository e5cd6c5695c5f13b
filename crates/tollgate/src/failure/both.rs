//! A refund or a reset in two stores.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tollgate_core::Reply;

/// Ends when both have ended, of those that have not yet.
#[pin_project]
#[derive(Debug)]
pub struct Both<A, B> {
    #[pin]
    first: Option<A>,
    #[pin]
    second: Option<B>,
}

type Ended = Result<(), Infallible>;

impl<A, B> Both<A, B> {
    pub(super) fn of(first: Reply<Ended, A>, second: Reply<Ended, B>) -> Reply<Ended, Both<A, B>> {
        match (later(first), later(second)) {
            (None, None) => Reply::Now(Ok(())),
            (first, second) => Reply::Later(Both { first, second }),
        }
    }
}

fn later<F>(reply: Reply<Ended, F>) -> Option<F> {
    match reply {
        Reply::Now(Ok(())) => None,
        Reply::Later(future) => Some(future),
    }
}

impl<A: Future<Output = Ended>, B: Future<Output = Ended>> Future for Both<A, B> {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let mut this = self.project();
        if this.first.as_mut().as_pin_mut().is_some_and(|first| first.poll(cx).is_ready()) {
            this.first.set(None);
        }
        if this.second.as_mut().as_pin_mut().is_some_and(|second| second.poll(cx).is_ready()) {
            this.second.set(None);
        }
        if this.first.is_some() || this.second.is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}
