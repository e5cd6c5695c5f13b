//! Requests in flight: slots that requests hold while they run.

// From top to bottom; imports run down this list only: this module, at_end, extractor, slots, held,
// releases.
mod at_end;
#[cfg(feature = "axum")]
mod extractor;
mod held;
mod releases;
#[cfg(test)]
mod schedules;
mod slots;

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
// `sync` and `timer_now` are those of the slots, which their schedules replace.
use std::sync::{self, Arc};
use std::task::Poll;

use tokio::task::JoinHandle;
use tollgate_core::Settled;

use crate::decision::observe::Observers;
use crate::time::ending::Home;
use crate::time::timer_now;
use held::HeldSlot;

pub(crate) use at_end::SlotsAtEnd;
pub(crate) use releases::Listener;
pub(crate) use slots::SlotBook;

/// What a request holds while it runs: one slot of each policy of
/// [requests in flight](crate::Policy::in_flight) that applied to it.
///
/// A layer holds the slots until the response body ends, fails or is dropped; or, if there is no
/// response, until the service fails, panics or is dropped. A handler needs this type for two
/// purposes:
///
/// - **To stop in time.** A process that cannot renew its slots in a store over a network loses
///   them: others run in its place. [`lost`](Slot::lost) and [`is_lost`](Slot::is_lost) say so
///   before that happens. Work that must never run more often than the limit asks before each step.
/// - **To hold the slots beyond the response.** After `101 Switching Protocols`, and in a `CONNECT`
///   tunnel, the slots are held until the last clone of this is dropped. Move it into the task of
///   the connection. Without one they are released, and the log says so once.
///
/// With the feature `axum` a handler takes it as an argument. Elsewhere it is in the request's
/// extensions. A [`Permit`](crate::Permit::slot) of a limiter has one.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, http::StatusCode, routing::get};
/// use tollgate::extract::header;
/// use tollgate::{Policy, PolicyExt, RateLimitLayer, Slot};
///
/// async fn export(slot: Slot) -> Result<String, StatusCode> {
///     let mut rows = String::new();
///     for page in 0..1_000 {
///         if slot.is_lost() {
///             return Err(StatusCode::SERVICE_UNAVAILABLE);
///         }
///         rows += &format!("page {page}\n");
///     }
///     Ok(rows)
/// }
///
/// // Two exports of each caller at once.
/// let layer = RateLimitLayer::new(Policy::in_flight("exports", 2).by(header("x-api-key")));
/// let app: Router = Router::new().route("/export", get(export)).layer(layer);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Slot(Vec<Arc<HeldSlot>>);

impl Slot {
    /// Returns whether a slot is no longer held: its time to live has ended by the clock of this
    /// process, others have it, it was [released](Slot::release), or the response has ended.
    ///
    /// It is `true` at the latest one time to live after the last renewal that succeeded was sent,
    /// by the clock of this process: before the store gives the slot to others. Once `true`, it
    /// stays so. A store that forgets slots may give them away earlier: after a reset, if it is
    /// flushed, if a replica takes over that had not heard of them, or if its clock steps forward.
    /// Then a holder hears of it with the next renewal, a third of a time to live later, unless
    /// there is room for both.
    ///
    /// Always `false` if no policy of requests in flight applied, and if a failure policy let the
    /// request pass without a slot. Slots in memory are not lost.
    pub fn is_lost(&self) -> bool {
        self.0.iter().any(|held| held.is_lost())
    }

