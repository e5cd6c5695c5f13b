//! What the end of a request does to its charges.

use std::mem;
use std::sync::Arc;

use bytes::Buf;
use http::{Request, Response};
use http_body::Frame;
use tollgate_core::Verdict;

use super::{ByResponse, ByTrailers, Charges, Corrected, CorrectionTask};
use crate::decision::{GrantStamp, InForce};
use crate::plan::Ask;

/// The charges of a request that its response settles, or the trailers of its body. Dropped before
/// that, they stay.
#[derive(Debug, Default)]
pub(crate) struct ChargesAtEnd {
    by_response: ByResponse,
    /// Of a gRPC call, once its response is there.
    by_trailers: Option<ByTrailers>,
}

impl ChargesAtEnd {
    /// Opens the charges of a request that are corrected later, for its handler too.
    pub(crate) fn open<B>(
        in_force: &Arc<InForce>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
    ) -> ChargesAtEnd {
        let granted = |at| GrantStamp::of(verdict, at);
        let Corrected { reserved, by_response } = Corrected::open(in_force, asks, granted);
        if !reserved.is_empty() {
            request.extensions_mut().get_or_insert_default::<Charges>().extend(reserved);
        }
        ChargesAtEnd { by_response, by_trailers: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_response.is_empty() && self.by_trailers.is_none()
    }

    /// Settles what the response decides. Returns what goes on.
    pub(crate) fn respond<B>(&mut self, response: &Response<B>) -> Vec<CorrectionTask> {
        let (corrections, by_trailers) = mem::take(&mut self.by_response).settle(response);
        self.by_trailers = by_trailers;
        corrections
    }

    /// Whether the trailers are in the data of the body.
    pub(crate) fn is_in_body(&self) -> bool {
        self.by_trailers.as_ref().is_some_and(ByTrailers::is_in_body)
    }

    /// Settles by the trailers in a frame of the body, or in its data. Returns what goes on.
    pub(crate) fn after<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>) -> Vec<CorrectionTask> {
        let (Some(Ok(frame)), Some(waiting)) = (frame, &mut self.by_trailers) else { return Vec::new() };
        let in_body = frame.data_ref().and_then(|data| waiting.read(data.chunk()));
        let Some(trailers) = frame.trailers_ref().or(in_body.as_ref()) else { return Vec::new() };
        self.by_trailers.take().map_or_else(Vec::new, |charges| charges.settle(trailers))
    }
}
