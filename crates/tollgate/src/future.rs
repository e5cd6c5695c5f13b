//! The future of a rate-limited response.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project::pin_project;
use tokio::time::{Sleep, sleep};
use tollgate_core::Store;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::layer::Shared;
use crate::limiter::NeverFails;
use crate::rule::Asks;
use crate::service::{Decision, Extras};

/// The response of a [`RateLimit`](crate::RateLimit) service.
///
/// Dropping it is harmless: what was charged stays charged, the slot that a leaky bucket reserved stays reserved, and
/// nothing is half done.
#[pin_project]
pub struct ResponseFuture<Svc, S, ReqBody, ResBody>(#[pin] State<Svc, S, ReqBody, ResBody>)
where
    Svc: Service<Request<ReqBody>>,
    S: Store;

#[pin_project(project = StateProj, project_replace = StateOwned)]
enum State<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    /// Waits for a store that does not answer at once. Boxed, so that the future of a store in memory stays small.
    // ## Asking => (Delayed | Passed | Refused)
    Asking { verdict: Pin<Box<S::Acquire>>, held: Box<Held<Svc, S, ReqBody>> },
    /// Waits for the slot that a leaky bucket reserved.
    // ## Delayed => Passed
    Delayed { sleep: Pin<Box<Sleep>>, call: Box<(Svc, Request<ReqBody>)>, extras: Extras },
    /// The inner service has the request.
    // ## Passed => done
    Passed {
        #[pin]
        future: Svc::Future,
        extras: Extras,
    },
    /// The request was refused.
    // ## Refused => done
    Refused { response: Box<Response<ResponseBody<ResBody>>> },
    /// Between two states, and after the response.
    Done,
}

/// A request on hold, and the service that was polled ready for it.
struct Held<Svc, S, ReqBody> {
    service: Svc,
    request: Request<ReqBody>,
    asks: Asks,
    shared: Arc<Shared<S>>,
}

impl<Svc, S, ReqBody, ResBody> ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    pub(crate) fn asking(
        verdict: S::Acquire,
        service: Svc,
        request: Request<ReqBody>,
        asks: Asks,
        shared: Arc<Shared<S>>,
    ) -> Self {
        let held = Box::new(Held { service, request, asks, shared });
        ResponseFuture(State::Asking { verdict: Box::pin(verdict), held })
    }

    pub(crate) fn delayed(service: Svc, request: Request<ReqBody>, delay: Duration, extras: Extras) -> Self {
        ResponseFuture(State::delayed(service, request, delay, extras))
    }

    pub(crate) fn passed(future: Svc::Future, extras: Extras) -> Self {
        ResponseFuture(State::Passed { future, extras })
    }

    pub(crate) fn refused(response: Response<ResponseBody<ResBody>>) -> Self {
        ResponseFuture(State::Refused { response: Box::new(response) })
    }
}

impl<Svc, S, ReqBody, ResBody> State<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    fn delayed(service: Svc, request: Request<ReqBody>, delay: Duration, extras: Extras) -> Self {
        State::Delayed { sleep: Box::pin(sleep(delay)), call: Box::new((service, request)), extras }
    }
}

impl<Svc, S, ReqBody, ResBody> Future for ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>>,
    S: Store,
    S::Error: NeverFails,
{
    type Output = Result<Response<ResponseBody<ResBody>>, Svc::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().0;
        loop {
            match state.as_mut().project() {
                StateProj::Asking { verdict, .. } => {
                    let verdict = ready!(verdict.as_mut().poll(cx)).unwrap_or_else(NeverFails::never);
                    let StateOwned::Asking { held, .. } = state.as_mut().project_replace(State::Done) else {
                        unreachable!("the state was just seen to be Asking");
                    };
                    let Held { mut service, request, asks, shared } = *held;
                    let (parts, body) = request.into_parts();
                    let next = match shared.decide(&parts, &asks, verdict) {
                        Decision::Pass(extras) => {
                            let request = extras.mark(Request::from_parts(parts, body));
                            State::Passed { future: service.call(request), extras }
                        }
                        Decision::Delay(delay, extras) => {
                            let request = extras.mark(Request::from_parts(parts, body));
                            State::delayed(service, request, delay, extras)
                        }
                        Decision::Refuse(response) => State::Refused { response: Box::new(response) },
                    };
                    state.as_mut().project_replace(next);
                }
                StateProj::Delayed { sleep, .. } => {
                    ready!(sleep.as_mut().poll(cx));
                    let StateOwned::Delayed { call, extras, .. } =
                        state.as_mut().project_replace(State::Done)
                    else {
                        unreachable!("the state was just seen to be Delayed");
                    };
                    let (mut service, request) = *call;
                    state.as_mut().project_replace(State::Passed { future: service.call(request), extras });
                }
                StateProj::Passed { future, extras } => {
                    let response = ready!(future.poll(cx));
                    let extras = mem::take(extras);
                    state.as_mut().project_replace(State::Done);
                    return Poll::Ready(response.map(|response| extras.add_to(response)));
                }
                StateProj::Refused { .. } => {
                    let StateOwned::Refused { response } = state.as_mut().project_replace(State::Done) else {
                        unreachable!("the state was just seen to be Refused");
                    };
                    return Poll::Ready(Ok(*response));
                }
                StateProj::Done => panic!("the future of a response was polled after it was ready"),
            }
        }
    }
}

impl<Svc, S, ReqBody, ResBody> fmt::Debug for ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            State::Asking { .. } => "ResponseFuture(asking)",
            State::Delayed { .. } => "ResponseFuture(delayed)",
            State::Passed { .. } => "ResponseFuture(passed)",
            State::Refused { .. } => "ResponseFuture(refused)",
            State::Done => "ResponseFuture(done)",
        })
    }
}
