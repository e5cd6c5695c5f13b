//! The layer of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use tollgate_core::{Clock, Key, Share};

use super::fields::{is_refusal, pause};
use super::origin::origin;
use super::pauses::{Origin, Pauses};
use crate::time::random_part::RandomPart;
use crate::time::{YEAR, timer_now};

type OriginOf<R> = dyn Fn(&R) -> Option<Key> + Send + Sync;
type HeadOf<T> = dyn Fn(&T) -> (StatusCode, &HeaderMap) + Send + Sync;

/// Pauses the requests of a client to an origin for as long as its responses ask: see the
/// [module](crate::pause). `R` is a request, and `T` a response.
#[must_use]
pub struct PauseLayer<R, T> {
    origin: Arc<OriginOf<R>>,
    head: Arc<HeadOf<T>>,
    pauses: Arc<Pauses>,
    clock: Clock,
    pub(super) at_most: Duration,
    longest: Duration,
    before_refusals: bool,
    jitter: Option<Share>,
}

impl<B: 'static, C: 'static> PauseLayer<Request<B>, Response<C>> {
    /// For clients over `http::Request`. An origin is the scheme, host and port of the URI (RFC
    /// 9110, section 4.3.1), or those of `http` and the header `Host`. Case, a default port and
    /// user info make no other origin. A host of more than 253 bytes is no name in DNS, and is
    /// never paused.
    pub fn new() -> PauseLayer<Request<B>, Response<C>> {
        PauseLayer::of(origin, |response: &Response<C>| (response.status(), response.headers()))
    }
}

impl<B: 'static, C: 'static> Default for PauseLayer<Request<B>, Response<C>> {
    fn default() -> PauseLayer<Request<B>, Response<C>> {
        PauseLayer::new()
    }
}

impl<R, T> PauseLayer<R, T> {
    /// For any client. `origin` says what a request is paused with, and `head` returns the status
    /// and the headers of a response. A request without an origin is never paused. Leave out what
    /// does not choose the server, such as user info: each value is an origin of its own.
    ///
    /// ```text
    /// PauseLayer::of(
    ///     |request: &reqwest::Request| request.url().host_str().map(Key::from),
    ///     |response: &reqwest::Response| (response.status(), response.headers()),
    /// )
    /// ```
    pub fn of(
        origin: impl Fn(&R) -> Option<Key> + Send + Sync + 'static,
        head: impl Fn(&T) -> (StatusCode, &HeaderMap) + Send + Sync + 'static,
    ) -> PauseLayer<R, T> {
        PauseLayer {
            origin: Arc::new(origin),
            head: Arc::new(head),
            pauses: Arc::new(Pauses::new()),
            clock: Clock::system(),
            at_most: Duration::from_secs(30),
            longest: Duration::from_secs(3_600),
            before_refusals: false,
            jitter: None,
        }
    }

    /// Sets for how long a request may wait for the end of a pause; 30 s by default. A request that
    /// would wait longer fails at once.
    ///
    /// # Panics
    /// A request panics outside of a tokio runtime with a timer, if it has to wait.
    pub fn wait_at_most(mut self, time: Duration) -> PauseLayer<R, T> {
        self.at_most = time;
        self
    }

    /// Sets the longest pause that an origin may ask for, up to a year; an hour by default. Of a
    /// longer one, that much counts.
    pub fn longest_pause(mut self, time: Duration) -> PauseLayer<R, T> {
        self.longest = time.min(YEAR);
        self
    }

    /// Pauses also after a request that passed, if its response says that nothing remains. That
    /// spares the refusal.
    ///
    /// Of a window, the reset is when requests pass again. Of a bucket, it is when the bucket is
    /// full again, so the client waits for longer than needed.
    pub fn before_refusals(mut self) -> PauseLayer<R, T> {
        self.before_refusals = true;
        self
    }

    /// Lengthens the wait of each request by a random part of it, up to this share: with a fifth, a
    /// wait of 10 s becomes 10 s to 12 s, but no longer than [`wait_at_most`]. Requests, also those
    /// of other processes, then do not all go on at the moment at which a pause ends. No wait
    /// becomes shorter. Off by default.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::Share;
    /// use tollgate::pause::PauseLayer;
    ///
    /// let layer = PauseLayer::<Request<String>, Response<String>>::new().jitter(Share::new(1, 5));
    /// ```
    ///
    /// [`wait_at_most`]: PauseLayer::wait_at_most
    pub fn jitter(mut self, share: Share) -> PauseLayer<R, T> {
        self.jitter = Some(share);
        self
    }

    /// How long a request waits that has to wait so long.
    pub(super) fn lengthened(&self, wait: Duration) -> Duration {
        self.jitter.map_or(wait, |most| RandomPart::up_to(most).lengthen(wait))
    }

    pub(super) fn origin(&self, request: &R) -> Option<Origin> {
        let origin = (self.origin)(request).filter(|origin| !origin.is_empty())?;
        Some(self.pauses.origin(&origin))
    }

    /// How long requests to an origin have to wait.
    pub(super) fn left(&self, origin: Option<Origin>) -> Option<Duration> {
        self.pauses.left(origin?, timer_now())
    }

    /// Learns from a response.
    pub(super) fn hear(&self, origin: Option<Origin>, response: &T) {
        let (status, headers) = (self.head)(response);
        if !is_refusal(status, headers) && !self.before_refusals {
            return;
        }
        if let (Some(origin), Some(pause)) = (origin, pause(status, headers, self.clock.now())) {
            self.pauses.pause(origin, pause.min(self.longest), timer_now());
        }
    }
}

impl<R, T> Clone for PauseLayer<R, T> {
    fn clone(&self) -> PauseLayer<R, T> {
        PauseLayer {
            origin: Arc::clone(&self.origin),
            head: Arc::clone(&self.head),
            pauses: Arc::clone(&self.pauses),
            clock: self.clock.clone(),
            at_most: self.at_most,
            longest: self.longest,
            before_refusals: self.before_refusals,
            jitter: self.jitter,
        }
    }
}

impl<R, T> fmt::Debug for PauseLayer<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseLayer")
            .field("at_most", &self.at_most)
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}
