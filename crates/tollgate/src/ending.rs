//! Work that goes on although its caller has left: how what a store granted ends.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tollgate_core::Reply;

/// The runtime in which something was granted, since its end may come outside of any.
#[derive(Clone, Debug)]
pub(crate) struct Home(Option<Handle>);

/// How far an end has come.
pub(crate) enum EndPhase<T, F> {
    Done(T),
    /// It goes on in a task.
    Task(JoinHandle<T>),
    /// It goes on while it is polled, since there is no runtime.
    Alone(F),
}

impl Home {
    /// The runtime of the caller, if there is one.
    pub(crate) fn here() -> Home {
        Home(Handle::try_current().ok())
    }

    pub(crate) fn runtime(&self) -> Option<&Handle> {
        self.0.as_ref()
    }

    /// Begins an end here, so that a store in memory has done it when this returns. The rest goes
    /// on in a task of the runtime of the caller, or else of this one.
    pub(crate) fn end<T, F>(&self, begin: impl FnOnce() -> Reply<T, F>) -> EndPhase<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let runtime = Handle::try_current().ok().or_else(|| self.0.clone());
        // A store may need the runtime's timers.
        let _entered = runtime.as_ref().map(Handle::enter);
        match (begin(), &runtime) {
            (Reply::Now(done), _) => EndPhase::Done(done),
            (Reply::Later(rest), Some(runtime)) => EndPhase::Task(runtime.spawn(rest)),
            (Reply::Later(rest), None) => EndPhase::Alone(rest),
        }
    }
}

/// Polls a future once. A task polls all that are not ready again.
pub(crate) fn polled<T>(
    mut future: Pin<Box<dyn Future<Output = T> + Send>>,
) -> Reply<T, Pin<Box<dyn Future<Output = T> + Send>>> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Reply::Now(done),
        Poll::Pending => Reply::Later(future),
    }
}
