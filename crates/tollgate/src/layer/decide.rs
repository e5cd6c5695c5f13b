//! What the services of a layer share: its options, and the way from a request to a decision.

use std::mem;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderName, Method, Request, Response};
use http_body::Body;
use tollgate_core::{Reply, Store, Times, Timestamp, Verdict};

use crate::answer::Protocol;
use crate::answer::body::{OwnBody, ResponseBody};
use crate::denial::Denial;
use crate::extract::Head;
use crate::fields::{FieldWriter, Written, number};
use crate::layer::deadline::deadline;
use crate::layer::drain::Bound;
use crate::limiter::permit::Permit;
use crate::limiter::queue_slot::Place;
use crate::limiter::{Limiter, NeverFails};
use crate::report::Report;
use crate::rule::set::{Ask, Asks};

/// Makes the answer to a refused request.
pub(crate) type Answer = dyn Fn(&Parts, &Denial) -> Response<OwnBody> + Send + Sync;

/// The limiter and the options of a layer.
#[derive(Clone)]
pub(crate) struct Shared<S> {
    pub(crate) limiter: Limiter<S>,
    pub(crate) fields: FieldWriter,
    pub(crate) answer: Option<Arc<Answer>>,
    pub(crate) drain: Bound,
    /// The header that holds a request's deadline in milliseconds.
    pub(crate) deadline: Option<HeaderName>,
    pub(crate) expose_verdict: bool,
    pub(crate) enabled: bool,
}

/// What happens next to a request.
pub(crate) enum Next<S: Store> {
    /// The inner service gets it.
    Pass(Extras),
    /// The inner service gets it after this time.
    Delay(Duration, Place<S>, Extras),
    /// It is refused. `None` if no store was asked.
    Refuse(Denial, Option<Written>),
    /// The store has not answered yet. If there are observers, with the time when it was asked.
    Ask(S::Acquire, Asks, Option<Timestamp>),
}

/// What is added to the response of the inner service.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    fields: Option<Written>,
    report: Option<Report>,
}

impl Extras {
    /// Spares most responses a move: see the number at `Sharded::digest`.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_none() && self.report.is_none()
    }

    #[inline(never)]
    pub(crate) fn add_to<B>(&mut self, response: &mut Response<B>) {
        if let Some(fields) = &mut self.fields {
            fields.add_to(response.headers_mut());
        }
        if let Some(report) = self.report.take() {
            response.extensions_mut().insert(report);
        }
    }
}

impl<S: Store<Error: NeverFails>> Shared<S> {
    /// Asks the rules and the store about a request.
    // Without `#[inline]` here and at `after`, a request with fields costs 1.06 × (peers, allowed,
    // hot).
    #[inline]
    pub(crate) fn decide<B>(&self, request: &mut Request<B>) -> Next<S> {
        let (lone, several);
        let rules = self.limiter.rules();
        let asks = if !self.enabled {
            &[]
        } else if let Some(ask) = rules.lone(request) {
            lone = ask;
            slice::from_ref(&lone)
        } else {
            let asks = if rules.need_parts() {
                with_parts(request, |parts| self.limiter.ask(&parts.into()))
            } else {
                self.limiter.ask(&Head::of(request))
            };
            several = match asks {
                Ok(asks) => asks,
                Err(denial) => {
                    self.limiter.show_no_key(&denial);
                    return Next::Refuse(denial, None);
                }
            };
            &several
        };
        let deadline =
            if rules.may_delay() { deadline(request.headers(), self.deadline.as_ref()) } else { None };
        match self.limiter.acquire(asks, Times::ONCE, deadline) {
            Reply::Now(Ok(ref verdict)) => self.after(request, asks, verdict, None),
            Reply::Now(Err(error)) => error.never(),
            Reply::Later(verdict) => Next::Ask(verdict, asks.into(), self.limiter.waits_since()),
        }
    }

    /// Decides what happens to a request after the store has answered.
    #[inline]
    pub(crate) fn after<B>(
        &self,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
        since: Option<Timestamp>,
    ) -> Next<S> {
        self.limiter.show(asks, verdict, since);
        if !verdict.is_granted() {
            let report = self.limiter.report(asks, verdict);
            return Next::Refuse(Denial::of(report), self.fields.write(self.limiter.rules(), asks, verdict));
        }
        let extras =
            if self.adds_something() { self.extras(request, asks, verdict) } else { Extras::default() };
        if verdict.delay().is_zero() {
            return Next::Pass(extras);
        }
        let permit = Permit::new(self.limiter.report(asks, verdict), asks.into());
        Next::Delay(verdict.delay(), Place::new(&self.limiter, permit), extras)
    }

    #[inline(never)]
    fn extras<B>(&self, request: &mut Request<B>, asks: &[Ask], verdict: &Verdict) -> Extras {
        let report = self.expose_verdict.then(|| self.limiter.report(asks, verdict));
        if let Some(report) = &report {
            request.extensions_mut().insert(report.clone());
        }
        Extras { fields: self.fields.write(self.limiter.rules(), asks, verdict), report }
    }
}

impl<S> Shared<S> {
    /// Whether responses to requests that pass are changed.
    #[inline]
    fn adds_something(&self) -> bool {
        self.expose_verdict || !self.fields.is_off()
    }

    /// Returns the response to a refused request, and drains the rest of its body.
    pub(crate) fn refuse<R: Body + Send + 'static, B>(
        &self,
        mut request: Request<R>,
        denial: Denial,
        fields: Option<Written>,
    ) -> Response<ResponseBody<B>> {
        let drain = self.drain.plan(&request);
        let is_head = request.method() == Method::HEAD;
        let mut response = match &self.answer {
            None => {
                let protocol = Protocol::of(request.method(), request.uri(), request.headers());
                let mut response = denial.response_by(protocol, ResponseBody::answer);
                // Reuses the allocation of the request's extensions for the denial.
                *response.extensions_mut() = mem::take(request.extensions_mut());
                response.extensions_mut().clear();
                response
            }
            Some(answer) => with_parts(&mut request, |parts| {
                let mut response = answer(parts, &denial);
                denial.add_wait(parts, response.headers_mut());
                response.map(ResponseBody::own)
            }),
        };
        if is_head {
            // Not every server removes the body of such an answer (RFC 9110, section 9.3.2).
            let left_out = mem::replace(response.body_mut(), ResponseBody::answer(Bytes::new()));
            if let Some(length) = left_out.answer_length().filter(|length| *length > 0) {
                response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| number(length));
            }
        }
        if let Some(mut fields) = fields {
            fields.add_to(response.headers_mut());
        }
        response.extensions_mut().insert(denial);
        if let Some(drain) = drain {
            drain.add_close(response.headers_mut());
            drain.start(request.into_body());
        }
        response
    }
}

/// Lends the parts of a request, which `http` returns only by value. The request stays in its
/// place, because it is large.
fn with_parts<R, T>(request: &mut Request<R>, read: impl FnOnce(&Parts) -> T) -> T {
    let (mut parts, ()) = Request::new(()).into_parts();
    swap_parts(request, &mut parts);
    let result = read(&parts);
    swap_parts(request, &mut parts);
    result
}

fn swap_parts<R>(request: &mut Request<R>, parts: &mut Parts) {
    mem::swap(&mut parts.method, request.method_mut());
    mem::swap(&mut parts.uri, request.uri_mut());
    mem::swap(&mut parts.version, request.version_mut());
    mem::swap(&mut parts.headers, request.headers_mut());
    mem::swap(&mut parts.extensions, request.extensions_mut());
}
