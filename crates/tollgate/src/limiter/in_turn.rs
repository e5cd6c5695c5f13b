//! Waiting until a request may pass.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Policy, Reply, Store, Times, Verdict, Wait};

use super::asking::{Admission, Asking};
use super::claim::ReleasesOfOne;
use super::decider::Decider;
use super::live::Live;
use super::patience::Patience;
use super::refusal::Refusal;
use super::turn::turn_before;
use super::wait_queue::Waiter;
use super::waiting::{Waited, Waiting};
use crate::decision::Denial;
use crate::errors::Reason;
use crate::plan::{Ask, Asks};
use crate::store::NeverFails;
use crate::time::{YEAR, timer_now};

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks until the rules allow it, in the queues of callers that wait for the same keys. Stops
    /// as soon as these rules are replaced.
    pub(super) async fn in_turn(
        &self,
        asks: &Asks,
        patience: &Patience,
        place: Box<Waiting>,
        live: &Live<S>,
    ) -> Waited<Admission> {
        // Before rules were replaced, too.
        let begin = place.begin.unwrap_or_else(timer_now);
        if !self.may_have_to_wait(asks) {
            let deadline = patience.deadline(begin.elapsed());
            let reply = self.acquire(asks, Times::ONCE, deadline);
            return Waited::Over(self.answered(asks, reply, patience).await);
        }
        let version = self.plan().version();
        // As long as the timer can sleep.
        let end = begin + patience.longest().min(YEAR);
        let left = || end.saturating_duration_since(timer_now());
        let waits_for_all = matches!(patience, Patience::ForAll(_));
        let arrival = place.arrival.unwrap_or_else(|| self.engine.queues.arrival());
        let waited_for = self.waited_for(asks, waits_for_all);
        let keys = || waited_for.iter().map(|at| (self.plan().queue_of(&asks[*at]), &asks[*at].key));
        let mut waiter = match place.waiter {
            Some(place) => Some(self.engine.queues.join_from(place, keys())),
            None => self.engine.queues.join_others(arrival, keys()),
        };
        let deadline = patience.deadline(begin.elapsed());
        if let Some(denial) = self.refused_in_the_queue(waiter.as_ref(), asks, patience, deadline).await {
            return patience.refused(denial);
        }
        // A refusal that lasts longer than the patience of this caller.
        let holds = |waiter: &Waiter<Refusal>| {
            let lasts =
                |at: usize, refusal: &Refusal| refusal.holds_for(self.plan(), asks[waited_for[at]].cost, end);
            waiter.refusal(|at, refusal| waits_for_all && lasts(at, refusal))
        };
        let (mut asks_again, mut outage_pause) = (None, FIRST_OUTAGE_PAUSE);
        let mut releases = ReleasesOfOne::new(asks.iter().position(|ask| self.plan().is_slot(ask)));
        loop {
            if let Some(waiter) = &mut waiter {
                if let Some(refusal) = holds(waiter) {
                    return patience.refused(refusal.denial);
                }
                let in_time = turn_before(waiter, end).await;
                // Without a refusal, the callers ahead have only not been answered yet.
                let is_last = |at: usize, refusal: &Refusal| {
                    waits_for_all && waiter.at() == Some(at) && refusal.is_of(self.plan())
                };
                let last = || waiter.refusal(is_last);
                if live.is_after(version) {
                    // The queue refuses by rules that do not apply any more.
                    break;
                }
                if let Some(refusal) = holds(waiter).or_else(|| last().filter(|_| !in_time)) {
                    return patience.refused(refusal.denial);
                }
                if let Some(again) = asks_again {
                    waiter.is_busy_until(again);
                }
                let pause = async {
                    if let Some(again) = asks_again.take() {
                        releases.one_before(again).await;
                    }
                };
                // Callers without a turn hear of it when they get one.
                if live.unless_after(version, pause).await.is_none() {
                    break;
                }
                if in_time && !waiter.enter() {
                    continue;
                }
                // Before the store is asked, so that no release after its decision is missed.
                self.listen(&mut releases, asks);
            }
            let deadline = patience.deadline(begin.elapsed());
            let reply = self.acquire(asks, Times::ONCE, deadline);
            if let Reply::Later(_) = reply {
                // So that those who arrive before the answer find this caller.
                let waiter = waiter.get_or_insert_with(|| self.engine.queues.join(arrival, keys()));
                let limits = [deadline, self.engine.store.wait_limit(), Some(left())];
                waiter.is_busy_until(timer_now() + limits.into_iter().flatten().min().unwrap_or_default());
            }
            let admission = self.answered(asks, reply, patience).await;
            if admission.verdict.is_granted() {
                if let Some(waiter) = waiter {
                    let room =
                        |at: usize| room(&admission.verdict, waited_for[at], asks[waited_for[at]].cost);
                    waiter.passed(room);
                }
                return Waited::Over(admission);
            }
            let denial = Denial::of(self.report(asks, &admission.verdict));
            let left = patience.of(&denial).saturating_sub(begin.elapsed()).min(left());
            let lacking = lacking_slot(&denial);
            let pause = match denial.retry_after() {
                Some(_) if lacking.is_some() => releases.pause(lacking).min(left),
                Some(wait) => {
                    releases.ignore();
                    wait
                }
                None if patience.waits_out_outages() && self.waits_out(&denial) => {
                    let pause = outage_pause.min(left);
                    outage_pause = LONGEST_OUTAGE_PAUSE.min(2 * outage_pause);
                    pause
                }
                None => return patience.refused(denial),
            };
            let leaves = left.is_zero() || passes_after(&denial, left) > left;
            if leaves && live.is_after(version) {
                // It was refused by rules that do not apply any more.
                break;
            }
            if !leaves {
                waiter.get_or_insert_with(|| self.engine.queues.join(arrival, keys()));
                asks_again = Some(timer_now() + pause);
            }
            if let Some(waiter) = waiter.as_mut().filter(|_| waits_for_all || lacking.is_some()) {
                let queue = |at: usize| waited_for.iter().position(|waited| *waited == at);
                let now = timer_now();
                let by = Refusal::each(&denial, asks, now);
                // The ask that refuses for longest, and has not only to wait for a slot.
                let longest =
                    by.iter().max_by_key(|(at, lasts, _)| (!self.plan().is_slot(&asks[*at]), *lasts));
                match lacking.or_else(|| Some(longest?.0)).and_then(queue) {
                    Some(at) => {
                        let by = by.into_iter();
                        let by = by.filter_map(|(at, lasts, refusal)| Some((queue(at)?, lasts, refusal)));
                        waiter.refused(at, by);
                    }
                    None => waiter.failed(pause, Refusal::of_failure(&denial, now + pause.min(YEAR))),
                }
            }
            if leaves {
                return patience.refused(denial);
            }
        }
        Waited::Replaced(Box::new(Waiting { begin: Some(begin), arrival: Some(arrival), waiter }))
    }

    /// The denial of a caller that would wait for its turn only to hear that a rate refuses it.
    async fn refused_in_the_queue(
        &self,
        waiter: Option<&Waiter<Refusal>>,
        asks: &Asks,
        patience: &Patience,
        deadline: Option<Duration>,
    ) -> Option<Denial> {
        let waits = waiter.is_some_and(|waiter| !waiter.has_turn());
        let has_rates = || asks.iter().any(|ask| ask.cost > 0 && !self.plan().is_slot(ask));
        if !waits || matches!(patience, Patience::ForAll(_)) || !has_rates() {
            return None;
        }
        let denial = Denial::of(self.look(asks, deadline).await);
        let is_refused = denial.violated_at().any(|at| !self.plan().is_slot(&asks[at]));
        is_refused.then_some(denial)
    }

    /// The places of the asks that a caller waits for. Callers for one slot wait in one queue,
    /// whatever their other rules are.
    fn waited_for(&self, asks: &[Ask], waits_for_all: bool) -> SmallVec<[usize; 4]> {
        let is_waited_for = |ask: &Ask| ask.cost > 0 && (waits_for_all || self.plan().is_slot(ask));
        let each = asks.iter().enumerate().filter(|(_, ask)| is_waited_for(ask));
        each.map(|(at, _)| at).collect()
    }

    /// What was decided, when the store has answered. Observers see it, unless the caller shows
    /// them the last one itself.
    async fn answered(
        &self,
        asks: &Asks,
        reply: Reply<Admission, Asking<S>>,
        patience: &Patience,
    ) -> Admission {
        let admission = reply.wait().await;
        if let Patience::ForAll(_) = patience {
            self.show(asks, &admission);
        }
        admission
    }

    /// Whether another answer is possible later. A cost of 0 passes now, and one that exceeds a
    /// quota never does.
    fn may_have_to_wait(&self, asks: &Asks) -> bool {
        let fits = |ask: &Ask| ask.cost <= self.plan().policy(&ask.policy).largest_cost();
        asks.iter().any(|ask| ask.cost > 0) && asks.iter().all(fits)
    }

    /// Whether a denial is that of a failure policy, and the caller waits for the store.
    fn waits_out(&self, denial: &Denial) -> bool {
        self.engine.waits_for_store && denial.reason() == Reason::Unavailable
    }
}

