//! A change of the store, before and after which this process forgets what it knows.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tollgate_core::Reply;

/// Sends a refund or a reset. Calls `forget` before it and again after it, because what is learned
/// between the two may be from before the change.
pub(super) fn forgetting<T, D: Future>(
    forget: impl Fn() + Send + 'static,
    change: impl FnOnce() -> Reply<T, D>,
) -> Reply<T, Forgetting<D>> {
    forget();
    match change() {
        Reply::Now(answer) => {
            forget();
            Reply::Now(answer)
        }
        Reply::Later(done) => Reply::Later(Forgetting { done, forget: Box::new(forget) }),
    }
}

/// A refund or a reset, after which this process forgets what it knew.
#[pin_project]
pub struct Forgetting<D> {
    #[pin]
    done: D,
    forget: Box<dyn Fn() + Send>,
}

impl<D: Future> Future for Forgetting<D> {
    type Output = D::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Output> {
        let this = self.project();
        let output = ready!(this.done.poll(cx));
        (this.forget)();
        Poll::Ready(output)
    }
}

impl<D> fmt::Debug for Forgetting<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forgetting").finish_non_exhaustive()
    }
}
