//! Charges that the response decides.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Response, StatusCode};

use super::web_trailers::WebTrailers;
use super::{Charge, CorrectionTask};
use crate::extract::grpc_type::GrpcType;
use crate::rule::response_head::{OfResponse, ResponseHead};

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
            let by_trailers =
                ByTrailers { in_body, status: head.status(), headers, extensions, charges: self };
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
        charges.settle_by(&ResponseHead::of_trailers(status, &headers, &extensions, trailers))
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
