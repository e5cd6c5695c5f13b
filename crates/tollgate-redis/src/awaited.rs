//! An answer on its way, and the call that brings it where its caller makes that himself.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::Error;
use crate::error::Cause;

pub(crate) struct Awaited<T> {
    answer: oneshot::Receiver<Result<T, Error>>,
    own: Option<OwnCall>,
    /// The end of the wait, where those who would tell of it are in another runtime.
    end: Option<Pin<Box<Sleep>>>,
}

impl<T> Awaited<T> {
    pub(crate) fn new(answer: oneshot::Receiver<Result<T, Error>>, own: Option<OwnCall>) -> Awaited<T> {
        Awaited { answer, own, end: None }
    }

    pub(crate) fn until(mut self, end: Option<Pin<Box<Sleep>>>) -> Awaited<T> {
        self.end = end;
        self
    }

    fn leave_own(&mut self) {
        if let Some(own) = self.own.take() {
            own.leave();
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = Result<T, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut answer = Poll::Pending;
        if let Some(own) = &this.own {
            // Whoever makes the call is awake when it ends: if that woke him, he would run once more for nothing.
            answer = Pin::new(&mut this.answer).poll(&mut Context::from_waker(Waker::noop()));
            if answer.is_pending() {
                own.drive(cx);
            }
        }
        if answer.is_pending() {
            answer = Pin::new(&mut this.answer).poll(cx);
        }
        if let Poll::Ready(answer) = answer {
            this.leave_own();
            return Poll::Ready(answer.unwrap_or_else(|_| Err(Cause::Stopped.into())));
        }
        let Some(end) = &mut this.end else { return Poll::Pending };
        end.as_mut().poll(cx).map(|()| Err(Cause::Late.into()))
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        self.leave_own();
    }
}

/// A call for one caller, who drives it as long as nobody else is there. It may hold what others wait for, a connection or a lock,
/// and who knows when he comes back to it: so it is left to a task, as other calls are, as soon as somebody else asks for
/// anything. It is where he leaves, too: what was sent is to be heard, or nobody would find out that a connection is of no use
/// any more.
#[derive(Clone)]
pub(crate) struct OwnCall(Arc<Inner>);

struct Inner {
    /// None, when it has ended or was left to a task.
    run: Mutex<Option<Run>>,
    runtime: Handle,
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OwnCall {
    pub(crate) fn new(run: impl Future<Output = ()> + Send + 'static, runtime: Handle) -> OwnCall {
        OwnCall(Arc::new(Inner { run: Mutex::new(Some(Box::pin(run))), runtime }))
    }

    /// As far as it gets without waiting: it is sent, if there is a connection.
    pub(crate) fn start(&self) {
        self.drive(&mut Context::from_waker(Waker::noop()));
    }

    fn drive(&self, cx: &mut Context<'_>) {
        // Connections are made in the runtime of the store alone, and so are they waited for.
        if !Handle::try_current().is_ok_and(|here| here.id() == self.0.runtime.id()) {
            return self.leave();
        }
        let mut run = self.run();
        if run.as_mut().is_some_and(|run| run.as_mut().poll(cx).is_ready()) {
            *run = None;
        }
    }

    /// Leaves it to a task.
    pub(crate) fn leave(&self) {
        // Nothing is held while it is spawned: where the runtime has ended, it is dropped there.
        let run = self.run().take();
        if let Some(run) = run {
            self.0.runtime.spawn(run);
        }
    }

    fn run(&self) -> MutexGuard<'_, Option<Run>> {
        self.0.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
