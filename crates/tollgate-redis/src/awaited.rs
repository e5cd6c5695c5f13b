//! An answer on its way, and the lane that brings it where its caller drives that himself.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    own: Option<OwnLane>,
    /// The end of the wait, where those who would tell of it are in another runtime.
    end: Option<Pin<Box<Sleep>>>,
}

impl<T> Awaited<T> {
    pub(crate) fn new(answer: oneshot::Receiver<Result<T, Error>>, own: Option<OwnLane>) -> Awaited<T> {
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
            // Whoever drives the lane is awake when it is answered: if that woke him, he would run once more for nothing.
            answer = Pin::new(&mut this.answer).poll(&mut Context::from_waker(Waker::noop()));
            if answer.is_pending() && !own.drive(cx) {
                this.own = None;
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
        // First: what has not been sent then never is.
        self.answer.close();
        self.leave_own();
    }
}

/// The lane of a caller who is alone, and drives it while his call is under way. It holds what others may wait for, and who knows
/// when he comes back to it: so it is left to a task, as other lanes are, as soon as somebody else asks for anything. It is where
/// he leaves, too: what was sent is to be heard, or nobody would find out that a connection is of no use any more.
#[derive(Clone)]
pub(crate) struct OwnLane(Arc<Inner>);

struct Inner {
    /// None, when it has ended or was left to a task.
    run: Mutex<Option<Run>>,
    runtime: Handle,
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OwnLane {
    pub(crate) fn new(run: Run, runtime: Handle) -> OwnLane {
        OwnLane(Arc::new(Inner { run: Mutex::new(Some(run)), runtime }))
    }

    /// As far as it gets without waiting: its call is sent, if there is a connection.
    pub(crate) fn start(&self) {
        self.drive(&mut Context::from_waker(Waker::noop()));
    }

    /// Returns whether there is more of it to drive.
    fn drive(&self, cx: &mut Context<'_>) -> bool {
        // Connections are made in the runtime of the store alone, and so are they waited for.
        if !Handle::try_current().is_ok_and(|here| here.id() == self.0.runtime.id()) {
            self.leave();
            return false;
        }
        let mut left = self.run();
        let Some(mut run) = left.take() else { return false };
        // A panic ends it, as it would end a task: its caller is told that nobody will answer.
        let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)));
        *left = matches!(polled, Ok(Poll::Pending)).then_some(run);
        left.is_some()
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
