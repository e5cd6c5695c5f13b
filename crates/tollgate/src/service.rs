//! The Tower service: asks, and passes on or refuses.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tollgate_core::{Reply, Store, Verdict};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::extract::Head;
use crate::future::ResponseFuture;
use crate::limiter::NeverFails;
use crate::memory::MemoryStore;
use crate::rules::{Asked, Asks, asked_alone};
use crate::shared::{Extras, Shared};

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
    ReqBody: Body + Send + 'static,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, S, ReqBody, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        // One end for all that pass at once, so that their future is built in place; and a request stays in one piece where it
        // can. What the response is given is nothing from the start, and not only at the end: processors are slow at moving what
        // was written a moment ago.
        let mut extras = Extras::NONE;
        'pass: {
            if !self.shared.enabled {
                if self.shared.expose_verdict {
                    return self.unlimited(request);
                }
                break 'pass;
            }
            let limiter = &self.shared.limiter;
            let rules = limiter.rules();
            let mut asked = asked_alone();
            let mut asks = None;
            let reply = 'ask: {
                // Lent from where the extractor leaves it. A request in which it finds none is asked again below.
                let key = rules.lone().and_then(|rule| rule.find(&Head::of(&request)));
                if let Some(key) = &key
                    && !key.is_empty()
                {
                    break 'ask limiter.acquire_lone(key);
                }
                let deadline = self.shared.deadline(request.headers());
                let taken_up = if rules.need_parts() {
                    let (parts, body) = request.into_parts();
                    let taken_up = limiter.take_up(&Head::from(&parts), deadline);
                    request = Request::from_parts(parts, body);
                    taken_up
                } else {
                    limiter.take_up(&Head::of(&request), deadline)
                };
                match taken_up {
                    Ok(Some(taken_up)) => {
                        asked = taken_up.asked;
                        asks = taken_up.asks;
                        taken_up.reply
                    }
                    Ok(None) if self.shared.expose_verdict => return self.unlimited(request),
                    Ok(None) => break 'pass,
                    Err(denial) => {
                        return ResponseFuture::refused(self.shared.refuse(request, denial, None));
                    }
                }
            };
            match &reply {
                Reply::Now(Ok(verdict)) if !verdict.is_granted() => {
                    return ResponseFuture::refused(self.shared.deny(request, asked, verdict));
                }
                Reply::Now(Ok(verdict)) if verdict.delay().is_zero() => {
                    if self.shared.adds_something() {
                        self.shared.add_extras(&mut extras, &mut request, asked, verdict);
                    }
                }
                _ => return self.hold(reply, request, asked, asks),
            }
        }
        ResponseFuture::passed(self.inner.call(request), extras)
    }
}

impl<Svc, S> RateLimit<Svc, S>
where
    Svc: Clone,
    S: Store,
    S::Error: NeverFails,
{
    /// The response to a request that no rule applies to, where reports are exposed: with nothing in it, since handlers that
    /// ask for one must not fail where a layer is switched off.
    #[inline(never)]
    fn unlimited<ReqBody, ResBody>(
        &mut self,
        mut request: Request<ReqBody>,
    ) -> ResponseFuture<Svc, S, ReqBody, ResBody>
    where
        Svc: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        let mut extras = Extras::NONE;
        self.shared.add_extras(&mut extras, &mut request, Asked::new(), &Verdict::new(1, Duration::ZERO, []));
        ResponseFuture::passed(self.inner.call(request), extras)
    }

    /// The response to a request that has to wait: for the store, or for its slot. Out of line, to keep the way of the
    /// others short.
    #[inline(never)]
    fn hold<ReqBody, ResBody>(
        &mut self,
        reply: Reply<Result<Verdict, S::Error>, S::Acquire>,
        mut request: Request<ReqBody>,
        asked: Asked,
        asks: Option<Box<Asks>>,
    ) -> ResponseFuture<Svc, S, ReqBody, ResBody>
    where
        Svc: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        match reply {
            Reply::Now(Err(error)) => error.never(),
            Reply::Now(Ok(verdict)) => {
                let mut extras = Extras::NONE;
                self.shared.add_extras(&mut extras, &mut request, asked, &verdict);
                let place = self.shared.place(asks, &verdict);
                ResponseFuture::delayed(self.take_ready(), request, verdict.delay(), place, extras)
            }
            Reply::Later(verdict) => {
                let shared = Arc::clone(&self.shared);
                ResponseFuture::asking(verdict, self.take_ready(), request, asked, asks, shared)
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
