//! The answer to what was asked, on its way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tollgate_core::{Store, Timestamp, Verdict};

use crate::in_flight::Slot;
use crate::store::NeverFails;

/// What was decided about a request. Dropped before a caller has it, it releases its slots.
pub(crate) struct Admission {
    pub(crate) verdict: Verdict,
    pub(crate) slot: Slot,
    /// When the store was asked, if it answered later and there are observers.
    pub(crate) since: Option<Timestamp>,
}

impl Admission {
    /// That of an answer, before its slots are held.
    #[inline]
    pub(super) fn new(verdict: Verdict, since: Option<Timestamp>) -> Admission {
        Admission { verdict, slot: Slot::default(), since }
    }
}

pub(crate) type BoxedAsking<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The answer to what was asked, on its way: an [`Admission`], or what a caller makes of it.
#[pin_project(project = AskingProjection)]
pub(crate) enum Asking<S: Store, T = Admission> {
    /// Of a set without slots, and when the store was asked.
    Store(#[pin] S::Acquire, Option<Timestamp>),
    /// Of another set, so that such requests do not move it.
    Boxed(BoxedAsking<T>),
}

impl<S: Store<Error: NeverFails>, T: From<Admission>> Future for Asking<S, T> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.project() {
            AskingProjection::Store(verdict, since) => {
                let answer = verdict.poll(cx);
                answer.map(|answer| Admission::new(answer.unwrap_or_else(NeverFails::never), *since).into())
            }
            AskingProjection::Boxed(asking) => asking.as_mut().poll(cx),
        }
    }
}
