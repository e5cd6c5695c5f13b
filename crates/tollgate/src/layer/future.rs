//! The future of a rate-limited response.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tollgate_core::Store;
use tower_service::Service;

use super::decide::{Extras, Next};
use crate::answer::body::ResponseBody;
use crate::limiter::Permit;
use crate::limiter::asking::Asking;
use crate::limiter::decider::Decider;
use crate::limiter::waiting::{Waited, WaitedRequest};
use crate::limiter::waiting_call::WaitingCall;
use crate::plan::Asks;
use crate::store::NeverFails;

/// The response of a [`RateLimit`](super::RateLimit) service.
#[pin_project]
pub struct ResponseFuture<Svc, S, ReqBody, ResBody>(#[pin] ResponseState<Svc, S, ReqBody, ResBody>)
where
    Svc: Service<Request<ReqBody>>,
    S: Store;

/// A request begins in any of these states, and ends in `Passed` or `Refused`:
///
/// ```text
/// Waiting ─┬─▶ Delayed ─▶ Passed
///          ├─▶ Passed
///          └─▶ Refused
/// ```
///
/// From `Waiting` it may also begin again, by rules that have replaced those of its wait.
#[pin_project(project = ResponseStateProj)]
enum ResponseState<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    /// Waits for the store, or for its turn. Boxed, so that the future over a store in memory stays
    /// small.
    Waiting(Pin<Box<WaitingRequest<Svc, S, ReqBody>>>),
    /// Waits for the place that a leaky bucket reserved.
    Delayed(Box<Delayed<Svc, ReqBody>>),
    /// The inner service has the request.
    Passed {
        #[pin]
        future: Svc::Future,
        extras: Extras,
    },
    /// The request was refused.
    Refused { response: Option<Response<ResponseBody<ResBody>>> },
}

#[pin_project]
struct WaitingRequest<Svc, S: Store, ReqBody> {
    #[pin]
    asking: Asking<S, WaitedRequest<S>>,
    asks: Asks,
    call: WaitingCall<Svc, Request<ReqBody>>,
    decider: Arc<Decider<S>>,
}

struct Delayed<Svc, ReqBody> {
    after: Pin<Box<dyn Future<Output = Permit> + Send>>,
    call: WaitingCall<Svc, Request<ReqBody>>,
    extras: Extras,
}

impl<Svc, S, ReqBody, ResBody> ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: Store,
    ReqBody: Body + Send + 'static,
{
    #[inline]
    pub(crate) fn pass(future: Svc::Future, extras: Extras) -> Self {
        ResponseFuture(ResponseState::Passed { future, extras })
    }

    pub(crate) fn refuse(response: Response<ResponseBody<ResBody>>) -> Self {
        ResponseFuture(ResponseState::Refused { response: Some(response) })
    }

    #[inline(always)]
    pub(crate) fn new(
        next: Next<S>,
        service: &mut Svc,
        request: Request<ReqBody>,
        decider: &Arc<Decider<S>>,
    ) -> Self {
        ResponseFuture(ResponseState::new(next, service, request, decider))
    }
}

impl<Svc, S, ReqBody, ResBody> ResponseState<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: Store,
    ReqBody: Body + Send + 'static,
{
    /// Does what was decided with a request, for a service that is ready.
    #[inline(always)]
    fn new(next: Next<S>, service: &mut Svc, request: Request<ReqBody>, decider: &Arc<Decider<S>>) -> Self {
        match next {
            // A service handles `Pass` and `Refuse` itself. They arrive here from `poll_wait`.
            Next::Pass(extras) => ResponseState::Passed { future: service.call(request), extras },
            Next::Delay(after, extras) => {
                let call = WaitingCall::new(service, request);
                ResponseState::Delayed(Box::new(Delayed { after, call, extras }))
            }
            Next::Refuse(denial, fields) => {
                ResponseState::Refused { response: Some(decider.refuse(request, denial, fields)) }
            }
            Next::Wait(asking, asks) => {
                let (call, decider) = (WaitingCall::new(service, request), Arc::clone(decider));
                ResponseState::Waiting(Box::pin(WaitingRequest { asking, asks, call, decider }))
            }
        }
    }
}

impl<Svc, S, ReqBody, ResBody> Future for ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: Store,
    S::Error: NeverFails,
    ReqBody: Body + Send + 'static,
{
    type Output = Result<Response<ResponseBody<ResBody>>, Svc::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().0;
        loop {
            match state.as_mut().project() {
                ResponseStateProj::Passed { future, extras } => {
                    if extras.is_empty() {
                        return future.poll(cx).map_ok(|response| response.map(ResponseBody::inner));
                    }
                    return Poll::Ready(match ready!(future.poll(cx)) {
                        Ok(response) => Ok(extras.add_to(response)),
                        Err(error) => {
                            extras.fail();
                            Err(error)
                        }
                    });
                }
                ResponseStateProj::Refused { response } => {
                    let response = response.take();
                    return Poll::Ready(Ok(response.expect("a future is not polled after it was ready")));
                }
                ResponseStateProj::Waiting(_) | ResponseStateProj::Delayed(_) => {
                    ready!(state.as_mut().poll_wait(cx));
                }
            }
        }
    }
}

impl<Svc, S, ReqBody, ResBody> ResponseState<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: Store,
    S::Error: NeverFails,
    ReqBody: Body + Send + 'static,
{
    /// Brings a request that waits to its next state.
    fn poll_wait(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let next = match self.as_mut().project() {
            ResponseStateProj::Waiting(waiting) => {
                let waiting = waiting.as_mut().project();
                let waited = ready!(waiting.asking.poll(cx));
                let (mut service, mut request) = waiting.call.take();
                let decider = waiting.decider;
                let next = match waited {
                    Waited::Decided(mut admission) => {
                        decider.after(&mut request, waiting.asks, &mut admission)
                    }
                    // Only of callers with a patience of their own, which requests here have not.
                    Waited::Refused(denial) => Next::Refuse(denial, None),
                    Waited::Replaced((place, live)) => {
                        *decider = live.load_full();
                        decider.decide(Some(place), &live, &mut request)
                    }
                };
                ResponseState::new(next, &mut service, request, decider)
            }
            ResponseStateProj::Delayed(delayed) => {
                let _permit = ready!(delayed.after.as_mut().poll(cx));
                let (mut service, request) = delayed.call.take();
                let extras = mem::take(&mut delayed.extras);
                ResponseState::Passed { future: service.call(request), extras }
            }
            ResponseStateProj::Passed { .. } | ResponseStateProj::Refused { .. } => return Poll::Ready(()),
        };
        self.set(next);
        Poll::Ready(())
    }
}

impl<Svc, S, ReqBody, ResBody> fmt::Debug for ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            ResponseState::Waiting(_) => "ResponseFuture(waiting)",
            ResponseState::Delayed(_) => "ResponseFuture(delayed)",
            ResponseState::Passed { .. } => "ResponseFuture(passed)",
            ResponseState::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}
