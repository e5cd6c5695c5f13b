//! The end of a refund or a reset under a failure policy.

use std::convert::Infallible;
use std::future::{Future, Ready};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tollgate_core::{Reply, StoreError};

use super::outage::Outage;

/// Completes a refund or a reset, even if the store fails. `B` is the future of a fallback.
#[pin_project]
#[derive(Debug)]
pub struct Done<A, B = Ready<Result<(), Infallible>>> {
    #[pin]
    store: Option<A>,
    #[pin]
    fallback: Option<B>,
    outage: Outage,
}

impl<A, B> Done<A, B> {
    /// Records the store's answer if it is there, and waits for what is not.
    pub(super) fn of<E: StoreError>(
        store: Option<Reply<Result<(), E>, A>>,
        fallback: Option<Reply<Result<(), Infallible>, B>>,
        outage: &Outage,
    ) -> Reply<Result<(), Infallible>, Done<A, B>> {
        let store = store.and_then(|reply| match reply {
            Reply::Now(answer) => {
                outage.record(&answer);
                None
            }
            Reply::Later(future) => Some(future),
        });
        let fallback = fallback.and_then(|reply| match reply {
            Reply::Now(Ok(())) => None,
            Reply::Later(future) => Some(future),
        });
        match (&store, &fallback) {
            (None, None) => Reply::Now(Ok(())),
            _ => Reply::Later(Done { store, fallback, outage: outage.clone() }),
        }
    }
}

impl<A, B, E> Future for Done<A, B>
where
    A: Future<Output = Result<(), E>>,
    B: Future<Output = Result<(), Infallible>>,
    E: StoreError,
{
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(fallback) = this.fallback.as_mut().as_pin_mut() {
            let Ok(()) = ready!(fallback.poll(cx));
            this.fallback.set(None);
        }
        if let Some(store) = this.store.as_mut().as_pin_mut() {
            let answer = ready!(store.poll(cx));
            this.outage.record(&answer);
            this.store.set(None);
        }
        Poll::Ready(Ok(()))
    }
}
