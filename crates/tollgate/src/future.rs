//! The future of a rate-limited response.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use pin_project::pin_project;
use tokio::time::{Sleep, sleep};
use tollgate_core::{Store, Verdict};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::limiter::NeverFails;
use crate::place::Place;
use crate::rules::{Asked, Asks};
use crate::shared::{Extras, Shared};

/// The response of a [`RateLimit`](crate::RateLimit) service.
///
/// Dropping it is harmless: nothing is half done. A request that waits for its slot in a leaky
/// bucket gives back what it was charged, the slot only where no request has queued behind it.
/// Otherwise what was charged stays charged.
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
    Asking(Pin<Box<Asking<Svc, S, ReqBody>>>),
    /// Waits for the slot that a leaky bucket reserved.
    // ## Delayed => Passed
    Delayed { sleep: Pin<Box<Sleep>>, call: Box<(Svc, Request<ReqBody>, Option<Place<S>>)>, extras: Extras },
    /// The inner service has the request.
    // ## Passed => done
    Passed {
        #[pin]
        future: Svc::Future,
        extras: Extras,
    },
    /// The request was refused.
    // ## Refused => done
    Refused { response: Option<Response<ResponseBody<ResBody>>> },
    /// Between two states.
    Moving,
}

/// A verdict on its way, and what waits for it.
#[pin_project]
struct Asking<Svc, S: Store, ReqBody> {
    #[pin]
    verdict: S::Acquire,
    held: Held<Svc, S, ReqBody>,
}

/// A request on hold, and the service that was polled ready for it.
struct Held<Svc, S, ReqBody> {
    /// Until the verdict is there.
    call: Option<(Svc, Request<ReqBody>)>,
    asked: Asked,
    asks: Option<Box<Asks>>,
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
        asked: Asked,
        asks: Option<Box<Asks>>,
        shared: Arc<Shared<S>>,
    ) -> Self {
        let held = Held { call: Some((service, request)), asked, asks, shared };
        ResponseFuture(State::Asking(Box::pin(Asking { verdict, held })))
    }

    pub(crate) fn delayed(
        service: Svc,
        request: Request<ReqBody>,
        delay: Duration,
        place: Option<Place<S>>,
        extras: Extras,
    ) -> Self {
        ResponseFuture(State::delayed(service, request, delay, place, extras))
    }

    #[inline]
    pub(crate) fn passed(future: Svc::Future, extras: Extras) -> Self {
        ResponseFuture(State::Passed { future, extras })
    }

    pub(crate) fn refused(response: Response<ResponseBody<ResBody>>) -> Self {
        ResponseFuture(State::Refused { response: Some(response) })
    }
}

impl<Svc, S, ReqBody, ResBody> State<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>>,
    S: Store,
{
    fn delayed(
        service: Svc,
        request: Request<ReqBody>,
        delay: Duration,
        place: Option<Place<S>>,
        extras: Extras,
    ) -> Self {
        State::Delayed { sleep: Box::pin(sleep(delay)), call: Box::new((service, request, place)), extras }
    }
}

impl<Svc, S, ReqBody, ResBody> Future for ResponseFuture<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>>,
    S: Store,
    S::Error: NeverFails,
    ReqBody: Body + Send + 'static,
{
    type Output = Result<Response<ResponseBody<ResBody>>, Svc::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().0;
        loop {
            // By itself, since most requests are here at once: a comparison, and no table of all states.
            if let StateProj::Passed { future, extras } = state.as_mut().project() {
                if extras.is_empty() {
                    // Nothing is changed, and the response moved once less.
                    return future.poll(cx).map_ok(|response| response.map(ResponseBody::inner));
                }
                // Changed in place, and moved once.
                let mut done = future.poll(cx);
                if let Poll::Ready(Ok(response)) = &mut done {
                    extras.add_to(response);
                }
                return done.map_ok(|response| response.map(ResponseBody::inner));
            }
            if let StateProj::Refused { response } = state.as_mut().project() {
                let response = response.take();
                return Poll::Ready(Ok(
                    response.expect("a response's future is not polled after it was ready")
                ));
            }
            // Out of line: most requests never come here, and those that do are waiting.
            ready!(state.as_mut().poll_waiting(cx));
        }
    }
}

impl<Svc, S, ReqBody, ResBody> State<Svc, S, ReqBody, ResBody>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>>,
    S: Store,
    S::Error: NeverFails,
    ReqBody: Body + Send + 'static,
{
    /// Brings a request that waits to its next state.
    #[inline(never)]
    fn poll_waiting(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.as_mut().project() {
            StateProj::Asking(asking) => {
                let asking = asking.as_mut().project();
                let verdict = ready!(asking.verdict.poll(cx)).unwrap_or_else(NeverFails::never);
                let next = asking.held.after(&verdict);
                self.project_replace(next);
            }
            StateProj::Delayed { sleep, .. } => {
                ready!(sleep.as_mut().poll(cx));
                if let StateOwned::Delayed { call, extras, .. } = self.as_mut().project_replace(State::Moving)
                {
                    let (mut service, request, mut place) = *call;
                    place.iter_mut().for_each(Place::keep);
                    self.project_replace(State::Passed { future: service.call(request), extras });
                }
            }
            StateProj::Passed { .. } | StateProj::Refused { .. } => {}
            StateProj::Moving => unreachable!("a state is left behind only if the inner service panics"),
        }
        Poll::Ready(())
    }
}

impl<Svc, S: Store<Error: NeverFails>, ReqBody: Body + Send + 'static> Held<Svc, S, ReqBody> {
    /// What follows the store's answer. The rest of what is held stays where it is: it is large to move.
    fn after<ResBody>(&mut self, verdict: &Verdict) -> State<Svc, S, ReqBody, ResBody>
    where
        Svc: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        let Some((mut service, mut request)) = self.call.take() else {
            unreachable!("a request is taken twice only if the inner service panicked")
        };
        if !verdict.is_granted() {
            let asked = mem::take(&mut self.asked);
            return State::Refused { response: Some(self.shared.deny(request, asked, verdict)) };
        }
        let mut extras = Extras::NONE;
        if self.shared.adds_something() {
            self.shared.add_extras(&mut extras, &mut request, mem::take(&mut self.asked), verdict);
        }
        if verdict.delay().is_zero() {
            State::Passed { future: service.call(request), extras }
        } else {
            let place = self.shared.place(self.asks.take(), verdict);
            State::delayed(service, request, verdict.delay(), place, extras)
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
            State::Asking(_) => "ResponseFuture(asking)",
            State::Delayed { .. } => "ResponseFuture(delayed)",
            State::Passed { .. } => "ResponseFuture(passed)",
            State::Refused { .. } => "ResponseFuture(refused)",
            State::Moving => "ResponseFuture(moving)",
        })
    }
}
