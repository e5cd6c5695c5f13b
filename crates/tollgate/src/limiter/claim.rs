//! Sets with slots: how a verdict and its slots reach a caller, also one that leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout_at};
use tollgate_core::{Reply, Store, Times, Verdict, Wait};

use super::asking::{Asking, ClaimFuture, Claimed};
use super::decider::Decider;
use crate::in_flight::Slot;
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;
use crate::time::ending::Home;
use crate::time::{YEAR, timer_now};

/// How long a refused request waits for a release of this process at most.
const LONGEST_RELEASE: Duration = Duration::from_secs(1);

/// The pause between two looks for claims that are not answered yet.
const CLAIMS_LOOK: Duration = Duration::from_millis(10);

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks the store, for a caller that waits until `deadline` at the longest.
    ///
    /// If nothing but slots is lacking, and a release of this process was on its way, it is asked
    /// once more after that: a client is not refused for its own last request. All of this ends
    /// within the limits of the caller and of the store.
    pub(crate) fn ask(
        self: &Arc<Self>,
        asks: &[Ask],
        deadline: Option<Duration>,
    ) -> Reply<Claimed, Asking<S>> {
        if !self.claims(asks) {
            return self.ask_once(asks, deadline);
        }
        let releasing = self.engine.slots.releasing(self.plan(), asks);
        let begin = timer_now();
        match (self.ask_once(asks, deadline), releasing) {
            (Reply::Later(first), Some(releasing)) => {
                let (decider, asks) = (Arc::clone(self), Asks::from(asks));
                Reply::Later(Asking::Claim(Box::pin(async move {
                    let claimed = first.await;
                    if claimed.0.is_granted() || !decider.lacks_only_slots(&asks, &claimed.0) {
                        return claimed;
                    }
                    let limits = [deadline, decider.engine.store.wait_limit(), Some(YEAR)];
                    let end = begin + limits.into_iter().flatten().min().unwrap_or(YEAR);
                    // Without an answer, the slot may still be free.
                    let _ = timeout_at(end.min(timer_now() + LONGEST_RELEASE), releasing.answered()).await;
                    if timer_now() >= end {
                        return claimed;
                    }
                    let deadline = deadline.map(|deadline| deadline.saturating_sub(begin.elapsed()));
                    let again = decider.ask_once(&asks, deadline).wait();
                    timeout_at(end, again).await.unwrap_or(claimed)
                })))
            }
            (reply, _) => reply,
        }
    }

    /// [`Decider::ask`] for a caller that listens to releases itself.
    pub(super) fn ask_once(&self, asks: &[Ask], deadline: Option<Duration>) -> Reply<Claimed, Asking<S>> {
        let asked = self.claims(asks).then(timer_now);
        let reply = self.acquire(asks, Times::ONCE, deadline);
        let Some(asked) = asked else {
            return match reply {
                Reply::Now(answer) => Reply::Now((answer.unwrap_or_else(NeverFails::never), Slot::default())),
                Reply::Later(verdict) => Reply::Later(Asking::Store(verdict)),
            };
        };
        let (slots, plan) = (&self.engine.slots, self.plan());
        match reply {
            Reply::Now(answer) => {
                let verdict = answer.unwrap_or_else(NeverFails::never);
                let slot = slots.held(plan, asks, &verdict, asked);
                Reply::Now((verdict, slot))
            }
            Reply::Later(answer) => {
                let (slots, plan, asks) = (Arc::clone(slots), Arc::clone(plan), Asks::from(asks));
                let claim: ClaimFuture = Box::pin(async move {
                    let verdict = answer.await.unwrap_or_else(NeverFails::never);
                    let slot = slots.held(&plan, &asks, &verdict, asked);
                    (verdict, slot)
                });
                let ends_by_itself = self.engine.store.sent_claims().is_some();
                Reply::Later(Asking::Claim(match ends_by_itself {
                    true => claim,
                    false => Box::pin(ToTheEnd { claim: Some(claim), home: Home::here() }),
                }))
            }
        }
    }

    /// Whether a slot is asked for.
    #[inline]
    pub(crate) fn claims(&self, asks: &[Ask]) -> bool {
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
        !verdict.each().is_empty() && refused.all(|(ask, _)| self.plan().is_slot(ask))
    }
}

/// A claim in a store that does not end abandoned claims by itself. It goes on if its caller
/// leaves, and releases what it was granted then.
struct ToTheEnd {
    /// `None` once it was answered.
    claim: Option<ClaimFuture>,
    home: Home,
}

impl Future for ToTheEnd {
    type Output = Claimed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Claimed> {
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
