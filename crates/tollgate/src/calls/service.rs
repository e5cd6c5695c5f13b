//! The service whose calls are limited, its future and its error.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tollgate_core::Store;
use tower_layer::Layer;
use tower_service::Service;

use super::layer::CallLimitLayer;
use crate::decision::{CallError, Denial};
use crate::limiter::Permit;
use crate::limiter::decider::Decider;
use crate::limiter::queue_place::after_delay;
use crate::limiter::waiting_call::WaitingCall;
use crate::memory::MemoryStore;
use crate::store::NeverFails;

/// A service limited by a [`CallLimitLayer`]. It is ready when the inner service is.
pub struct CallLimit<Svc, R, S = MemoryStore> {
    inner: Svc,
    layer: CallLimitLayer<R, S>,
}

impl<Svc, R, S> CallLimit<Svc, R, S> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> Svc {
        self.inner
    }
}

impl<R, S: Clone, Svc> Layer<Svc> for CallLimitLayer<R, S> {
    type Service = CallLimit<Svc, R, S>;

    fn layer(&self, inner: Svc) -> CallLimit<Svc, R, S> {
        CallLimit { inner, layer: self.clone() }
    }
}

impl<Svc, R, S> Service<R> for CallLimit<Svc, R, S>
where
    Svc: Service<R> + Clone,
    S: Store<Error: NeverFails>,
{
    type Response = Svc::Response;
    type Error = CallError<Svc::Error>;
    type Future = CallFuture<Svc, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(CallError::Inner)
    }

    fn call(&mut self, request: R) -> CallFuture<Svc, R> {
        let CallLimitLayer { limiter, key, cost, at_most } = &self.layer;
        let cost = cost.as_ref().map_or(1, |cost| cost(&request));
        let (live, key, at_most) = (Arc::clone(&limiter.live), key(&request), *at_most);
        let permit = Box::pin(async move {
            let asks = |decider: &Decider<S>| Ok(decider.asks(key.as_ref(), cost));
            let Ok(decided) = live.permit::<Infallible>(asks, at_most).await;
            let (_, permit) = decided?;
            Ok(after_delay(permit).await)
        });
        CallFuture(CallState::Waiting { permit, call: WaitingCall::new(&mut self.inner, request) })
    }
}

impl<Svc: Clone, R, S: Clone> Clone for CallLimit<Svc, R, S> {
    fn clone(&self) -> CallLimit<Svc, R, S> {
        CallLimit { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<Svc: fmt::Debug, R, S: fmt::Debug> fmt::Debug for CallLimit<Svc, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimit").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

/// The response of a [`CallLimit`]. It may be dropped at any time: see [`Limiter::until_ready`].
///
/// [`Limiter::until_ready`]: crate::Limiter::until_ready
#[pin_project]
pub struct CallFuture<Svc: Service<R>, R>(#[pin] CallState<Svc, R>);

#[pin_project(project = CallStateProj)]
enum CallState<Svc: Service<R>, R> {
    Waiting {
        permit: Pin<Box<dyn Future<Output = Result<Permit, Denial>> + Send>>,
        call: WaitingCall<Svc, R>,
    },
    Called {
        #[pin]
        future: Svc::Future,
        /// Holds its slots until the future has ended or is dropped.
        permit: Option<Permit>,
    },
}

impl<Svc: Service<R>, R> Future for CallFuture<Svc, R> {
    type Output = Result<Svc::Response, CallError<Svc::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().0;
        loop {
            let (future, permit) = match state.as_mut().project() {
                CallStateProj::Called { future, permit } => {
                    let response = ready!(future.poll(cx));
                    *permit = None;
                    return Poll::Ready(response.map_err(CallError::Inner));
                }
                CallStateProj::Waiting { permit, call } => match ready!(permit.as_mut().poll(cx)) {
                    Err(denial) => return Poll::Ready(Err(CallError::Denied(denial))),
                    Ok(permit) => {
                        let (mut service, request) = call.take();
                        (service.call(request), Some(permit))
                    }
                },
            };
            state.set(CallState::Called { future, permit });
        }
    }
}

impl<Svc: Service<R>, R> fmt::Debug for CallFuture<Svc, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            CallState::Waiting { .. } => "CallFuture(waiting)",
            CallState::Called { .. } => "CallFuture(called)",
        })
    }
}
