//! What the services of a layer have in common, and how they answer.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response};
use http_body::Body;
use tollgate_core::{Store, Verdict};

use crate::answer::Protocol;
use crate::body::ResponseBody;
use crate::deadline::deadline;
use crate::denial::Denial;
use crate::drain::Bound;
use crate::fields::{FieldWriter, Written, number};
use crate::limiter::{Limiter, NeverFails};
use crate::place::Place;
use crate::report::Report;
use crate::rules::{Asked, Asks};

/// Makes the answer to a refused request.
pub(crate) type Answer = dyn Fn(&Parts, &Denial) -> Response<Bytes> + Send + Sync;

/// What the services of a layer have in common.
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

/// What a response that passes is given on its way out.
#[derive(Debug)]
pub(crate) struct Extras {
    fields: Option<Written>,
    report: Option<Report>,
}

impl Extras {
    pub(crate) const NONE: Extras = Extras { fields: None, report: None };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_none() && self.report.is_none()
    }

    /// Adds them to a response that has come.
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

impl<S> Shared<S> {
    /// Whether responses to requests that pass are given anything.
    #[inline]
    pub(crate) fn adds_something(&self) -> bool {
        self.expose_verdict || !self.fields.is_off()
    }

    /// How long the caller of a request waits, if a rule may delay it.
    #[inline]
    pub(crate) fn deadline(&self, headers: &HeaderMap) -> Option<Duration> {
        self.limiter.rules().may_delay().then(|| deadline(headers, self.deadline.as_ref())).flatten()
    }

    /// What the response to a request that passes is given, which these policies were asked of; and what its handler is shown.
    /// Out of line, to keep the way of those that are given nothing short; and written where it will lie.
    #[inline(never)]
    pub(crate) fn add_extras<B>(
        &self,
        extras: &mut Extras,
        request: &mut Request<B>,
        asked: Asked,
        verdict: &Verdict,
    ) {
        let rules = self.limiter.rules();
        extras.fields = self.fields.write(rules, &asked, verdict);
        if self.expose_verdict {
            let report = Report::new(rules, asked, verdict);
            request.extensions_mut().insert(report.clone());
            extras.report = Some(report);
        }
    }

    /// The response to a request that was not granted.
    #[inline(never)]
    pub(crate) fn deny<R: Body + Send + 'static, B>(
        &self,
        request: Request<R>,
        asked: Asked,
        verdict: &Verdict,
    ) -> Response<ResponseBody<B>> {
        let rules = self.limiter.rules();
        let fields = self.fields.write(rules, &asked, verdict);
        self.refuse(request, Denial::of(Report::new(rules, asked, verdict)), fields)
    }

    /// The response to a request that is refused, with these fields. The rest of the request's body
    /// is drained meanwhile.
    pub(crate) fn refuse<R: Body + Send + 'static, B>(
        &self,
        mut request: Request<R>,
        denial: Denial,
        fields: Option<Written>,
    ) -> Response<ResponseBody<B>> {
        let drain = self.drain.plan(&request);
        let is_head = request.method() == Method::HEAD;
        let mut left_out = 0;
        let body = |bytes: Bytes| {
            if is_head {
                // Not every server takes the body of such an answer away (RFC 9110, section 9.3.2).
                left_out = bytes.len();
                return ResponseBody::answer(Bytes::new());
            }
            ResponseBody::answer(bytes)
        };
        let mut response = match &self.answer {
            None => {
                let mut response = denial
                    .response_by(Protocol::of(request.method(), request.uri(), request.headers()), body);
                // The request's, emptied: for the denial alone, a new one would be allocated twice.
                *response.extensions_mut() = mem::take(request.extensions_mut());
                response.extensions_mut().clear();
                response
            }
            Some(answer) => {
                let parts = take_parts(&mut request);
                let mut response = answer(&parts, &denial);
                denial.add_wait(&parts, response.headers_mut());
                response.map(body)
            }
        };
        if left_out > 0 {
            response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| number(left_out));
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

impl<S: Store<Error: NeverFails>> Shared<S> {
    /// The place in a queue of a request that was granted with a delay.
    pub(crate) fn place(&self, asks: Option<Box<Asks>>, verdict: &Verdict) -> Option<Place<S>> {
        let permit = self.limiter.permit(*asks?, verdict).ok()?;
        Some(Place::new(self.limiter.clone(), permit))
    }
}

/// The parts of a request that has to stay where it is: whole, it is large to move.
fn take_parts<R>(request: &mut Request<R>) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    mem::swap(&mut parts.method, request.method_mut());
    mem::swap(&mut parts.uri, request.uri_mut());
    mem::swap(&mut parts.version, request.version_mut());
    mem::swap(&mut parts.headers, request.headers_mut());
    mem::swap(&mut parts.extensions, request.extensions_mut());
    parts
}
