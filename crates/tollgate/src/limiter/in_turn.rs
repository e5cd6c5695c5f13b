//! Waiting until a request may pass.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{Key, Policy, Reply, Store, Times, Verdict, Wait};

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
use crate::plan::{Ask, Asks, Plan};
use crate::store::NeverFails;
use crate::time::{YEAR, timer_now};

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks until the rules allow it, in the queues of callers that wait for the same keys. Once it
    /// has its turn, it ends if these rules were replaced.
    pub(super) async fn in_turn(
        &self,
        asks: &Asks,
        patience: &Patience,
        place: Box<Waiting>,
        live: &Live<S>,
    ) -> Waited {
        let mut caller = AskingCaller::new(self, asks, patience, *place, live);
        if !caller.may_have_to_wait() {
            let reply = self.acquire(asks, Times::ONCE, caller.deadline());
            return Waited::Decided(caller.answered(reply).await);
        }
        caller.join_others();
        if let Some(admission) = caller.refused_by_a_rate().await {
            return Waited::Decided(admission);
        }
        loop {
            if let ControlFlow::Break(end) = caller.turn().await {
                return end;
            }
            let admission = caller.ask().await;
            if admission.verdict.is_granted() {
                caller.passes(&admission.verdict);
                return Waited::Decided(admission);
            }
            if let ControlFlow::Break(end) = caller.waits_after(admission) {
                return end;
            }
        }
    }
}

/// A caller that asks until the rules allow it.
struct AskingCaller<'a, S> {
    decider: &'a Decider<S>,
    asks: &'a Asks,
    patience: &'a Patience,
    live: &'a Live<S>,
    /// When it began to wait, also by earlier rules, and until when it does at most.
    begin: Instant,
    end: Instant,
    arrival: u64,
    /// The places of the asks that it waits for. Callers for one slot wait in one queue, whatever
    /// their other rules are.
    waited_for: SmallVec<[usize; 4]>,
    /// Its place in the queues. It joins them if others wait there, if its answer takes time, or if
    /// it is refused.
    waiter: Option<Waiter<Refusal>>,
    releases: ReleasesOfOne,
    /// When it asks again, if it was refused.
    asks_again: Option<Instant>,
    outage_pause: Duration,
}

