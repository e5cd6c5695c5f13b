//! Waiting until a request may pass.

use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tollgate_core::{Algorithm, Key, Reply, Store, Times, Wait};

use crate::denial::Denial;
use crate::limiter::permit::Permit;
use crate::limiter::queue_slot::Place;
use crate::limiter::refusal::Refusal;
use crate::limiter::{Limiter, NeverFails};
use crate::reason::Reason;
use crate::rule::set::{Ask, Asks};
use crate::wait_queue::Waiter;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Waits until a request may pass, and charges it: [`Limiter::check`] for a caller that waits
    /// instead of giving up, such as a job or a client of another API.
    ///
    /// Sleeps for [`Denial::retry_after`] and asks again, and sleeps for the delay of a leaky
    /// bucket. Returns the denial at once if the request cannot pass within `at_most`.
    ///
    /// # Order
    /// Callers that wait for the same keys form a queue, in order of arrival. Only the first asks
    /// again, and a caller that leaves is skipped. In total, callers ask at most three times for
    /// each one that passes, unless other processes, or checks that do not wait, take the units.
    ///
    /// - A caller that finds others waiting joins them without asking. It is refused at once if a
    ///   caller of the same cost, or less, has just been refused for longer than `at_most`.
    ///   Otherwise it waits for its turn until `at_most` is over. In both cases it gets the latest
    ///   denial of a caller in the queue, and observers see no decision.
    /// - Rules that apply together are one queue for each set of keys. Callers whose sets share
    ///   only some keys are not ordered, and neither are the tiers of a rule.
    /// - Over a network, several callers of a queue ask at once while nothing is refused. They may
    ///   pass in another order.
    /// - A queue belongs to a limiter and its clones, in one process. [`Limiter::check`] does not
    ///   wait in it, nor does a request that costs nothing or can never pass.
    ///
    /// # Outages
    /// While the store is unavailable and a failure policy refuses, the caller waits too, unless
    /// [`Limiter::wait_for_store`] says otherwise. The first of a queue asks again after 50 ms, and
    /// then after pauses that grow to a second. A request that the store decided, but whose answer
    /// was lost, stays charged.
    ///
    /// # Observers
    /// Each time a caller asks is a decision that [observers](Limiter::observe) see.
    ///
    /// # Cancellation
    /// If the future is dropped before it is ready, the request may have been charged. A place in a
    /// leaky bucket is returned.
    ///
    /// # Errors
    /// A [`Denial`] with the rules that refuse the request for longer than `at_most`. Also if the
    /// request can never pass or has no key, or if the store is unavailable until `at_most` is
    /// over.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a timer, if there is something to wait for.
    #[doc(alias("wait", "queue", "throttle"))]
    pub async fn until_ready(&self, parts: &Parts, at_most: Duration) -> Result<Permit, Denial> {
        self.admit(self.ask(&parts.into()), Some(at_most)).await
    }

    /// [`Limiter::until_ready`] for `cost` units of each rule, charged to `key` as
    /// [`Limiter::check_key`] does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let calls = Limiter::by_key([Policy::new("calls", Quota::per_second(100).burst(1))]);
    /// let api = Key::from("api.example.com");
    /// for _ in 0..3 {
    ///     // Every 10 ms after the first.
    ///     let _permit = calls.until_key_ready(&api, 1, Duration::from_secs(5)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As those of [`Limiter::until_ready`].
    ///
    /// # Panics
    /// As [`Limiter::until_ready`].
    pub async fn until_key_ready(&self, key: &Key, cost: u32, at_most: Duration) -> Result<Permit, Denial> {
        self.admit(self.asks_for(key, cost), Some(at_most)).await
    }

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
        let end = Instant::now() + at_most.min(YEAR);
        let left = || end.saturating_duration_since(Instant::now());
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
                if let Some(again) = asks_again.filter(|again| *again > Instant::now()) {
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
            let again = Instant::now() + pause;
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
        let fits = |ask: &Ask| ask.cost <= self.rules().policy(ask.policy).largest_cost();
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
        let mut place = Place::new(self, permit);
        sleep(delay).await;
        place.keep().expect("it is kept once").delayed()
    }
}

/// How long the request would wait at least: until each rule allows it, and in the queue of each
/// leaky bucket that refused it, which is full when it accepts the request.
fn passes_after(denial: &Denial, left: Duration) -> Duration {
    let each = denial.report().iter().map(|(policy, status)| match (status.wait(), policy.algorithm()) {
        (Wait::For(wait), Algorithm::LeakyBucket { max_wait }) => wait.saturating_add(max_wait.min(left)),
        (Wait::For(wait), _) => wait,
        _ => Duration::ZERO,
    });
    each.max().unwrap_or_default()
}

/// How many more requests of the same cost would pass now.
fn room(permit: &Permit) -> usize {
    let each = permit.asks.iter().zip(permit.report.statuses());
    let room = each.filter_map(|(ask, status)| status.remaining().checked_div(ask.cost)).min();
    room.map_or(usize::MAX, |room| room as usize)
}

/// The pauses in which the first caller asks a store that is unavailable.
const FIRST_OUTAGE_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_secs(1);

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
