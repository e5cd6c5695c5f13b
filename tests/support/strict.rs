//! A service that must be polled ready.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

/// Answers 200. Panics if it is called without a `poll_ready` of its own; that of a clone does not
/// count.
#[derive(Debug, Default)]
pub struct Strict {
    is_ready: bool,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    slots: AtomicU32,
    calls: AtomicU32,
}

impl Strict {
    /// The slots that all clones have taken. A `poll_ready` takes one, and a call uses it up.
    pub fn slots(&self) -> u32 {
        self.counts.slots.load(Ordering::Relaxed)
    }

    /// The calls of all clones.
    pub fn calls(&self) -> u32 {
        self.counts.calls.load(Ordering::Relaxed)
    }
}

impl Clone for Strict {
    fn clone(&self) -> Strict {
        Strict { is_ready: false, counts: Arc::clone(&self.counts) }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !mem::replace(&mut self.is_ready, true) {
            self.counts.slots.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(mem::take(&mut self.is_ready), "called without having been polled ready");
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(Body::from("hello"))))
    }
}