impl<'a, S: Store<Error: NeverFails>> AskingCaller<'a, S> {
    fn new(
        decider: &'a Decider<S>,
        asks: &'a Asks,
        patience: &'a Patience,
        place: Waiting,
        live: &'a Live<S>,
    ) -> AskingCaller<'a, S> {
        let plan = decider.plan();
        let is_waited_for = |ask: &Ask| ask.cost > 0 && (patience.is_for_all() || plan.is_slot(ask));
        let waited_for = asks.iter().enumerate().filter(|(_, ask)| is_waited_for(ask));
        let begin = place.begin.unwrap_or_else(timer_now);
        AskingCaller {
            begin,
            // As long as the timer can sleep.
            end: begin + patience.longest().min(YEAR),
            arrival: place.arrival.unwrap_or_else(|| decider.engine.queues.arrival()),
            waited_for: waited_for.map(|(at, _)| at).collect(),
            waiter: place.waiter,
            releases: ReleasesOfOne::new(asks.iter().position(|ask| plan.is_slot(ask))),
            asks_again: None,
            outage_pause: FIRST_OUTAGE_PAUSE,
            decider,
            asks,
            patience,
            live,
        }
    }

    fn plan(&self) -> &Arc<Plan> {
        self.decider.plan()
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(timer_now())
    }

    /// How long the store may let it wait.
    fn deadline(&self) -> Option<Duration> {
        self.patience.deadline(self.begin.elapsed())
    }

    /// Whether another answer is possible later. A cost of 0 passes now, and one that exceeds a
    /// quota never does.
    fn may_have_to_wait(&self) -> bool {
        let fits = |ask: &Ask| ask.cost <= self.plan().policy(&ask.policy).largest_cost();
        self.asks.iter().any(|ask| ask.cost > 0) && self.asks.iter().all(fits)
    }

    /// What it waits for: the queue and the key of each.
    fn keys(&self) -> impl Iterator<Item = (usize, &'a Key)> {
        let (decider, asks) = (self.decider, self.asks);
        self.waited_for.iter().map(move |at| (decider.plan().queue_of(&asks[*at]), &asks[*at].key))
    }

    /// Joins the queues from the place that it has; or, if others wait, at their end.
    fn join_others(&mut self) {
        let queues = &self.decider.engine.queues;
        self.waiter = match self.waiter.take() {
            Some(place) => Some(queues.join_from(place, self.keys())),
            None => queues.join_others(self.arrival, self.keys()),
        };
    }

    /// Its place in the queues, which it joins if it has none.
    fn join(&mut self) -> &mut Waiter<Refusal> {
        let waiter = self.waiter.take();
        let waiter = waiter.unwrap_or_else(|| self.decider.engine.queues.join(self.arrival, self.keys()));
        self.waiter.insert(waiter)
    }

    /// The refusal of a caller that would wait for its turn only to hear that a rate refuses it.
    async fn refused_by_a_rate(&self) -> Option<Admission> {
        let is_slot = |at: usize| self.plan().is_slot(&self.asks[at]);
        let waits = self.waiter.as_ref().is_some_and(|waiter| !waiter.has_turn());
        let has_rates = || (0..self.asks.len()).any(|at| self.asks[at].cost > 0 && !is_slot(at));
        if !waits || self.patience.is_for_all() || !has_rates() {
            return None;
        }
        let look = self.decider.acquire::<Admission>(self.asks, Times::LOOK, self.deadline());
        let looked = look.wait().await;
        let denial = Denial::of(self.decider.report(self.asks, &looked.verdict));
        let is_refused = denial.violated_at().any(|at| !is_slot(at));
        is_refused.then_some(looked)
    }

    /// Waits for its turn, and for the pause after its last denial.
    async fn turn(&mut self) -> ControlFlow<Waited> {
        let version = self.plan().version();
        while let Some(waiter) = &self.waiter {
            if let Some(denial) = self.refusal_that_lasts(waiter) {
                return ControlFlow::Break(Waited::Refused(denial));
            }
            let in_time = turn_before(waiter, self.end).await;
            if self.live.is_after(version) {
                // The queue refuses by rules that do not apply any more.
                return ControlFlow::Break(self.replaced());
            }
            // Without a refusal, the callers ahead have only not been answered yet.
            let last = || if in_time { None } else { self.last_refusal(waiter) };
            if let Some(denial) = self.refusal_that_lasts(waiter).or_else(last) {
                return ControlFlow::Break(Waited::Refused(denial));
            }
            if let Some(again) = self.asks_again.take() {
                waiter.is_busy_until(again);
                let released = self.releases.one_before(again);
                // Callers without a turn hear of it when they get one.
                if self.live.unless_after(version, released).await.is_none() {
                    return ControlFlow::Break(self.replaced());
                }
            }
            if !in_time || self.waiter.as_mut().is_some_and(Waiter::enter) {
                // Before the store is asked, so that no release after its decision is missed.
                self.decider.listen(&mut self.releases, self.asks);
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// The denial of another, which holds for longer than the patience of this caller.
    fn refusal_that_lasts(&self, waiter: &Waiter<Refusal>) -> Option<Denial> {
        let cost = |at: usize| self.asks[self.waited_for[at]].cost;
        let lasts = |at: usize, refusal: &Refusal| refusal.holds_for(self.plan(), cost(at), self.end);
        Some(waiter.refusal(|at, refusal| self.patience.is_for_all() && lasts(at, refusal))?.denial)
    }

    /// The latest denial of the queue that it waits in.
    fn last_refusal(&self, waiter: &Waiter<Refusal>) -> Option<Denial> {
        let is_last = |at: usize, refusal: &Refusal| {
            self.patience.is_for_all() && waiter.at() == Some(at) && refusal.is_of(self.plan())
        };
        Some(waiter.refusal(is_last)?.denial)
    }

    /// Asks the store.
    async fn ask(&mut self) -> Admission {
        let deadline = self.deadline();
        let reply = self.decider.acquire(self.asks, Times::ONCE, deadline);
        if let Reply::Later(_) = reply {
            let limits = [deadline, self.decider.engine.store.wait_limit(), Some(self.left())];
            let busy = limits.into_iter().flatten().min().unwrap_or_default();
            // So that those who arrive before the answer find this caller.
            self.join().is_busy_until(timer_now() + busy);
        }
        self.answered(reply).await
    }

    /// What was decided, when the store has answered. Observers see it, unless the caller shows
    /// them the last one itself.
    async fn answered(&self, reply: Reply<Admission, Asking<S>>) -> Admission {
        let admission = reply.wait().await;
        if self.patience.is_for_all() {
            self.decider.show(self.asks, &admission);
        }
        admission
    }

    /// Leaves its queues, whose next callers may ask as far as there is room.
    fn passes(&mut self, verdict: &Verdict) {
        if let Some(waiter) = self.waiter.take() {
            waiter.passed(|at| room(verdict, self.waited_for[at], self.asks[self.waited_for[at]].cost));
        }
    }

    /// Tells its queues of a refusal, and when it asks again; or ends its wait.
    fn waits_after(&mut self, refused: Admission) -> ControlFlow<Waited> {
        let denial = Denial::of(self.decider.report(self.asks, &refused.verdict));
        let left = self.patience.of(&denial).saturating_sub(self.begin.elapsed()).min(self.left());
        let lacking = lacking_slot(&denial);
        let pause = match denial.retry_after() {
            Some(_) if lacking.is_some() => self.releases.pause(lacking).min(left),
            Some(wait) => {
                self.releases.ignore();
                wait
            }
            None if self.waits_out(&denial) => {
                let pause = self.outage_pause.min(left);
                self.outage_pause = LONGEST_OUTAGE_PAUSE.min(2 * self.outage_pause);
                pause
            }
            None => return ControlFlow::Break(self.refused(refused, denial)),
        };
        let leaves = left.is_zero() || passes_after(&denial, left) > left;
        if leaves && self.live.is_after(self.plan().version()) {
            // It was refused by rules that do not apply any more.
            return ControlFlow::Break(self.replaced());
        }
        if !leaves {
            self.join();
            self.asks_again = Some(timer_now() + pause);
        }
        if self.patience.is_for_all() || lacking.is_some() {
            self.tell_queues(&denial, lacking, pause);
        }
        match leaves {
            true => ControlFlow::Break(self.refused(refused, denial)),
            false => ControlFlow::Continue(()),
        }
    }

    /// The end of its wait by a refusal, which callers that wait for slots only show themselves.
    fn refused(&self, refused: Admission, denial: Denial) -> Waited {
        match self.patience.is_for_all() {
            true => Waited::Refused(denial),
            false => Waited::Decided(refused),
        }
    }

    /// Tells those who wait for the same which policies refused, and for how long.
    fn tell_queues(&mut self, denial: &Denial, lacking: Option<usize>, pause: Duration) {
        let AskingCaller { decider, asks, waited_for, waiter, .. } = self;
        let Some(waiter) = waiter else { return };
        let queue = |at: usize| waited_for.iter().position(|waited| *waited == at);
        let now = timer_now();
        let by = Refusal::each(denial, asks, now);
        // The ask that refuses for longest, and has not only to wait for a slot.
        let longest = by.iter().max_by_key(|(at, lasts, _)| (!decider.plan().is_slot(&asks[*at]), *lasts));
        match lacking.or_else(|| Some(longest?.0)).and_then(queue) {
            Some(at) => {
                let by = by.into_iter();
                waiter.refused(at, by.filter_map(|(at, lasts, refusal)| Some((queue(at)?, lasts, refusal))));
            }
            None => waiter.failed(pause, Refusal::of_failure(denial, now + pause.min(YEAR))),
        }
    }

    /// Whether a denial is that of a failure policy, and the caller waits for the store.
    fn waits_out(&self, denial: &Denial) -> bool {
        self.patience.is_for_all()
            && self.decider.engine.waits_for_store
            && denial.reason() == Reason::Unavailable
    }

    /// The end of its wait by these rules. It asks by those that replaced them, from its place.
    fn replaced(&mut self) -> Waited {
        let (begin, arrival, waiter) = (Some(self.begin), Some(self.arrival), self.waiter.take());
        Waited::Replaced(Box::new(Waiting { begin, arrival, waiter }))
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
