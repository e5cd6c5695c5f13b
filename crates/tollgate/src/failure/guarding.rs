//! The answer of a guarded store, on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::StoreError;

use super::guard_error::GuardError;
use super::shared_circuit::{Role, SharedCircuit};
use crate::time::timer_now;

/// The answer of a store, or an error once the limit has passed. The circuit hears of either.
#[pin_project]
pub struct Guarding<F> {
    #[pin]
    future: F,
    /// `None` if no circuit counts the answer, and once it is there.
    role: Option<(Arc<SharedCircuit>, Role)>,
    timer: WaitTimer,
}

impl<F> Guarding<F> {
    /// The decision on a check.
    pub(super) fn check(
        future: F,
        role: Option<(Arc<SharedCircuit>, Role)>,
        limit: Option<Duration>,
    ) -> Guarding<F> {
        Guarding { future, role, timer: WaitTimer::new(limit, false) }
    }

    /// Anything else. Its first poll is where it is made, and needs no timer: there may be no
    /// runtime, or one that has stopped.
    pub(super) fn end(future: F, limit: Option<Duration>) -> Guarding<F> {
        Guarding { future, role: None, timer: WaitTimer::new(limit, true) }
    }
}

impl<F, T, E> Future for Guarding<F>
where
    F: Future<Output = Result<T, E>>,
    E: StoreError,
{
    type Output = Result<T, GuardError<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = match this.future.poll(cx) {
            Poll::Ready(answer) => answer.map_err(GuardError::Store),
            Poll::Pending => Err(GuardError::Elapsed(ready!(this.timer.poll(cx)))),
        };
        if let Some((circuit, role)) = this.role.take() {
            circuit.record(role, answer.as_ref().err());
        }
        Poll::Ready(answer)
    }
}

impl<F> fmt::Debug for Guarding<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarding(..)")
    }
}

/// The timer of a wait.
enum WaitTimer {
    /// The store ends the wait by itself, or no limit holds.
    None,
    /// Not needed yet.
    Unset {
        asked: Instant,
        limit: Duration,
        is_end: bool,
    },
    Set {
        sleep: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
        limit: Duration,
    },
}

impl WaitTimer {
    /// The limit counts from here, not from the first poll: what the caller does before polling is
    /// part of the request's time.
    fn new(limit: Option<Duration>, is_end: bool) -> WaitTimer {
        limit.map_or(WaitTimer::None, |limit| WaitTimer::Unset { asked: timer_now(), limit, is_end })
    }

    /// Returns the limit once it has passed.
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        match *self {
            WaitTimer::None => Poll::Pending,
            WaitTimer::Unset { asked, limit, is_end: true } => {
                *self = WaitTimer::Unset { asked, limit, is_end: false };
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            WaitTimer::Unset { asked, limit, .. } => {
                // A limit beyond the end of time never passes.
                let sleep = asked.checked_add(limit).map_or_else(|| sleep(limit), sleep_until);
                // A store that uses up the budget of its task does not hold up the timer.
                let mut sleep = Box::pin(unconstrained(sleep));
                let is_over = sleep.as_mut().poll(cx).map(|()| limit);
                *self = WaitTimer::Set { sleep, limit };
                is_over
            }
            WaitTimer::Set { ref mut sleep, limit } => sleep.as_mut().poll(cx).map(|()| limit),
        }
    }
}
