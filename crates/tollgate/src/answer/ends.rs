//! What the end of a request does: it settles charges and releases slots.

use std::mem;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::Frame;
use tollgate_core::Verdict;

use crate::charge::ChargesAtEnd;
use crate::decision::InForce;
use crate::in_flight::{Slot, SlotsAtEnd};
use crate::plan::Ask;

/// What the end of a request does. Dropped before its response, what was charged stays, and slots
/// are released.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    charges: ChargesAtEnd,
    slots: SlotsAtEnd,
}

impl Ends {
    /// Opens the charges of a request that are corrected later, and its slots, for its handler.
    /// `None` if there are none. Boxed, since every response is moved several times.
    pub(crate) fn open<B>(
        in_force: &Arc<InForce>,
        request: &mut Request<B>,
        asks: &[Ask],
        verdict: &Verdict,
        slot: &mut Slot,
    ) -> Option<Box<Ends>> {
        let mut ends = Box::<Ends>::default();
        ends.charges = ChargesAtEnd::open(in_force, request, asks, verdict);
        ends.slots = SlotsAtEnd::open(request, mem::take(slot));
        (!ends.is_empty()).then_some(ends)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.charges.is_empty() && self.slots.is_empty()
    }

    /// Settles what the response decides. The rest is done by the end of its body.
    pub(crate) fn respond<B>(&mut self, response: &Response<B>) {
        let corrections = self.charges.respond(response);
        self.slots.correct_first(corrections);
        self.slots.respond(response);
    }

    /// The same frame, whose data is in one piece if trailers may be in it.
    pub(super) fn in_one_piece<D: Buf + From<Bytes>>(&self, frame: Frame<D>) -> Frame<D> {
        let is_in_pieces = |data: &D| data.chunk().len() < data.remaining();
        if !self.charges.is_in_body() || !frame.data_ref().is_some_and(is_in_pieces) {
            return frame;
        }
        frame.map_data(|mut data| data.copy_to_bytes(data.remaining()).into())
    }

    /// Follows a frame of the body, `None` at its end. `is_last` says that none follows.
    pub(super) fn after<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>, is_last: bool) {
        let corrections = self.charges.after(frame);
        self.slots.correct_first(corrections);
        let waits_for_trailers = !self.charges.is_empty();
        self.slots.after(frame, is_last, waits_for_trailers);
    }
}
