//! What the services of a layer share: its options, and the way from a request to a decision.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use tollgate_core::{Reply, Store, Times, Timestamp, Verdict};

use super::deadline::deadline;
use super::jitter::lengthened;
use super::shared::LayerShared;
use crate::answer::Protocol;
use crate::answer::body::{Ending, ResponseBody};
use crate::answer::fields::{Written, number};
use crate::charge::{ByResponse, Charges, Corrected, GrantStamp};
use crate::decision::{Denial, Report};
use crate::extract::Head;
use crate::in_flight::{HeldUntilDropped, Slot};
use crate::limiter::Permit;
use crate::limiter::asking::{Asking, Claimed};
use crate::limiter::decider::Decider;
use crate::limiter::queue_place::QueuePlace;
use crate::limiter::waiting::{Waited, Waiting};
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;

/// What happens next to a request.
pub(crate) enum Next<S: Store> {
    /// The inner service gets it.
    Pass(Extras),
    /// The inner service gets it after this time.
    Delay(Duration, QueuePlace, Extras),
    /// It is refused. `None` if no store was asked.
    Refuse(Denial, Option<Written>),
    /// The store has not answered yet. If there are observers, with the time when it was asked.
    Ask(Asking<S>, Asks, Option<Timestamp>),
    /// It waits for slots, in a queue.
    Queue(QueueFuture, Asks),
}

/// The wait of a request in a queue for slots.
pub(crate) type QueueFuture = Pin<Box<dyn Future<Output = Waited<Claimed>> + Send>>;

/// What is added to the response of the inner service.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    fields: Option<Written>,
    report: Option<Report>,
    /// Boxed, since few layers have it, and every response is moved several times.
    ends: Option<Box<Ends>>,
}

/// What the end of a request does.
#[derive(Debug, Default)]
struct Ends {
    by_response: ByResponse,
    slot: HeldUntilDropped,
    /// Whether a response without an error opens a tunnel.
    is_connect: bool,
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
            Some(ends) => ends.follow(response),
            None => response.map(ResponseBody::inner),
        }
    }

    /// Ends the request of a service that failed.
    pub(crate) fn fail(&mut self) {
        self.ends = None;
    }
}

impl Ends {
    fn holds_slots(&self) -> bool {
        !self.slot.is_empty()
    }

    /// Settles what the response decides. The slots are held until its body ends; or by handlers,
    /// if the connection goes on in another protocol.
    fn follow<B>(self, response: Response<B>) -> Response<ResponseBody<B>> {
        let Ends { by_response, mut slot, is_connect } = self;
        let (corrections, by_trailers) = by_response.settle(&response);
        slot.correct_first(corrections);
        let opens_tunnel = is_connect && response.status().is_success();
        if opens_tunnel || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            slot.leave();
            return response.map(|body| ResponseBody::ending(body, Ending::new(by_trailers)));
        }
        let length =
            response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let ending = Ending::new(by_trailers).holding(slot, length);
        response.map(|body| ResponseBody::ending(body, ending))
    }
}

impl<S: Store<Error: NeverFails>> LayerShared<S> {
    /// Asks the rules and the store about a request.
    #[inline]
    pub(crate) fn decide<B>(&self, decider: &Arc<Decider<S>>, request: &mut Request<B>) -> Next<S> {
        self.decide_from(None, decider, request)
    }

    /// The same for a request that has waited by earlier rules.
    #[inline]
    pub(crate) fn decide_from<B>(
        &self,
        waiting: Option<Waiting>,
        decider: &Arc<Decider<S>>,
        request: &mut Request<B>,
    ) -> Next<S> {
        let (lone, several);
        let head = Head::from(&*request);
        let asks = if decider.plan().is_off() {
            &[]
        } else if let Some(ask) = decider.plan().lone(&head) {
            lone = ask;
            slice::from_ref(&lone)
        } else {
            several = match decider.shown(decider.asks_of(&head)) {
                Ok(asks) => asks,
                Err(denial) => return Next::Refuse(denial, None),
            };
            &several
        };
        let may_delay = decider.plan().needs().delays || decider.plan().needs().slots;
        let deadline =
            if may_delay { deadline(head.headers(), self.options.deadline.as_ref()) } else { None };
        if decider.claims(asks) {
            return self.claim(waiting, decider, request, asks, deadline);
        }
        match decider.acquire(asks, Times::ONCE, deadline) {
            Reply::Now(Ok(ref verdict)) => self.after(decider, request, asks, verdict, None, Slot::default()),
            Reply::Now(Err(error)) => error.never(),
            Reply::Later(verdict) => Next::Ask(Asking::Store(verdict), asks.into(), decider.waits_since()),
        }
    }