impl Patience {
    /// The end of a wait that was in vain. Callers that wait for slots only show it, and answer it,
    /// as what was decided at once.
    fn refused(&self, denial: Denial) -> Waited<Admission> {
        match self {
            Patience::ForAll(_) => Waited::Refused(denial),
            Patience::ForSlots(..) => Waited::Over(Admission::refused(&denial)),
        }
    }
}

/// The place of the first ask that was refused for want of a slot, if nothing else was.
fn lacking_slot(denial: &Denial) -> Option<usize> {
    let is_slot = |at: usize| denial.report().policies().nth(at).is_some_and(Policy::is_in_flight);
    let first = denial.violated_at().next()?;
    denial.violated_at().all(is_slot).then_some(first)
}

/// How long the request would wait at least: until each rule allows it, and in the queue of each
/// leaky bucket that refused it, which is full when it accepts the request.
fn passes_after(denial: &Denial, left: Duration) -> Duration {
    let each = denial.report().iter().map(|(policy, status)| match status.wait() {
        // A slot may come back at any time.
        Wait::For(_) if policy.is_in_flight() => Duration::ZERO,
        Wait::For(wait) => wait.saturating_add(policy.longest_wait().min(left)),
        _ => Duration::ZERO,
    });
    each.max().unwrap_or_default()
}

/// How many more requests of this cost would pass now.
fn room(verdict: &Verdict, at: usize, cost: u64) -> usize {
    let status = verdict.each().get(at);
    let room = status.and_then(|status| status.remaining().checked_div(cost));
    room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX)
}

/// The pauses in which the first caller asks a store that is unavailable.
const FIRST_OUTAGE_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_secs(1);