    /// Waits until [`is_lost`](Slot::is_lost) is `true`.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a timer, if the slot has a time to live.
    pub async fn lost(&self) {
        let mut each: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
        for held in &self.0 {
            each.push(Box::pin(held.lost()));
        }
        poll_fn(|cx| {
            let is_lost = each.iter_mut().any(|lost| lost.as_mut().poll(cx).is_ready());
            if is_lost { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Gives the slots back before the request ends. A second call does nothing.
    pub fn release(&self) {
        self.0.iter().for_each(|held| held.end());
    }

    /// Shows the ends to observers that have seen the grants.
    #[inline]
    pub(crate) fn seen_by(&self, observers: &Observers) {
        self.0.iter().for_each(|held| held.seen_by(observers));
    }

    /// Whether nothing is held, because no policy asked for it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is the last clone, and it still holds a slot.
    fn is_only_here(&self) -> bool {
        self.0.iter().any(|held| Arc::strong_count(held) == 1) && !self.is_lost()
    }

    /// Adds the slots of another layer.
    pub(crate) fn extend(&mut self, other: Slot) {
        self.0.extend(other.0);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}

/// Releases the slots of a request when it is dropped, however the request ends.
#[derive(Debug, Default)]
pub(crate) struct HeldUntilDropped {
    slot: Slot,
    /// What is corrected first, so that the next request in the slot finds the final charges of
    /// this one.
    corrections: Vec<JoinHandle<Settled>>,
}

impl HeldUntilDropped {
    pub(crate) fn new(slot: Slot) -> HeldUntilDropped {
        HeldUntilDropped { slot, corrections: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slot.is_empty()
    }

    /// Waits for these corrections before the release.
    pub(crate) fn correct_first(&mut self, corrections: Vec<JoinHandle<Settled>>) {
        self.corrections.extend(corrections);
    }

    /// Leaves the slots to the clones that handlers have.
    pub(crate) fn leave(mut self) {
        let slot = mem::take(&mut self.slot);
        if slot.is_only_here() {
            log_not_taken();
        }
    }
}

impl Drop for HeldUntilDropped {
    fn drop(&mut self) {
        let slot = mem::take(&mut self.slot);
        self.corrections.retain(|correction| !correction.is_finished());
        if slot.is_empty() || self.corrections.is_empty() {
            return slot.release();
        }
        let corrections = mem::take(&mut self.corrections);
        // From now on: the next request may come before the end of the corrections.
        let announced: Vec<_> = slot.0.iter().map(|held| held.announce()).collect();
        let held = HeldUntilDropped::new(slot);
        Home::here().end(|| async move {
            for correction in corrections {
                // It fails only if its runtime stops.
                let _ = correction.await;
            }
            drop((held, announced));
        });
    }
}

#[cold]
fn log_not_taken() {
    #[cfg(feature = "tracing")]
    if tollgate_core::LogCode::SlotNotTaken.is_first() {
        tracing::warn!(
            code = %tollgate_core::LogCode::SlotNotTaken,
            "a connection changed its protocol, and no handler had taken its `Slot`: it is not counted any more; move the \
             `Slot` into the task of the connection"
        );
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tollgate_core::{Key, Policy};

    use super::releases::Releases;
    use super::*;
    use crate::limiter::Limiter;
    use crate::table::digest::Secret;

    #[test]
    fn a_key_is_forgotten_once_its_releases_are_answered_and_none_listens() {
        let (releases, ada) = (Releases::default(), Secret::random().digest(0, b"ada"));
        let (listener, on_its_way) = (releases.listen(ada), releases.announce(ada));
        drop(on_its_way);
        assert_eq!(releases.lock().len(), 1);
        drop(listener);
        assert_eq!(releases.lock().len(), 0);
        drop(releases.announce(ada));
        assert_eq!(releases.lock().len(), 0);
    }

    #[tokio::test]
    async fn slots_are_held_until_what_goes_first_is_corrected() {
        let (limiter, ada) = (Limiter::new([Policy::in_flight("jobs", 1)]), Key::from("ada"));
        let permit = limiter.check(&ada, 1).await.unwrap();
        let mut held = HeldUntilDropped::new(permit.slot().clone());
        drop(permit);
        let (corrected, correction) = oneshot::channel();
        held.correct_first(vec![tokio::spawn(async { correction.await.unwrap() })]);
        drop(held);
        assert!(limiter.check(&ada, 1).await.is_err());
        corrected.send(Settled::default()).unwrap();
        while limiter.check(&ada, 1).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
