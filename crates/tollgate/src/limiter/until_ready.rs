//! Waiting until a request may pass.

use std::time::Duration;

use tokio::time::{sleep, sleep_until, timeout_at};
use tollgate_core::{Reply, Store, Times, Wait};

use super::decider::Decider;
use super::never_fails::NeverFails;
use super::permit::Permit;
use super::queue_slot::QueueSlot;
use super::refusal::Refusal;
use super::wait_queue::Waiter;
use crate::denial::Denial;
use crate::policy_set::{Ask, Asks};
use crate::reason::Reason;
use crate::time::timer_now;

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Charges what is asked, and waits for the delay of a leaky bucket. With `at_most`, also until
    /// the rules allow it.
    pub(crate) async fn admit(
        &self,
        asks: Result<Asks, Denial>,
        at_most: Option<Duration>,
    ) -> Result<Permit, Denial> {
        let asks = self.shown(asks)?;
        let permit = match at_most {
            Some(at_most) => self.charge_in_turn(asks, at_most).await?,
            None => self.charge(asks, None).await?,
        };
        Ok(self.after_delay(permit).await)
    }

    /// Asks until the rules allow it, in the queue of callers that wait for the same.
    async fn charge_in_turn(&self, asks: Asks, at_most: Duration) -> Result<Permit, Denial> {
        if !self.may_have_to_wait(&asks) {
            return self.charge(asks, Some(at_most)).await;
        }
        // As long as the timer can sleep.
        let end = timer_now() + at_most.min(YEAR);
        let left = || end.saturating_duration_since(timer_now());
        let set = || asks.iter().map(|ask| (ask.policy, &ask.key));
        let mut waiter = self.queues.join_others(set());
        let holds = |refusal: &Refusal| refusal.holds_for(&asks, end);
        if let Some(refusal) = waiter.as_ref().and_then(Waiter::refusal).filter(holds) {
            return Err(refusal.denial);
        }
        let (mut asks_again, mut outage_pause) = (None, FIRST_OUTAGE_PAUSE);
        loop {
            if let Some(waiter) = &waiter {
                let in_time =
                    waiter.has_turn() || (timeout_at(end, waiter.turn()).await.is_ok() && !left().is_zero());
                // Without a refusal, the callers ahead have only not been answered yet.
                if let Some(refusal) = waiter.refusal().filter(|refusal| !in_time || holds(refusal)) {
                    return Err(refusal.denial);
                }
                if let Some(again) = asks_again.filter(|again| *again > timer_now()) {
                    sleep_until(again).await;
                }
            }
            let reply = self.acquire(&asks, Times::ONCE, Some(left()));
            if let Reply::Later(_) = reply {
                // Those who arrive before the answer come after this caller.
                waiter.get_or_insert_with(|| self.queues.join(set()));
            }
            let denial = match self.decided(asks.clone(), reply).await {
                Ok(permit) => {
                    if let Some(waiter) = waiter {
                        waiter.passed(room(&permit));
                    }
                    return Ok(permit);
                }
                Err(denial) => denial,
            };
            let pause = match denial.retry_after() {
                Some(wait) => wait,
                None if self.waits_out(&denial) => {
                    let pause = outage_pause.min(left());
                    outage_pause = LONGEST_OUTAGE_PAUSE.min(2 * outage_pause);
                    pause
                }
                None => return Err(denial),
            };
            let again = timer_now() + pause;
            let leaves = left().is_zero() || passes_after(&denial, left()) > left();
            if !leaves {
                waiter.get_or_insert_with(|| self.queues.join(set()));
                asks_again = Some(again);
            }
            if let Some(waiter) = &waiter {
                waiter.refused(Refusal::new(denial.clone(), &asks, again));
            }
            if leaves {
                return Err(denial);
            }
        }
    }

    /// Whether another answer is possible later. A cost of 0 passes now, and one that exceeds a
    /// quota never does.
    fn may_have_to_wait(&self, asks: &Asks) -> bool {
        let fits = |ask: &Ask| ask.cost <= self.policies.policy(ask.policy).largest_cost();
        asks.iter().any(|ask| ask.cost > 0) && asks.iter().all(fits)
    }

    /// Whether a denial is that of a failure policy, and the caller waits for the store.
    fn waits_out(&self, denial: &Denial) -> bool {
        self.waits_for_store && denial.reason() == Reason::Unavailable
    }

    /// Waits for the slot that a leaky bucket reserved.
    async fn after_delay(&self, permit: Permit) -> Permit {
        let delay = permit.delay();
        if delay.is_zero() {
            return permit;
        }
        let mut slot = QueueSlot::new(self, permit);
        sleep(delay).await;
        slot.keep().expect("it is kept once").delayed()
    }
}

/// How long the request would wait at least: until each rule allows it, and in the queue of each
/// leaky bucket that refused it, which is full when it accepts the request.
fn passes_after(denial: &Denial, left: Duration) -> Duration {
    let each = denial.report().iter().map(|(policy, status)| match status.wait() {
        Wait::For(wait) => wait.saturating_add(policy.longest_wait().min(left)),
        _ => Duration::ZERO,
    });
    each.max().unwrap_or_default()
}

/// How many more requests of the same cost would pass now.
fn room(permit: &Permit) -> usize {
    let each = permit.asks.iter().zip(permit.report.statuses());
    let room = each.filter_map(|(ask, status)| status.remaining().checked_div(ask.cost)).min();
    room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX)
}

/// The pauses in which the first caller asks a store that is unavailable.
const FIRST_OUTAGE_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_secs(1);

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
