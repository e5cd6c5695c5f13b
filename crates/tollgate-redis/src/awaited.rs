//! An answer on its way, and the call that brings it where its caller makes that himself.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::Error;
use crate::batch::Batch;
use crate::error::Cause;

pub(crate) struct Awaited<T> {
    answer: oneshot::Receiver<Result<T, Error>>,
    /// In a box: most answers are brought by others, and pass through several hands.
    own: Option<Box<OwnCall>>,
    /// The end of the wait, where those who would tell of it are in another runtime.
    end: Option<Pin<Box<Sleep>>>,
}

impl<T> Awaited<T> {
    pub(crate) fn new(answer: oneshot::Receiver<Result<T, Error>>, own: Option<OwnCall>) -> Awaited<T> {
        Awaited { answer, own: own.map(Box::new), end: None }
    }

    pub(crate) fn until(self, end: Option<Pin<Box<Sleep>>>) -> Awaited<T> {
        Awaited { end, ..self }
    }
}

impl<T> Future for Awaited<T> {
    type Output = Result<T, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut answer = Poll::Pending;
        if let Some(own) = &mut this.own {
            // Whoever makes the call is awake when it ends: if that woke him, he would run once more for nothing.
            answer = Pin::new(&mut this.answer).poll(&mut Context::from_waker(Waker::noop()));
            if answer.is_pending() {
                own.go_on(cx);
            }
        }
        if answer.is_pending() {
            answer = Pin::new(&mut this.answer).poll(cx);
        }
        if let Poll::Ready(answer) = answer {
            return Poll::Ready(answer.unwrap_or_else(|_| Err(Cause::Stopped.into())));
        }
        let Some(end) = &mut this.end else { return Poll::Pending };
        end.as_mut().poll(cx).map(|()| Err(Cause::Late.into()))
    }
}

/// A call for one caller, who drives it as long as it only waits for an answer to what was sent. Before and after that it may hold
/// what others wait for, and who knows when he comes back to it: then it runs in a task, as other calls do. So it does where he
/// leaves: what was sent is to be heard, or nobody would find out that a connection is of no use any more.
pub(crate) struct OwnCall {
    /// None, when it has ended, or runs in a task.
    call: Option<(Run, Arc<Mutex<Batch>>)>,
    /// Whether its caller waits for it.
    is_awaited: bool,
    runtime: Handle,
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OwnCall {
    /// Sends it, if there is a connection for it.
    pub(crate) fn start(
        run: impl Future<Output = ()> + Send + 'static,
        batch: Arc<Mutex<Batch>>,
        runtime: Handle,
    ) -> OwnCall {
        let mut own = OwnCall { call: Some((Box::pin(run), batch)), is_awaited: false, runtime };
        own.drive(&mut Context::from_waker(Waker::noop()));
        own
    }

    /// Is called to wait for the answer, and to hear it. Whoever calls it more often has other things to do.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        self.drive(cx);
        if mem::replace(&mut self.is_awaited, true) {
            self.leave();
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some((run, batch)) = &mut self.call else { return };
        // Connections are made in the runtime of the store alone, and so are they waited for.
        let is_here = Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id());
        if is_here && run.as_mut().poll(cx).is_ready() {
            self.call = None;
        } else if !is_here || !is_sent(batch) {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if let Some((run, _)) = self.call.take() {
            self.runtime.spawn(run);
        }
    }
}

fn is_sent(batch: &Mutex<Batch>) -> bool {
    batch.lock().unwrap_or_else(PoisonError::into_inner).is_sent()
}

impl Drop for OwnCall {
    fn drop(&mut self) {
        self.leave();
    }
}