    /// Asks about a request that needs slots, for which its rules may wait.
    fn claim<B>(
        &self,
        waiting: Option<Waiting>,
        decider: &Arc<Decider<S>>,
        request: &mut Request<B>,
        asks: &[Ask],
        deadline: Option<Duration>,
    ) -> Next<S> {
        if let Some(waits) = decider.plan().waits(asks, deadline) {
            let (decider, live, asked) = (Arc::clone(decider), Arc::clone(&self.live), Asks::from(asks));
            let waiting = waiting.unwrap_or_default();
            let claim: QueueFuture =
                Box::pin(async move { decider.claim_in_turn(asked, waits, deadline, waiting, &live).await });
            return Next::Queue(claim, asks.into());
        }
        match decider.ask(asks, deadline) {
            Reply::Now((verdict, slot)) => self.after(decider, request, asks, &verdict, None, slot),
            Reply::Later(claim) => Next::Ask(claim, asks.into(), decider.waits_since()),
        }
    }

    /// Decides what happens to a request after the store has answered.
    #[inline]
    pub(crate) fn after<B>(
        &self,
        decider: &Decider<S>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
        since: Option<Timestamp>,
        slot: Slot,
    ) -> Next<S> {
        decider.show(asks, verdict, &slot, since);
        if !verdict.is_granted() {
            let lengthened = self.options.retry_jitter.map(|most| lengthened(verdict, most));
            let verdict = lengthened.as_ref().unwrap_or(verdict);
            let denial = Denial::of(decider.report(asks, verdict));
            decider.count(&denial, asks);
            return Next::Refuse(denial, self.fields.write(decider.plan(), asks, verdict));
        }
        let mut extras = if self.adds_something(decider) {
            self.extras(decider, request, asks, verdict)
        } else {
            Extras::default()
        };
        if !decider.plan().correcting().is_empty() || !slot.is_empty() {
            extras.ends = self.open_ends(decider, request, asks, verdict, slot);
        }
        // After the charges are opened, which are settled even if a closure in shadow panics.
        decider.after_grant(&Head::from(&*request));
        if verdict.delay().is_zero() {
            return Next::Pass(extras);
        }
        let permit = Permit::new(
            decider.report(asks, verdict),
            asks.into(),
            Slot::default(),
            Arc::clone(&decider.in_force),
        );
        Next::Delay(verdict.delay(), QueuePlace::new(permit), extras)
    }

    fn extras<B>(
        &self,
        decider: &Decider<S>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
    ) -> Extras {
        let report = self.options.expose_report.then(|| decider.report(asks, verdict));
        if let Some(report) = &report {
            request.extensions_mut().insert(report.clone());
        }
        let fields = self.fields.write(decider.plan(), asks, verdict);
        Extras { fields, report, ends: None }
    }

    /// Opens the charges of a request that are corrected later, and its slots. Returns what the end
    /// of the request does.
    fn open_ends<B>(
        &self,
        decider: &Decider<S>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
        slot: Slot,
    ) -> Option<Box<Ends>> {
        let mut ends = Ends::default();
        if !decider.plan().correcting().is_empty() {
            let granted = |at: usize| {
                Some(GrantStamp { stamp: verdict.each().get(at)?.stamp(), share: verdict.share() })
            };
            let charges = Corrected::open(&decider.in_force, asks, granted);
            if !charges.reserved.is_empty() {
                request.extensions_mut().get_or_insert_default::<Charges>().extend(charges.reserved);
            }
            ends.by_response = charges.by_response;
        }
        if !slot.is_empty() {
            slot.end_in_time();
            request.extensions_mut().get_or_insert_default::<Slot>().extend(slot.clone());
            ends.slot = HeldUntilDropped::new(slot);
            ends.is_connect = request.method() == Method::CONNECT;
        }
        (!ends.by_response.is_empty() || ends.holds_slots()).then(|| Box::new(ends))
    }
}

impl<S> LayerShared<S> {
    /// Whether responses to requests that pass are changed.
    #[inline]
    fn adds_something(&self, decider: &Decider<S>) -> bool {
        self.options.expose_report || !self.fields.is_off(decider.plan())
    }

    /// Returns the response to a refused request, and drains the rest of its body.
    pub(crate) fn refuse<R: Body + Send + 'static, B>(
        &self,
        mut request: Request<R>,
        denial: Denial,
        fields: Option<Written>,
    ) -> Response<ResponseBody<B>> {
        let drain = self.options.drain.rest(&request);
        let is_head = request.method() == Method::HEAD;
        let mut response = match &self.options.answer {
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
