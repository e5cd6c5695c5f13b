//! Work that goes on although its caller has left: how what a store granted ends.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tollgate_core::Reply;

/// The runtime in which something was granted, since its end may come outside of any.
#[derive(Clone, Debug)]
pub(crate) struct Home(Option<Handle>);

/// No end waits longer than that for a store that does not answer.
pub(crate) const LONGEST_END: Duration = Duration::from_secs(60);

/// How far an end has come.
pub(crate) enum EndPhase<T> {
    Done(T),
    /// It goes on in a task.
    Task(JoinHandle<T>),
    /// It goes on while it is polled, since there is no runtime.
    Alone(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl Home {
    /// The runtime of the caller, if there is one.
    pub(crate) fn here() -> Home {
        Home(Handle::try_current().ok())
    }

    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.0.as_ref()
    }

    /// Begins an end, and polls it once here, so that a store in memory has done it when this
    /// returns. The rest goes on in a task of the runtime of the caller, or else of this one.
    pub(crate) fn end<F>(&self, begin: impl FnOnce() -> F) -> EndPhase<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let runtime = Handle::try_current().ok().or_else(|| self.0.clone());
        // A store may need the runtime's timers.
        let _entered = runtime.as_ref().map(Handle::enter);
        let mut end = Box::pin(begin());
        match (end.as_mut().poll(&mut Context::from_waker(Waker::noop())), runtime.as_ref()) {
            (Poll::Ready(done), _) => EndPhase::Done(done),
            // The task polls all that is not ready again.
            (Poll::Pending, Some(runtime)) => EndPhase::Task(runtime.spawn(end)),
            (Poll::Pending, None) => EndPhase::Alone(end),
        }
    }
}

impl EndPhase<()> {
    /// Waits for it. It goes on if the caller leaves, and ends early if its runtime stops.
    pub(crate) async fn finish(self) {
        match self {
            EndPhase::Done(()) => {}
            EndPhase::Task(task) => _ = task.await,
            EndPhase::Alone(end) => end.await,
        }
    }
}

/// Begins an end of a task that waits for several.
pub(crate) async fn begun<F: Future>(end: F) -> Reply<F::Output, Pin<Box<F>>> {
    let mut end = Box::pin(end);
    match poll_fn(|cx| Poll::Ready(end.as_mut().poll(cx))).await {
        Poll::Ready(done) => Reply::Now(done),
        Poll::Pending => Reply::Later(end),
    }
}

/// Waits for an end no longer than `limit`. The first poll needs no timer: it is where the end is
/// made, and there may be no runtime, or one that has stopped. Without a runtime there is no limit.
pub(crate) async fn within<F: Future>(limit: Duration, end: F) -> Option<F::Output> {
    let mut end = pin!(end);
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(end.as_mut().poll(cx))).await {
        return Some(done);
    }
    yield_now().await;
    match Handle::try_current() {
        Ok(_) => timeout(limit, end).await.ok(),
        Err(_) => Some(end.await),
    }
}
