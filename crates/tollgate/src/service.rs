//! The Tower service: asks, and passes on or refuses.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use tollgate_core::{Reply, Store, Times, Verdict};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::denial::Denial;
use crate::fields::{Written, add_retry_after};
use crate::future::ResponseFuture;
use crate::layer::Shared;
use crate::limiter::{NeverFails, Report};
use crate::memory::MemoryStore;
use crate::rule::Asks;

/// A service limited by a [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. A request that is refused does not reach the inner service, whose readiness
/// stays for the next.
pub struct RateLimit<Svc, S = MemoryStore> {
    inner: Svc,
    shared: Arc<Shared<S>>,
}

impl<Svc, S> RateLimit<Svc, S> {
    pub(crate) fn new(inner: Svc, shared: Arc<Shared<S>>) -> RateLimit<Svc, S> {
        RateLimit { inner, shared }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut Svc {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> Svc {
        self.inner
    }
}

impl<Svc, S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<Svc, S>
where
    Svc: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: Store,
    S::Error: NeverFails,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, S, ReqBody, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        if !self.shared.enabled {
            return ResponseFuture::passed(self.inner.call(request), Extras::default());
        }
        let (parts, body) = request.into_parts();
        let asks = match self.shared.limiter.asks(&parts) {
            Ok(asks) => asks,
            Err(denial) => return ResponseFuture::refused(self.shared.refuse(&parts, denial, None)),
        };
        if asks.is_empty() {
            return ResponseFuture::passed(
                self.inner.call(Request::from_parts(parts, body)),
                Extras::default(),
            );
        }
        match self.shared.limiter.acquire(&asks, Times::ONCE) {
            Reply::Now(verdict) => {
                let verdict = verdict.unwrap_or_else(NeverFails::never);
                match self.shared.decide(&parts, &asks, verdict) {
                    Decision::Pass(extras) => {
                        let request = extras.mark(Request::from_parts(parts, body));
                        ResponseFuture::passed(self.inner.call(request), extras)
                    }
                    Decision::Delay(delay, extras) => {
                        let request = extras.mark(Request::from_parts(parts, body));
                        ResponseFuture::delayed(self.take_ready(), request, delay, extras)
                    }
                    Decision::Refuse(response) => ResponseFuture::refused(response),
                }
            }
            Reply::Later(verdict) => {
                let shared = Arc::clone(&self.shared);
                let request = Request::from_parts(parts, body);
                ResponseFuture::asking(verdict, self.take_ready(), request, asks, shared)
            }
        }
    }
}

impl<Svc: Clone, S> RateLimit<Svc, S> {
    /// The service that was polled ready, leaving a clone in its place: a clone that was not polled ready must not be
    /// called.
    fn take_ready(&mut self) -> Svc {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}

impl<Svc: Clone, S> Clone for RateLimit<Svc, S> {
    fn clone(&self) -> RateLimit<Svc, S> {
        RateLimit { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<Svc: fmt::Debug, S> fmt::Debug for RateLimit<Svc, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What is to happen to a request.
pub(crate) enum Decision<ResBody> {
    Pass(Extras),
    Delay(std::time::Duration, Extras),
    Refuse(Response<ResponseBody<ResBody>>),
}

/// What a response that passes is given on its way out.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    fields: Option<Written>,
    report: Option<Report>,
}

impl Extras {
    /// Lets the handler see the report.
    pub(crate) fn mark<B>(&self, mut request: Request<B>) -> Request<B> {
        if let Some(report) = &self.report {
            request.extensions_mut().insert(report.clone());
        }
        request
    }

    pub(crate) fn add_to<B>(self, response: Response<B>) -> Response<ResponseBody<B>> {
        let mut response = response.map(ResponseBody::inner);
        if let Some(fields) = self.fields {
            fields.add_to(response.headers_mut());
        }
        if let Some(report) = self.report {
            response.extensions_mut().insert(report);
        }
        response
    }
}

impl<S> Shared<S> {
    /// Turns a verdict into what is to happen.
    pub(crate) fn decide<B>(&self, parts: &Parts, asks: &Asks, verdict: Verdict) -> Decision<B> {
        let rules = self.limiter.rules();
        let fields = self.fields.write(rules, asks, &verdict);
        if !verdict.is_granted() {
            let denial = Denial::of(Report::new(rules, asks, verdict));
            return Decision::Refuse(self.refuse(parts, denial, fields));
        }
        let delay = verdict.delay();
        let report = self.expose_verdict.then(|| Report::new(rules, asks, verdict));
        let extras = Extras { fields, report };
        if delay.is_zero() { Decision::Pass(extras) } else { Decision::Delay(delay, extras) }
    }

    fn refuse<B>(&self, parts: &Parts, denial: Denial, fields: Option<Written>) -> Response<ResponseBody<B>> {
        let response = match &self.answer {
            Some(answer) => answer(parts, &denial),
            None => denial.response(),
        };
        let mut response = response.map(ResponseBody::answer);
        if let Some(fields) = fields {
            fields.add_to(response.headers_mut());
        }
        add_retry_after(response.headers_mut(), denial.retry_after_seconds());
        response.extensions_mut().insert(denial);
        response
    }
}
