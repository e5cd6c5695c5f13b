//! Charges that the response decides.

use std::fmt;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Response, StatusCode};

use super::web_trailers::WebTrailers;
use super::{Charge, CorrectionTask};
use crate::grpc_type::GrpcType;

/// What a rule makes of a response: the total to settle to, or `None` if the charge stays.
pub(crate) type OfResponse = dyn Fn(&ResponseHead<'_>) -> Option<u64> + Send + Sync;

/// The head of a response, and its trailers if they decide: what
/// [`Rule::count_if`](crate::Rule::count_if) and [`Rule::cost_by`](crate::Rule::cost_by) see.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    trailers: Option<&'a HeaderMap>,
}

impl<'a> ResponseHead<'a> {
    /// Returns the status. gRPC says 200 for errors too: see
    /// [`grpc_status`](ResponseHead::grpc_status).
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, in which a handler may leave something for its layers.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the trailers of a gRPC call. `None` for other responses, whose trailers are not
    /// waited for, and for a call that ended without a message.
    pub fn trailers(&self) -> Option<&'a HeaderMap> {
        self.trailers
    }

    /// Returns the code of a gRPC call, from its trailers or its headers; 0 is OK. `None` if the
    /// response is not gRPC.
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// // 16 is UNAUTHENTICATED.
    /// let failures = Policy::new("failures", Quota::per_hour(5))
    ///     .by(header("x-user"))
    ///     .count_if(|response| response.grpc_status() == Some(16));
    /// ```
    pub fn grpc_status(&self) -> Option<u32> {
        let status = |of: &HeaderMap| of.get(GRPC_STATUS)?.to_str().ok()?.parse().ok();
        self.trailers.and_then(status).or_else(|| status(self.headers))
    }

    /// How the trailers are sent that will tell more. `None` if the response is not gRPC, or has
    /// ended.
    fn waits_for_trailers(&self) -> Option<GrpcType> {
        let kind = GrpcType::of(self.headers.get(CONTENT_TYPE)?.as_bytes());
        kind.filter(|_| self.trailers.is_none() && !self.headers.contains_key(GRPC_STATUS))
    }
}

const GRPC_STATUS: &str = "grpc-status";

impl<'a, B> From<&'a Response<B>> for ResponseHead<'a> {
    fn from(response: &'a Response<B>) -> ResponseHead<'a> {
        ResponseHead {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
            trailers: None,
        }
    }
}

/// The charges of a request that its response settles. Dropped before that, they stay.
#[derive(Default)]
pub(crate) struct ByResponse(Vec<(Charge, Arc<OfResponse>)>);

impl ByResponse {
    pub(crate) fn add(&mut self, charge: Charge, of_response: &Arc<OfResponse>) {
        self.0.push((charge, Arc::clone(of_response)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Settles by this response. Returns what goes on; of a gRPC call, what its trailers settle.
    pub(crate) fn settle<B>(self, response: &Response<B>) -> (Vec<CorrectionTask>, Option<ByTrailers>) {
        let head = ResponseHead::from(response);
        if let Some(kind) = head.waits_for_trailers() {
            let (headers, extensions) = (response.headers().clone(), response.extensions().clone());
            let in_body = match kind {
                GrpcType::Plain => None,
                GrpcType::Web => Some(Box::new(WebTrailers::new(false))),
                GrpcType::WebText => Some(Box::new(WebTrailers::new(true))),
            };
            let by_trailers = ByTrailers { in_body, status: head.status, headers, extensions, charges: self };
            return (Vec::new(), Some(by_trailers));
        }
        (self.settle_by(&head), None)
    }

    /// Settles by this head. Returns what goes on.
    pub(crate) fn settle_by(self, head: &ResponseHead<'_>) -> Vec<CorrectionTask> {
        self.0.into_iter().filter_map(|(charge, total)| charge.start(total(head)?)).collect()
    }
}

impl fmt::Debug for ByResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(charge, _)| charge)).finish()
    }
}

/// The charges of a gRPC call that its trailers settle, and the head of its response. Dropped
/// before that, they stay.
#[derive(Debug)]
pub(crate) struct ByTrailers {
    /// Of gRPC-Web. Boxed, so that other bodies stay small.
    in_body: Option<Box<WebTrailers>>,
    status: StatusCode,
    headers: HeaderMap,
    extensions: Extensions,
    charges: ByResponse,
}

impl ByTrailers {
    /// Settles by these trailers. Returns what goes on.
    pub(crate) fn settle(self, trailers: &HeaderMap) -> Vec<CorrectionTask> {
        let ByTrailers { status, headers, extensions, charges, .. } = self;
        let (headers, extensions) = (&headers, &extensions);
        charges.settle_by(&ResponseHead { status, headers, extensions, trailers: Some(trailers) })
    }

    /// Whether the trailers are in the body.
    pub(crate) fn is_in_body(&self) -> bool {
        self.in_body.is_some()
    }

    /// Reads the next bytes of the body. Returns its trailers once they are complete.
    pub(crate) fn read(&mut self, data: &[u8]) -> Option<HeaderMap> {
        self.in_body.as_mut()?.read(data)
    }
}
