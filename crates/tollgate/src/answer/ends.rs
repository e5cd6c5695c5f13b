//! What the end of a request does: it settles charges and releases slots.

use std::mem;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use tollgate_core::Verdict;

use crate::charge::{ByResponse, ByTrailers, Charges, Corrected, GrantStamp};
use crate::decision::InForce;
use crate::in_flight::{HeldUntilDropped, Slot};
use crate::plan::Ask;

/// What the end of a request does. Dropped before its response, what was charged stays, and slots
/// are released.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    by_response: ByResponse,
    slot: HeldUntilDropped,
    /// Whether a response without an error opens a tunnel.
    is_connect: bool,
}

impl Ends {
    /// Opens the charges of a request that are corrected later, and its slots, for its handler.
    /// `None` if there are none. Boxed, since every response is moved several times.
    #[inline]
    pub(crate) fn open<B>(
        in_force: &Arc<InForce>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
        slot: &mut Slot,
    ) -> Option<Box<Ends>> {
        if in_force.plan.correcting().is_empty() && slot.is_empty() {
            return None;
        }
        let ends = Ends::of(in_force, request, asks, verdict, mem::take(slot));
        (!ends.by_response.is_empty() || !ends.slot.is_empty()).then(|| Box::new(ends))
    }

    fn of<B>(
        in_force: &Arc<InForce>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
        slot: Slot,
    ) -> Ends {
        let mut ends = Ends::default();
        let granted =
            |at: usize| Some(GrantStamp { stamp: verdict.each().get(at)?.stamp(), share: verdict.share() });
        let charges = Corrected::open(in_force, asks, granted);
        if !charges.reserved.is_empty() {
            request.extensions_mut().get_or_insert_default::<Charges>().extend(charges.reserved);
        }
        ends.by_response = charges.by_response;
        if !slot.is_empty() {
            request.extensions_mut().get_or_insert_default::<Slot>().extend(slot.clone());
            ends.slot = HeldUntilDropped::new(slot);
            ends.is_connect = request.method() == Method::CONNECT;
        }
        ends
    }

    /// Settles what the response decides. Returns what the end of its body does. The slots are held
    /// until then; or by handlers, if the connection goes on in another protocol.
    pub(crate) fn follow<B>(self, response: &Response<B>) -> Ending {
        let Ends { by_response, mut slot, is_connect } = self;
        let (corrections, by_trailers) = by_response.settle(response);
        slot.correct_first(corrections);
        let opens_tunnel = is_connect && response.status().is_success();
        if opens_tunnel || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            slot.leave();
            return Ending::new(by_trailers);
        }
        let length =
            response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Ending::new(by_trailers).holding(slot, length)
    }
}

/// What the end of a body does.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The trailers of a gRPC call settle charges. `None` once they were there.
    by_trailers: Option<ByTrailers>,
    /// Released at the end, or when it is dropped.
    slot: Option<HeldUntilDropped>,
    /// How much data follows, if the head says so.
    left: Option<u64>,
}

impl Ending {
    fn new(by_trailers: Option<ByTrailers>) -> Ending {
        Ending { by_trailers, slot: None, left: None }
    }

    /// Holds slots until the body ends, whose length is known or not.
    fn holding(self, slot: HeldUntilDropped, length: Option<u64>) -> Ending {
        let has_slot = !slot.is_empty() && length != Some(0);
        Ending { slot: has_slot.then_some(slot), left: length, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_trailers.is_none() && self.slot.is_none()
    }

    /// The same frame, whose data is in one piece if trailers may be in it.
    pub(super) fn in_one_piece<D: Buf + From<Bytes>>(&self, frame: Frame<D>) -> Frame<D> {
        let is_read = self.by_trailers.as_ref().is_some_and(ByTrailers::is_in_body);
        let is_in_pieces = |data: &D| data.chunk().len() < data.remaining();
        if !is_read || !frame.data_ref().is_some_and(is_in_pieces) {
            return frame;
        }
        frame.map_data(|mut data| data.copy_to_bytes(data.remaining()).into())
    }

    /// Follows a frame of the body, `None` at its end. `is_last` says that none follows.
    pub(super) fn after<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>, is_last: bool) {
        if let (Some(Ok(frame)), Some(waiting)) = (frame, &mut self.by_trailers) {
            let in_body = frame.data_ref().and_then(|data| waiting.read(data.chunk()));
            if let Some(trailers) = frame.trailers_ref().or(in_body.as_ref())
                && let Some(charges) = self.by_trailers.take()
            {
                let corrections = charges.settle(trailers);
                if let Some(slot) = &mut self.slot {
                    slot.correct_first(corrections);
                }
            }
        }
        let data = frame.and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(left), Some(data)) = (&mut self.left, data) {
            *left = left.saturating_sub(data.remaining() as u64);
        }
        // Trailers may follow the data, and settle charges.
        let has_all = self.left == Some(0) && self.by_trailers.is_none();
        let goes_on = matches!(frame, Some(Ok(_))) && !is_last && !has_all;
        if !goes_on {
            // Before the client has all of it: its next request finds the slot free.
            self.slot = None;
        }
    }
}
