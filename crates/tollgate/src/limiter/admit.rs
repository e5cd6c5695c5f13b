//! The way from what is asked to an admission.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Reply, Source, Store, Times, Verdict};

use super::asking::{Admission, Asking};
use super::decider::Decider;
use super::live::Live;
use super::patience::Patience;
use super::permit::Permit;
use super::waiting::{Waited, WaitedRequest, Waiting};
use crate::decision::{Denial, Report};
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks about a request, which has a place in queues if it has waited by earlier rules. With
    /// `patience` it waits in them until the rules allow it, otherwise only for slots, as long as
    /// their rules say. `deadline` is how long a caller without patience waits at the longest: for
    /// slots, and in the queue of a leaky bucket.
    #[inline]
    pub(crate) fn admit(
        self: &Arc<Self>,
        asks: &[Ask],
        patience: Option<Duration>,
        deadline: Option<Duration>,
        place: Option<Box<Waiting>>,
        live: &Arc<Live<S>>,
    ) -> Reply<Admission, Asking<S, WaitedRequest<S>>> {
        let left = match &place {
            Some(place) => place.left_of(deadline),
            None => deadline,
        };
        let patience = match patience {
            Some(patience) => Patience::ForAll(patience),
            None if self.plan().needs().slots => match self.patience_for_slots(asks, deadline) {
                Some(patience) => patience,
                None => return self.ask_again_after_releases(asks, left),
            },
            None => return self.acquire(asks, Times::ONCE, left),
        };
        let (decider, live, asks) = (Arc::clone(self), Arc::clone(live), Asks::from(asks));
        Reply::Later(Asking::Boxed(Box::pin(async move {
            match decider.in_turn(&asks, &patience, place.unwrap_or_default(), &live).await {
                Waited::Decided(admission) => Waited::Decided(admission),
                Waited::Refused(denial) => Waited::Refused(denial),
                Waited::Replaced(place) => Waited::Replaced((place, live)),
            }
        })))
    }

    /// Asks the store once, for a caller that waits until `deadline` at the longest. What is
    /// granted of slots is held.
    #[inline]
    pub(super) fn acquire<T: From<Admission> + Send + 'static>(
        &self,
        asks: &[Ask],
        times: Times,
        deadline: Option<Duration>,
    ) -> Reply<Admission, Asking<S, T>> {
        let store = &self.engine.store;
        let claimed = if self.plan().needs().slots { self.claimed_at(asks, times) } else { None };
        let reply = match (asks, deadline) {
            ([], _) => {
                let verdict = Verdict::without_statuses(times.max()).from_source(Source::Rule);
                return Reply::Now(Admission::new(verdict, None));
            }
            ([ask], None) => store.acquire(&[self.plan().check(ask)], times),
            _ => self.plan().checks(asks, deadline, |set| store.acquire(set, times)),
        };
        match reply {
            Reply::Now(answer) => {
                let mut admission = Admission::new(answer.unwrap_or_else(NeverFails::never), None);
                if let Some(asked) = claimed {
                    let (slots, verdict) = (&self.engine.slots, &admission.verdict);
                    admission.slot = slots.held(self.plan(), asks, verdict, asked);
                }
                Reply::Now(admission)
            }
            Reply::Later(answer) => {
                let since = self.waits_since();
                if let Some(asked) = claimed {
                    return Reply::Later(Asking::Boxed(self.held_later(asks, answer, asked, since)));
                }
                Reply::Later(Asking::Store(answer, since))
            }
        }
    }

    pub(super) async fn look(&self, asks: &[Ask], deadline: Option<Duration>) -> Report {
        let looked = self.acquire::<Admission>(asks, Times::LOOK, deadline).wait().await;
        self.report(asks, &looked.verdict)
    }

    /// Shows observers what was decided about a request.
    #[inline]
    pub(crate) fn show(&self, asks: &[Ask], Admission { verdict, slot, since }: &Admission) {
        self.observers().verdict(self.plan(), asks, verdict, *since);
        slot.seen_by(self.observers());
    }

    /// The permit or the denial that an admission means, for a caller that gets it.
    pub(super) fn permit(&self, asks: Asks, admission: Admission) -> Result<Permit, Denial> {
        let report = self.report(&asks, &admission.verdict);
        if !admission.verdict.is_granted() {
            let denial = Denial::of(report);
            self.count(&denial, &asks);
            return Err(denial);
        }
        let mut permit = Permit::new(report, asks, Arc::clone(&self.in_force));
        permit.slot = admission.slot;
        Ok(permit)
    }
}
