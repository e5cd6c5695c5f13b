//! The client whose requests pause, and its future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::{Sleep, sleep};
use tower_layer::Layer;
use tower_service::Service;

use super::layer::PauseLayer;
use super::pauses::Origin;
use crate::decision::CallError;
use crate::limiter::waiting_call::WaitingCall;

/// A client that obeys pauses, made by a [`PauseLayer`]. It is ready when the inner service is.
pub struct Pause<Svc, R, T> {
    inner: Svc,
    layer: PauseLayer<R, T>,
}

impl<R, T, Svc> Layer<Svc> for PauseLayer<R, T> {
    type Service = Pause<Svc, R, T>;

    fn layer(&self, inner: Svc) -> Pause<Svc, R, T> {
        Pause { inner, layer: self.clone() }
    }
}

impl<Svc, R, T> Service<R> for Pause<Svc, R, T>
where
    Svc: Service<R, Response = T> + Clone,
{
    type Response = T;
    type Error = CallError<Svc::Error>;
    type Future = PauseFuture<Svc, R, T>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(CallError::Inner)
    }

    fn call(&mut self, request: R) -> PauseFuture<Svc, R, T> {
        let origin = self.layer.origin(&request);
        let state = match self.layer.left(origin) {
            None => PauseState::Called { future: self.inner.call(request) },
            Some(left) if left > self.layer.at_most => {
                // What is ready may hold a permit, which other origins need.
                drop(WaitingCall::new(&mut self.inner, request));
                PauseState::Refused { left: self.layer.lengthened(left) }
            }
            Some(left) => {
                let call = WaitingCall::new(&mut self.inner, request);
                let wait = self.layer.lengthened(left).min(self.layer.at_most);
                PauseState::Waiting { sleep: sleep(wait), call, patience: self.layer.at_most - wait }
            }
        };
        PauseFuture { state, origin, layer: self.layer.clone() }
    }
}

impl<Svc: Clone, R, T> Clone for Pause<Svc, R, T> {
    fn clone(&self) -> Pause<Svc, R, T> {
        Pause { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<Svc: fmt::Debug, R, T> fmt::Debug for Pause<Svc, R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pause").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

/// The response of a [`Pause`]. It may be dropped at any time.
#[pin_project]
pub struct PauseFuture<Svc: Service<R>, R, T> {
    #[pin]
    state: PauseState<Svc, R>,
    origin: Option<Origin>,
    layer: PauseLayer<R, T>,
}

#[pin_project(project = StateProj)]
enum PauseState<Svc: Service<R>, R> {
    // ## Waiting => (Waiting | Called | Refused)
    Waiting {
        #[pin]
        sleep: Sleep,
        call: WaitingCall<Svc, R>,
        /// For how much longer it may wait after this pause.
        patience: Duration,
    },
    // ## Called => done
    Called {
        #[pin]
        future: Svc::Future,
    },
    // ## Refused => done
    Refused {
        left: Duration,
    },
}

impl<Svc, R, T> Future for PauseFuture<Svc, R, T>
where
    Svc: Service<R, Response = T>,
{
    type Output = Result<T, CallError<Svc::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Refused { left } => return Poll::Ready(Err(CallError::Paused(*left))),
                StateProj::Called { future } => {
                    let response = ready!(future.poll(cx)).map_err(CallError::Inner);
                    return Poll::Ready(response.inspect(|response| {
                        this.layer.hear(this.origin.take(), response);
                    }));
                }
                StateProj::Waiting { mut sleep, call, patience } => {
                    ready!(sleep.as_mut().poll(cx));
                    // Another response may have made the pause longer.
                    match this.layer.left(*this.origin) {
                        Some(left) if left > *patience => {
                            PauseState::Refused { left: this.layer.lengthened(left) }
                        }
                        Some(left) => {
                            let wait = this.layer.lengthened(left).min(*patience);
                            *patience -= wait;
                            let until = sleep.deadline() + wait;
                            sleep.reset(until);
                            continue;
                        }
                        None => {
                            let (mut service, request) = call.take();
                            PauseState::Called { future: service.call(request) }
                        }
                    }
                }
            };
            this.state.set(next);
        }
    }
}

impl<Svc: Service<R>, R, T> fmt::Debug for PauseFuture<Svc, R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            PauseState::Waiting { .. } => "PauseFuture(waiting)",
            PauseState::Called { .. } => "PauseFuture(called)",
            PauseState::Refused { .. } => "PauseFuture(refused)",
        })
    }
}
