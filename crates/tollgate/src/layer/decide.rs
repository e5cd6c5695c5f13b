//! The way from a request to a decision.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body;
use tollgate_core::{Reply, Store, Verdict};

use super::deadline::deadline;
use super::jitter::lengthened;
use crate::answer::Protocol;
use crate::answer::body::ResponseBody;
use crate::answer::ends::Ends;
use crate::answer::fields::{Written, number};
use crate::decision::{Denial, Report};
use crate::extract::Head;
use crate::limiter::Permit;
use crate::limiter::asking::{Admission, Asking};
use crate::limiter::decider::Decider;
use crate::limiter::live::Live;
use crate::limiter::waiting::{WaitedRequest, Waiting};
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;

/// What happens next to a request.
pub(crate) enum Next<S: Store> {
    /// The inner service gets it.
    Pass(Extras),
    /// The inner service gets it once its place in the queue of a leaky bucket comes.
    Delay(Pin<Box<dyn Future<Output = Permit> + Send>>, Extras),
    /// It is refused. `None` if no store was asked.
    Refuse(Denial, Option<Written>),
    /// It waits for this.
    Wait(Asking<S, WaitedRequest<S>>, Asks),
}

/// What is added to the response of the inner service.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    fields: Option<Written>,
    report: Option<Report>,
    ends: Option<Box<Ends>>,
}

impl Extras {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_none() && self.report.is_none() && self.ends.is_none()
    }

    /// Adds to the response what is to be added, and settles what it decides.
    pub(crate) fn add_to<B>(&mut self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        if let Some(fields) = &mut self.fields {
            fields.add_to(response.headers_mut());
        }
        if let Some(report) = self.report.take() {
            response.extensions_mut().insert(report);
        }
        match self.ends.take() {
            Some(mut ends) => {
                ends.respond(&response);
                response.map(|body| ResponseBody::ending(body, ends))
            }
            None => response.map(ResponseBody::inner),
        }
    }

    /// Ends the request of a service that failed.
    pub(crate) fn fail(&mut self) {
        self.ends = None;
    }
}

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks the rules and the store about a request, which may have a place in queues of earlier
    /// rules.
    #[inline]
    pub(crate) fn decide<B>(
        self: &Arc<Self>,
        place: Option<Box<Waiting>>,
        live: &Arc<Live<S>>,
        request: &mut Request<B>,
    ) -> Next<S> {
        let head = Head::from(&*request);
        let asks = if self.plan().is_off() {
            Asks::new()
        } else if let Some(ask) = self.plan().lone(&head) {
            Asks::from_buf([ask])
        } else {
            match self.shown(self.asks_of(&head)) {
                Ok(asks) => asks,
                Err(denial) => return Next::Refuse(denial, None),
            }
        };
        let deadline = match self.plan().needs().waits {
            true => deadline(head.headers(), self.answers.deadline.as_ref()),
            false => None,
        };
        match self.admit(&asks, None, deadline, place, live) {
            Reply::Now(mut admission) => self.after(request, &asks, &mut admission),
            Reply::Later(asking) => Next::Wait(asking, asks),
        }
    }

    /// Decides what happens to a request after the store has answered.
    #[inline]
    pub(crate) fn after<B>(
        &self,
        request: &mut Request<B>,
        asks: &[Ask],
        admission: &mut Admission,
    ) -> Next<S> {
        self.show(asks, admission);
        let Admission { verdict, slot, .. } = admission;
        if !verdict.is_granted() {
            let lengthened = self.answers.retry_jitter.map(|most| lengthened(verdict, most));
            let verdict = lengthened.as_ref().unwrap_or(verdict);
            let denial = Denial::of(self.report(asks, verdict));
            self.count(&denial, asks);
            return Next::Refuse(denial, self.answers.fields.write(self.plan(), asks, verdict));
        }
        #[cfg(feature = "tracing")]
        super::charged_twice::note(self.plan(), asks, request.extensions_mut());
        let mut extras =
            if self.adds_something() { self.extras(request, asks, verdict) } else { Extras::default() };
        if !self.plan().needs().follow_ups {
            return Next::Pass(extras);
        }
        extras.ends = Ends::open(&self.in_force, request, asks, verdict, slot);
        let is_delayed = !verdict.delay().is_zero();
        let delayed = is_delayed.then(|| Box::pin(self.permit_once_due(asks, verdict)));
        // After charges and the place are opened, which end even if a closure in shadow panics.
        self.after_grant(&Head::from(&*request));
        match delayed {
            None => Next::Pass(extras),
            Some(delayed) => Next::Delay(delayed, extras),
        }
    }

    fn extras<B>(&self, request: &mut Request<B>, asks: &[Ask], verdict: &Verdict) -> Extras {
        let report = self.answers.expose_report.then(|| self.report(asks, verdict));
        if let Some(report) = &report {
            request.extensions_mut().insert(report.clone());
        }
        let fields = self.answers.fields.write(self.plan(), asks, verdict);
        Extras { fields, report, ends: None }
    }
}

impl<S> Decider<S> {
    /// Whether responses to requests that pass are changed.
    #[inline]
    fn adds_something(&self) -> bool {
        self.answers.expose_report || !self.answers.fields.is_off(self.plan())
    }

    /// Returns the response to a refused request, and drains the rest of its body.
    pub(crate) fn refuse<R: Body + Send + 'static, B>(
        &self,
        mut request: Request<R>,
        denial: Denial,
        fields: Option<Written>,
    ) -> Response<ResponseBody<B>> {
        let drain = self.answers.drain.rest(&request);
        let is_head = request.method() == Method::HEAD;
        let mut response = match &self.answers.answer {
            None => {
                let protocol = Protocol::of(&Head::from(&request));
                let mut response = denial.response_by(protocol, ResponseBody::answer);
                // Reuses the allocation of the request's extensions for the denial.
                *response.extensions_mut() = mem::take(request.extensions_mut());
                response.extensions_mut().clear();
                response
            }
            Some(answer) => {
                let head = Head::from(&request);
                let mut response = answer(&head, &denial);
                denial.add_wait(&head, response.headers_mut());
                response.map(ResponseBody::own)
            }
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
