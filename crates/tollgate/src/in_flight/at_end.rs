//! What the end of a request does to its slots.

use std::mem;

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use tokio::task::JoinHandle;
use tollgate_core::Settled;

use super::{HeldUntilDropped, Slot};

/// The slots of a request, which are released when its body ends, or when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct SlotsAtEnd {
    held: HeldUntilDropped,
    /// Whether a response without an error opens a tunnel.
    is_connect: bool,
    /// How much data of the body follows, if its head says so.
    left: Option<u64>,
}

impl SlotsAtEnd {
    /// Holds the slots of a request, and hands them to its handler.
    pub(crate) fn open<B>(request: &mut Request<B>, slot: Slot) -> SlotsAtEnd {
        if slot.is_empty() {
            return SlotsAtEnd::default();
        }
        request.extensions_mut().get_or_insert_default::<Slot>().extend(slot.clone());
        let is_connect = request.method() == Method::CONNECT;
        SlotsAtEnd { held: HeldUntilDropped::new(slot), is_connect, left: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Waits for these corrections before the release.
    pub(crate) fn correct_first(&mut self, corrections: Vec<JoinHandle<Settled>>) {
        self.held.correct_first(corrections);
    }

    /// Holds the slots until the body ends; or leaves them to handlers, if the connection goes on
    /// in another protocol.
    pub(crate) fn respond<B>(&mut self, response: &Response<B>) {
        let opens_tunnel = self.is_connect && response.status().is_success();
        if opens_tunnel || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return mem::take(&mut self.held).leave();
        }
        let length = response.headers().get(CONTENT_LENGTH);
        self.left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if self.left == Some(0) {
            self.release();
        }
    }

    /// Follows a frame of the body, `None` at its end. `is_last` says that none follows, and
    /// `waits` that trailers may settle charges after the data.
    pub(crate) fn after<D: Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_last: bool,
        waits: bool,
    ) {
        let data = frame.and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(left), Some(data)) = (&mut self.left, data) {
            *left = left.saturating_sub(data.remaining() as u64);
        }
        let has_all = self.left == Some(0) && !waits;
        // No frame follows trailers.
        let goes_on = matches!(frame, Some(Ok(frame)) if !frame.is_trailers()) && !is_last && !has_all;
        if !goes_on {
            // Before the client has all of it: its next request finds the slot free.
            self.release();
        }
    }

    fn release(&mut self) {
        self.held = HeldUntilDropped::default();
    }
}
