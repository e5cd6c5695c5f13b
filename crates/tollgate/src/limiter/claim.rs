//! Slots: how what is granted of them reaches a caller, also one that leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tollgate_core::{Reply, Store, Times, Timestamp, Unsent, Verdict, Wait};

use super::asking::{Admission, Asking, BoxedAsking};
use super::decider::Decider;
use super::engine::Engine;
use super::patience::{Patience, Waits};
use super::waiting::{Waited, WaitedRequest};
use crate::in_flight::Listener;
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;
use crate::time::ending::Home;
use crate::time::{YEAR, timer_now};

/// How long a refused request waits for a release of this process at most.
const LONGEST_RELEASE: Duration = Duration::from_secs(1);

/// The pause in which the first caller asks for a slot, which another process may have released. A
/// release of this process ends it.
const SLOT_PAUSE: Duration = Duration::from_millis(200);

/// The pause between two looks for claims that are not answered yet.
const CLAIMS_LOOK: Duration = Duration::from_millis(10);

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// When the store is asked, if it is asked for slots: their time to live begins after that.
    pub(super) fn claimed_at(&self, asks: &[Ask], times: Times) -> Option<Instant> {
        let claims = times.max() > 0 && asks.iter().any(|ask| self.plan().is_slot(ask));
        claims.then(timer_now)
    }

    /// The admission of a claim whose answer comes later.
    pub(super) fn held_later<T: From<Admission> + Send + 'static>(
        &self,
        asks: &[Ask],
        answer: S::Acquire,
        asked: Instant,
        since: Option<Timestamp>,
    ) -> BoxedAsking<T> {
        let (slots, plan, asks) = (Arc::clone(&self.engine.slots), Arc::clone(self.plan()), Asks::from(asks));
        let claim: BoxedAsking<T> = Box::pin(async move {
            let verdict = answer.await.unwrap_or_else(NeverFails::never);
            let slot = slots.held(&plan, &asks, &verdict, asked);
            Admission { slot, ..Admission::new(verdict, since) }.into()
        });
        match self.engine.store.sent_claims() {
            Some(_) => claim,
            None => Box::pin(ToTheEnd { claim: Some(claim), home: Home::here() }),
        }
    }

    /// Asks without waiting for a turn. If nothing but slots is lacking, and a release of this
    /// process was on its way, it asks once more after that: a client is not refused for its own
    /// last request. All of this ends within the limits of the caller and of the store.
    pub(super) fn ask_again_after_releases(
        self: &Arc<Self>,
        asks: &[Ask],
        deadline: Option<Duration>,
    ) -> Reply<Admission, Asking<S, WaitedRequest<S>>> {
        let Some(releasing) = self.engine.slots.releasing(self.plan(), asks) else {
            return self.acquire(asks, Times::ONCE, deadline);
        };
        let begin = timer_now();
        let first = match self.acquire::<Admission>(asks, Times::ONCE, deadline) {
            Reply::Now(admission) => return Reply::Now(admission),
            Reply::Later(first) => first,
        };
        let (decider, asks) = (Arc::clone(self), Asks::from(asks));
        Reply::Later(Asking::Boxed(Box::pin(async move {
            let admission = first.await;
            if !decider.lacks_only_slots(&asks, &admission.verdict) {
                return Waited::Decided(admission);
            }
            let limits = [deadline, decider.engine.store.wait_limit(), Some(YEAR)];
            let end = begin + limits.into_iter().flatten().min().unwrap_or(YEAR);
            // Without an answer, the slot may still be free.
            let _ = timeout_at(end.min(timer_now() + LONGEST_RELEASE), releasing.answered()).await;
            if timer_now() >= end {
                return Waited::Decided(admission);
            }
            let deadline = deadline.map(|deadline| deadline.saturating_sub(begin.elapsed()));
            let again = decider.acquire::<Admission>(&asks, Times::ONCE, deadline).wait();
            Waited::Decided(timeout_at(end, again).await.unwrap_or(admission))
        })))
    }

    /// How long each ask may wait for its slot, if any may. `deadline` is that of the caller.
    pub(super) fn patience_for_slots(&self, asks: &[Ask], deadline: Option<Duration>) -> Option<Patience> {
        let plan = self.plan();
        let longest = deadline.unwrap_or(Duration::MAX);
        let wait = |ask: &Ask| match plan.is_slot(ask) {
            true => plan.rule(plan.rule_of(&ask.policy)).wait().min(longest),
            false => Duration::ZERO,
        };
        let waits: Waits = asks.iter().map(wait).collect();
        waits.iter().any(|wait| !wait.is_zero()).then_some(Patience::ForSlots(waits, deadline))
    }

    /// Listens to releases of the slot that is lacking.
    pub(super) fn listen(&self, releases: &mut ReleasesOfOne, asks: &[Ask]) {
        if let (Some(at), None) = (releases.at, &releases.listener) {
            releases.listener = Some(self.engine.slots.listen(self.plan(), &asks[at]));
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

impl<S: Store<Error: NeverFails>> Engine<S> {
    /// Ends the slots of this process, and those that claims are granted meanwhile.
    pub(super) async fn end_slots(&self) {
        self.slots.give_back().await;
        while self.unanswered_claims() > 0 {
            sleep(CLAIMS_LOOK).await;
        }
        self.slots.give_back().await;
    }

    /// Adds releases and claims without an answer.
    pub(super) fn count_unsent_slots(&self, unsent: &mut Unsent) {
        unsent.corrections += self.slots.unanswered();
        unsent.claims += self.unanswered_claims();
    }

    /// Claims that were sent and not answered, of all that ask the store.
    fn unanswered_claims(&self) -> u64 {
        self.store.sent_claims().map_or(0, |claims| claims.unanswered())
    }
}

/// A claim in a store that does not end abandoned claims by itself. It goes on if its caller
/// leaves, and releases what it was granted then.
struct ToTheEnd<T: Send + 'static> {
    /// `None` once it was answered.
    claim: Option<BoxedAsking<T>>,
    home: Home,
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let claim = self.claim.as_mut().expect("a future is not polled after it was ready");
        let answer = claim.as_mut().poll(cx);
        if answer.is_ready() {
            self.claim = None;
        }
        answer
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.home.end(|| claim);
        }
    }
}

/// The releases by this process that a caller waits for: those of the slot that was lacking last,
/// or of the first that it asks for.
pub(super) struct ReleasesOfOne {
    /// Its place in the set.
    at: Option<usize>,
    listener: Option<Listener>,
}

impl ReleasesOfOne {
    pub(super) fn new(at: Option<usize>) -> ReleasesOfOne {
        ReleasesOfOne { at, listener: None }
    }

    /// Waits until a time, or until a release if one is listened to.
    pub(super) async fn one_before(&mut self, time: Instant) {
        match &mut self.listener {
            Some(listener) => listener.released(time).await,
            None => sleep_until(time).await,
        }
    }

    /// Listens to none: something else was lacking.
    pub(super) fn ignore(&mut self) {
        self.listener = None;
    }

    /// How long to wait for a release of what was lacking. Not at all, if there was no listener
    /// while the store was asked.
    pub(super) fn pause(&mut self, lacking: Option<usize>) -> Duration {
        if self.at != lacking {
            *self = ReleasesOfOne::new(lacking);
        }
        if self.listener.is_some() { SLOT_PAUSE } else { Duration::ZERO }
    }
}
