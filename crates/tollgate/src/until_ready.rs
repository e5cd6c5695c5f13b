//! Waiting until a request may pass.

use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep};
use tollgate_core::{Algorithm, Key, Store, Wait};

use crate::denial::Denial;
use crate::limiter::{Limiter, NeverFails};
use crate::permit::Permit;
use crate::place::Place;
use crate::rules::Asks;

impl<S: Store<Error: NeverFails>> Limiter<S> {
    /// Waits until a request may pass, and charges it: [`Limiter::check`] for a caller that waits
    /// instead of giving up, such as a job or a client of another API.
    ///
    /// Sleeps for [`Denial::retry_after`] and asks again, and sleeps for the delay of a leaky
    /// bucket. Returns the denial at once if the request cannot pass within `at_most`. If other
    /// callers take the units meanwhile, it may be denied after a wait. Each time it asks is a
    /// decision that [observers](Limiter::observe) see.
    ///
    /// Many callers that wait for one key are not a queue: each asks again when the first may pass,
    /// and one of them does. A [`LeakyBucket`](crate::Algorithm::LeakyBucket) gives each caller its
    /// place, and asks once.
    ///
    /// If the future is dropped before it is ready, the request may have been charged. A place in a
    /// leaky bucket is returned.
    ///
    /// # Errors
    /// A [`Denial`] with the rules that refuse the request for longer than `at_most`. Also if the
    /// request can never pass or has no key, or if a failure policy refuses it.
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
        // As long as the timer can sleep.
        let end = at_most.map(|at_most| Instant::now() + at_most.min(YEAR));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let denial = match self.charge(asks.clone(), left).await {
                Ok(permit) => return Ok(self.after_delay(permit).await),
                Err(denial) => denial,
            };
            match (denial.retry_after(), left) {
                (Some(wait), Some(left)) if passes_after(&denial, left) <= left => sleep(wait).await,
                _ => return Err(denial),
            }
        }
    }

    /// Waits for the slot that a leaky bucket reserved.
    async fn after_delay(&self, permit: Permit) -> Permit {
        let delay = permit.delay();
        if delay.is_zero() {
            return permit;
        }
        let mut place = Place::new(self.clone(), permit);
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

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
