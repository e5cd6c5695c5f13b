//! What happens to the rest of a refused request's body.
//!
//! A server that drops a body which is still arriving closes the connection or resets the stream.
//! The client is still writing, so it may see that instead of the answer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body::Body;
use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

/// How much of the rest of a refused body is read, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

impl Default for Bound {
    fn default() -> Bound {
        Bound { bytes: 1 << 20, time: Duration::from_secs(1) }
    }
}

/// What to do about the body of one refused request, read from its head before the answer is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyRest {
    bound: Bound,
    /// On HTTP/1, dropping the body closes the connection. It is held until the time is over, so
    /// that the client can read its answer first.
    hold: bool,
    /// The body may be larger than the bound, so the connection is not kept alive.
    close: bool,
}

impl Bound {
    /// `None` if nothing of the body is to come.
    pub(crate) fn rest<B: Body>(self, request: &Request<B>) -> Option<BodyRest> {
        if request.body().is_end_stream() || self.bytes == 0 || self.time.is_zero() {
            return None;
        }
        let is_http1 = request.version() < Version::HTTP_2;
        // Polling the body would ask the client for it with a 100.
        let is_held_back = is_http1 && request.headers().contains_key(EXPECT);
        let fits = request.body().size_hint().upper().is_some_and(|size| size <= self.bytes);
        let bytes = if is_held_back { 0 } else { self.bytes };
        Some(BodyRest { bound: Bound { bytes, ..self }, hold: is_http1, close: is_held_back || !fits })
    }
}

impl BodyRest {
    /// Adds `Connection: close` to an answer over HTTP/1 after which the connection may be closed.
    pub(crate) fn add_close(&self, answer: &mut HeaderMap) {
        if self.hold && self.close {
            answer.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Reads the body in a task of its own, while the answer is sent. Outside of a tokio runtime it
    /// is dropped.
    pub(crate) fn start<B: Body + Send + 'static>(self, body: B) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let BodyRest { bound, hold, .. } = self;
                Drain { body, left: bound.bytes, hold, time: sleep(bound.time) }.await;
            });
        }
    }
}

/// Reads a body and keeps nothing of it, until it ends or the bound is reached.
#[pin_project]
struct Drain<B> {
    #[pin]
    body: B,
    left: u64,
    hold: bool,
    #[pin]
    time: Sleep,
}

impl<B: Body> Future for Drain<B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut drain = self.project();
        if drain.time.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while *drain.left > 0 {
            match drain.body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Buf::remaining);
                    // An empty frame counts too, so that the loop ends.
                    *drain.left = drain.left.saturating_sub((bytes as u64).max(1));
                }
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        if *drain.hold && !drain.body.is_end_stream() { Poll::Pending } else { Poll::Ready(()) }
    }
}
