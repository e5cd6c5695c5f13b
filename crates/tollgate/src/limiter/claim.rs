//! Asking the store: how a verdict and its slots reach a caller, also one that leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout_at};
use tollgate_core::{Reply, Store, Times, Verdict, Wait};

use super::asking::{Admission, Asking, BoxedAsking};
use super::decider::Decider;
use super::live::Live;
use super::until_ready::Patience;
use super::waiting::{Waited, Waiting};
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;
use crate::time::ending::Home;
use crate::time::{YEAR, timer_now};

/// How long a refused request waits for a release of this process at most.
const LONGEST_RELEASE: Duration = Duration::from_secs(1);

/// The pause between two looks for claims that are not answered yet.
const CLAIMS_LOOK: Duration = Duration::from_millis(10);

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks about a request, which waits for slots as long as its rules say: in their queues, from
    /// the place that it has.
    #[inline]
    pub(crate) fn begin(
        self: &Arc<Self>,
        asks: &[Ask],
        deadline: Option<Duration>,
        place: Option<Box<Waiting>>,
        live: &Arc<Live<S>>,
    ) -> Reply<Admission, Asking<S, Waited<Admission>>> {
        if !self.claims(asks) {
            return self.acquire(asks, Times::ONCE, deadline);
        }
        let Some(waits) = self.plan().waits(asks, deadline) else {
            return match self.ask(asks, deadline) {
                Reply::Now(admission) => Reply::Now(admission),
                Reply::Later(asking) => {
                    Reply::Later(Asking::Boxed(Box::pin(async move { Waited::Over(asking.await) })))
                }
            };
        };
        let (decider, live, asks) = (Arc::clone(self), Arc::clone(live), Asks::from(asks));
        let patience = Patience::ForSlots(waits, deadline);
        Reply::Later(Asking::Boxed(Box::pin(async move {
            match decider.in_turn(&asks, &patience, place.unwrap_or_default(), &live).await {
                Waited::Over(Ok(admission)) => Waited::Over(admission),
                Waited::Over(Err(denial)) => Waited::Over(Admission::refused(&denial)),
                Waited::Replaced(place) => Waited::Replaced(place),
            }
        })))
    }

    /// Asks the store, for a caller that waits until `deadline` at the longest.
    ///
    /// If nothing but slots is lacking, and a release of this process was on its way, it is asked
    /// once more after that: a client is not refused for its own last request. All of this ends
    /// within the limits of the caller and of the store.
    pub(super) fn ask(
        self: &Arc<Self>,
        asks: &[Ask],
        deadline: Option<Duration>,
    ) -> Reply<Admission, Asking<S>> {
        if !self.claims(asks) {
            return self.acquire(asks, Times::ONCE, deadline);
        }
        let releasing = self.engine.slots.releasing(self.plan(), asks);
        let begin = timer_now();
        match (self.ask_once(asks, deadline), releasing) {
            (Reply::Later(first), Some(releasing)) => {
                let (decider, asks) = (Arc::clone(self), Asks::from(asks));
                Reply::Later(Asking::Boxed(Box::pin(async move {
                    let admission = first.await;
                    if !decider.lacks_only_slots(&asks, &admission.verdict) {
                        return admission;
                    }
                    let limits = [deadline, decider.engine.store.wait_limit(), Some(YEAR)];
                    let end = begin + limits.into_iter().flatten().min().unwrap_or(YEAR);
                    // Without an answer, the slot may still be free.
                    let _ = timeout_at(end.min(timer_now() + LONGEST_RELEASE), releasing.answered()).await;
                    if timer_now() >= end {
                        return admission;
                    }
                    let deadline = deadline.map(|deadline| deadline.saturating_sub(begin.elapsed()));
                    let (again, since) = (decider.ask_once(&asks, deadline).wait(), admission.since);
                    Admission { since, ..timeout_at(end, again).await.unwrap_or(admission) }
                })))
            }
            (reply, _) => reply,
        }
    }

    /// [`Decider::ask`] for a caller that listens to releases itself.
    pub(super) fn ask_once(&self, asks: &[Ask], deadline: Option<Duration>) -> Reply<Admission, Asking<S>> {
        if !self.claims(asks) {
            return self.acquire(asks, Times::ONCE, deadline);
        }
        let (slots, plan, asked) = (Arc::clone(&self.engine.slots), Arc::clone(self.plan()), timer_now());
        let held = move |asks: &[Ask], admission: Admission| {
            let slot = slots.held(&plan, asks, &admission.verdict, asked);
            Admission { slot, ..admission }
        };
        match self.acquire(asks, Times::ONCE, deadline) {
            Reply::Now(admission) => Reply::Now(held(asks, admission)),
            Reply::Later(asking) => {
                let (asks, asking): (Asks, Asking<S>) = (asks.into(), asking);
                let claim: BoxedAsking<Admission> = Box::pin(async move { held(&asks, asking.await) });
                let ends_by_itself = self.engine.store.sent_claims().is_some();
                Reply::Later(Asking::Boxed(match ends_by_itself {
                    true => claim,
                    false => Box::pin(ToTheEnd { claim: Some(claim), home: Home::here() }),
                }))
            }
        }
    }

    /// Whether a slot is asked for.
    #[inline]
    pub(super) fn claims(&self, asks: &[Ask]) -> bool {
        self.plan().needs().slots && asks.iter().any(|ask| self.plan().is_slot(ask))
    }

    /// Releases the slots of this process: see `Limiter::give_back`.
    pub(super) async fn give_back(&self) {
        self.engine.slots.give_back().await;
        while self.engine.store.sent_claims().is_some_and(|claims| claims.unanswered() > 0) {
            sleep(CLAIMS_LOOK).await;
        }
    }

    /// Whether each policy that refused is of requests in flight.
    fn lacks_only_slots(&self, asks: &[Ask], verdict: &Verdict) -> bool {
        let mut refused = asks.iter().zip(verdict.each()).filter(|(_, status)| status.wait() != Wait::None);
        !verdict.is_granted()
            && !verdict.each().is_empty()
            && refused.all(|(ask, _)| self.plan().is_slot(ask))
    }
}

/// A claim in a store that does not end abandoned claims by itself. It goes on if its caller
/// leaves, and releases what it was granted then.
struct ToTheEnd {
    /// `None` once it was answered.
    claim: Option<BoxedAsking<Admission>>,
    home: Home,
}

impl Future for ToTheEnd {
    type Output = Admission;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Admission> {
        let claim = self.claim.as_mut().expect("a future is not polled after it was ready");
        let answer = claim.as_mut().poll(cx);
        if answer.is_ready() {
            self.claim = None;
        }
        answer
    }
}

impl Drop for ToTheEnd {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.home.end(|| claim);
        }
    }
}
