//! The answer to what was asked, on its way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tollgate_core::{Store, Verdict};

use crate::in_flight::Slot;
use crate::store::NeverFails;

/// A verdict, and the slots that it granted.
pub(crate) type Claimed = (Verdict, Slot);

pub(crate) type ClaimFuture = Pin<Box<dyn Future<Output = Claimed> + Send>>;

/// The answer to what was asked, on its way.
#[pin_project(project = AskingProjection)]
pub(crate) enum Asking<S: Store> {
    /// Of a set without slots.
    Store(#[pin] S::Acquire),
    /// Boxed, so that other requests do not move it.
    Claim(ClaimFuture),
}

impl<S: Store<Error: NeverFails>> Future for Asking<S> {
    type Output = Claimed;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Claimed> {
        match self.project() {
            AskingProjection::Store(verdict) => {
                verdict.poll(cx).map(|answer| (answer.unwrap_or_else(NeverFails::never), Slot::default()))
            }
            AskingProjection::Claim(claim) => claim.as_mut().poll(cx),
        }
    }
}
