//! The same decisions without a Tower service around them: by key, and by the head of a request.

mod admit;
pub(crate) mod asking;
mod asks;
mod blocks;
pub(crate) mod changes;
mod charges;
mod claim;
mod close;
mod credit;
mod debit;
pub(crate) mod decider;
pub(crate) mod engine;
mod in_turn;
pub(crate) mod live;
mod made_per_request;
mod next_window;
mod now;
mod patience;
mod permit;
mod question;
pub(crate) mod queue_place;
mod refusal;
mod request;
mod shadow;
mod turn;
mod wait_queue;
pub(crate) mod waiting;
pub(crate) mod waiting_call;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Store};

use self::changes::RuleChanges;
use self::decider::Decider;
use self::live::Live;
use crate::decision::observe::Decision;
use crate::decision::{Denial, Report};
use crate::errors::{SetupError, or_panic};
use crate::extract::global;
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rule::{PolicyExt, Rule};
use crate::store::NeverFails;

pub use self::permit::Permit;
pub use self::question::Question;
pub use self::request::RequestLimiter;

/// Asks policies directly, with keys that code has: for WebSocket messages, jobs, log-ins, and keys
/// from a body. A [`RequestLimiter`] finds keys in requests, as a layer does.
///
/// All policies are charged to the key, or none. To count with an extractor, pass the key that the
/// extractor makes: [`Key::network`] for an address (with 64 for IPv6), [`Key::of_branch`] 0 or 1
/// for `a.or(b)`, [`Key::join`] for `(a, b)`. With a policy of the same name and window, on the
/// same [store](Limiter::store), a limiter and a layer share their state.
///
/// ```
/// use tollgate::{Key, Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
/// let mails = Limiter::new([Policy::new("mails", Quota::per_day(2))]);
/// let user = Key::from("ada");
///
/// assert!(mails.check(&user, 1).await.is_ok());
/// assert_eq!(mails.look(&user).await?.statuses()[0].remaining(), 1);
/// let denial = mails.check(&user, 2).await.unwrap_err();
/// assert_eq!(denial.violated().collect::<Vec<_>>(), ["mails"]);
/// # Ok(())
/// # }
/// ```
///
/// Clones share their policies, also when these are [replaced](Limiter::replace). A limiter that is
/// changed otherwise, as by [`observe`](Limiter::observe), has its own from then on.
#[derive(Clone, Debug)]
pub struct Limiter<S = MemoryStore> {
    pub(crate) live: Arc<Live<S>>,
}

impl Limiter {
    /// Decides these policies together, on a [`MemoryStore`] of their own.
    ///
    /// # Panics
    /// If [`Limiter::try_new`] would return an error.
    #[track_caller]
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Limiter {
        or_panic(Limiter::try_new(policies))
    }

    /// [`Limiter::new`] for policies that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError`] if there are none, or if two have one name.
    pub fn try_new(policies: impl IntoIterator<Item = Policy>) -> Result<Limiter, SetupError> {
        Ok(Limiter { live: Live::new(Decider::new(Plan::try_new(rules_of(policies))?)) })
    }
}

impl<S> Limiter<S> {
    /// Sets the store. A store that can fail needs a [failure policy](crate::failure) first.
    ///
    /// # Panics
    /// If [`Limiter::try_store`] would return an error.
    #[track_caller]
    pub fn store<T>(self, store: T) -> Limiter<T>
    where
        T: Store,
        T::Error: NeverFails,
    {
        or_panic(self.try_store(store))
    }

    /// [`Limiter::store`] for policies or stores that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::Unsupported`] if the store cannot enforce a policy: it may not know the
    /// algorithm.
    pub fn try_store<T>(self, store: T) -> Result<Limiter<T>, SetupError>
    where
        T: Store,
        T::Error: NeverFails,
    {
        Ok(Limiter { live: Live::new(self.live.load().try_store(store)?) })
    }

    /// Calls `observe` for each decision: [`RateLimitLayer::observe`] says more.
    ///
    /// [`RateLimitLayer::observe`]: crate::RateLimitLayer::observe
    #[must_use]
    pub fn observe(self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> Limiter<S> {
        Limiter { live: Live::new(self.live.load().observe(observe)) }
    }

    /// Counts decisions and units as metrics: [`RateLimitLayer::metrics`] says more.
    ///
    /// [`RateLimitLayer::metrics`]: crate::RateLimitLayer::metrics
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    #[must_use]
    pub fn metrics(self) -> Limiter<S> {
        Limiter { live: Live::new(self.live.load().metrics()) }
    }

    /// Sets whether callers that wait, by [`until_ready`](Limiter::until_ready) or a
    /// [`CallLimitLayer`](crate::calls::CallLimitLayer::wait_at_most), also wait while the store is
    /// unavailable; `true` by default. With `false`, they get the denial of the failure policy at
    /// once. Clones from before do not wait in the same queues.
    #[must_use]
    pub fn wait_for_store(self, wait: bool) -> Limiter<S>
    where
        S: Clone,
    {
        Limiter { live: Live::new(self.live.load().wait_for_store(wait)) }
    }
}

impl<S> Limiter<S>
where
    S: Store,
    S::Error: NeverFails,
{
    /// Charges `cost` units of each policy to `key`, all or none. If the future is dropped before
    /// it is ready, the units may have been charged.
    ///
    /// # Errors
    /// A [`Denial`] with the policies that refused, and how long they do. An empty key is refused
    /// with [`Reason::NoKey`](crate::Reason::NoKey), status 400.
    pub async fn check(&self, key: &Key, cost: u64) -> Result<Permit, Denial> {
        let asks = |decider: &Decider<S>| Ok(decider.asks(Some(key), cost));
        let Ok(decided) = self.live.permit::<Infallible>(asks, None).await;
        decided.map(|(_, permit)| permit)
    }

    /// Charges each of these policies its own cost to its own key, all or none: [`Limiter::check`]
    /// for limits of different callers, or in different units. Policies that are left out are not
    /// asked.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let limits = Limiter::new([
    ///     Policy::new("requests", Quota::per_minute(60)),
    ///     Policy::new("tokens", Quota::per_minute(100_000)),
    /// ]);
    /// let (user, tenant) = (Key::from("ada"), Key::from("acme"));
    ///
    /// let permit = limits.check_each(&[("requests", &user, 1), ("tokens", &tenant, 1_500)]).await?;
    /// assert_eq!(permit.report().get("tokens").unwrap().1.remaining(), 98_500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A [`Denial`] with the policies that refused, and how long they do. An empty key is refused
    /// with [`Reason::NoKey`](crate::Reason::NoKey), status 400.
    ///
    /// # Panics
    /// If [`Limiter::try_check_each`] would return an error.
    pub async fn check_each<'a, Q>(&self, each: &[Q]) -> Result<Permit, Denial>
    where
        Q: Into<Question<'a>> + Copy,
    {
        or_panic(self.try_check_each(each).await)
    }

    /// [`Limiter::check_each`] for names that are known only at run time, such as those of a file.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`] if the limiter has no policy of such a name,
    /// [`SetupError::AskedTwice`] if one is named twice, and [`SetupError::QuotaNotAllowed`] of a
    /// [limit](Question::limit). Nothing is charged then.
    pub async fn try_check_each<'a, Q>(&self, each: &[Q]) -> Result<Result<Permit, Denial>, SetupError>
    where
        Q: Into<Question<'a>> + Copy,
    {
        let each = questions(each);
        let decided = self.live.permit(|decider| decider.asks_of_each(&each), None).await?;
        Ok(decided.map(|(_, permit)| permit))
    }

    /// Returns the state of each policy for `key`. Charges nothing.
    ///
    /// # Errors
    /// A [`Denial`] if the key is empty.
    #[doc(alias("peek", "dry_run"))]
    pub async fn look(&self, key: &Key) -> Result<Report, Denial> {
        let decider = self.live.load_full();
        Ok(decider.look(&decider.asks(Some(key), 1)?, None).await)
    }

    /// Returns the state of each of these policies for its own key. Charges nothing.
    ///
    /// # Errors
    /// A [`Denial`] if a key is empty.
    ///
    /// # Panics
    /// If [`Limiter::try_look_each`] would return an error.
    pub async fn look_each<'a, Q>(&self, each: &[Q]) -> Result<Report, Denial>
    where
        Q: Into<Question<'a>> + Copy,
    {
        or_panic(self.try_look_each(each).await)
    }

    /// [`Limiter::look_each`] for names that are known only at run time.
    ///
    /// # Errors
    /// Those of [`Limiter::try_check_each`].
    pub async fn try_look_each<'a, Q>(&self, each: &[Q]) -> Result<Result<Report, Denial>, SetupError>
    where
        Q: Into<Question<'a>> + Copy,
    {
        let decider = self.live.load_full();
        Ok(match decider.asks_of_each(&questions(each))? {
            Ok(asks) => Ok(decider.look(&asks, None).await),
            Err(denial) => Err(denial),
        })
    }

    /// Waits until `cost` units of each policy may be charged to `key`, and charges them:
    /// [`Limiter::check`] for a caller that waits instead of giving up, such as a job or a client
    /// of another API.
    ///
    /// Sleeps for [`Denial::retry_after`] and asks again, and sleeps for the delay of a leaky
    /// bucket. For a [slot](crate::Slot) it asks again at each release of this process, and every
    /// 200 ms. Returns the denial at once if the request cannot pass within `at_most`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
    /// let calls = Limiter::new([Policy::new("calls", Quota::per_second(100).burst(1))]);
    /// let api = Key::from("api.example.com");
    /// for _ in 0..3 {
    ///     // Every 10 ms after the first.
    ///     let _permit = calls.until_ready(&api, 1, Duration::from_secs(5)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Order
    /// Callers that wait for the same key of a policy form a queue, in order of arrival. A caller
    /// waits in the queue of the policy that refuses it; if several do, of the one that refuses for
    /// longest. Only the first of a queue asks again, and a caller that leaves is skipped.
    ///
    /// With n policies, callers ask on average at most 2 + n times for each one that passes, unless
    /// other processes, or checks that do not wait, take the units.
    ///
    /// - A caller that finds others waiting joins them without asking. It is refused at once if a
    ///   caller of the same cost, or less, has just been refused for longer than `at_most`.
    ///   Otherwise it waits for its turn until `at_most` is over. In both cases it gets the latest
    ///   denial of its queue, by that policy alone, and observers see no decision.
    /// - A caller has the place of its arrival in every queue. What it waited for in a slow queue
    ///   is kept for it while it waits in a faster one. It does not hold up a faster queue while it
    ///   waits in a slower one: a thousand used-up tenants do not hold up one that is not.
    /// - A large cost holds up smaller ones behind it, for as long as it waits.
    /// - A caller whose task is not polled loses its turn after a second or two: its runtime is not
    ///   driven, or another future holds up its task. It keeps the place of its arrival, and asks
    ///   once it is polled.
    /// - Under a [`RequestLimiter`], each tier of a rule has queues of its own.
    /// - Over a network, several callers of a queue ask at once while nothing is refused. They may
    ///   pass in another order.
    /// - A queue belongs to a limiter and its clones, in one process. [`Limiter::check`] does not
    ///   wait in it, nor does a request that costs nothing or can never pass.
    ///
    /// # Delays
    /// A leaky bucket gives no place that is further ahead than the first three digits of what is
    /// left of `at_most`: of 1,239 ms, no more than 1,230.
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
    /// A [`Denial`] with the policies that refuse the request for longer than `at_most`. Also if
    /// the request can never pass, if its key is empty, or if the store is unavailable until
    /// `at_most` is over.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a timer, if there is something to wait for.
    #[doc(alias("wait", "queue", "throttle"))]
    pub async fn until_ready(&self, key: &Key, cost: u64, at_most: Duration) -> Result<Permit, Denial> {
        let asks = |decider: &Decider<S>| Ok(decider.asks(Some(key), cost));
        let Ok(decided) = self.live.permit::<Infallible>(asks, Some(at_most)).await;
        decided.map(|(_, permit)| permit)
    }

    /// [`Limiter::until_ready`] with a key and a cost for each policy, as in
    /// [`Limiter::check_each`], also for errors and panics.
    pub async fn until_ready_each<'a, Q>(&self, each: &[Q], at_most: Duration) -> Result<Permit, Denial>
    where
        Q: Into<Question<'a>> + Copy,
    {
        or_panic(self.try_until_ready_each(each, at_most).await)
    }

    /// [`Limiter::until_ready_each`] for names that are known only at run time.
    ///
    /// # Errors
    /// Those of [`Limiter::try_check_each`].
    pub async fn try_until_ready_each<'a, Q>(
        &self,
        each: &[Q],
        at_most: Duration,
    ) -> Result<Result<Permit, Denial>, SetupError>
    where
        Q: Into<Question<'a>> + Copy,
    {
        let each = questions(each);
        let decided = self.live.permit(|decider| decider.asks_of_each(&each), Some(at_most)).await?;
        Ok(decided.map(|(_, permit)| permit))
    }

    /// Replaces the policies of this limiter and of its clones:
    /// [`RateLimitLayer::replace`](crate::RateLimitLayer::replace) says what becomes of keys in
    /// use. A caller that waits for a policy by its name gets [`SetupError::UnknownPolicy`] if it
    /// is gone.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let (mails, user) = (Limiter::new([Policy::new("mails", Quota::per_day(2))]), Key::from("ada"));
    /// assert!(mails.check(&user, 2).await.is_ok());
    ///
    /// mails.replace([Policy::new("mails", Quota::per_day(24))]).unwrap();
    /// let denial = mails.check(&user, 1).await.unwrap_err();
    /// assert_eq!(denial.retry_after_seconds(), Some(3_600), "it refills 12 times as fast");
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Limiter::try_new`] and [`Limiter::try_store`]. The policies stay as they are
    /// then.
    pub fn replace(&self, policies: impl IntoIterator<Item = Policy>) -> Result<RuleChanges, SetupError> {
        self.live.replace(rules_of(policies))
    }

    /// Returns the version of the policies: 1 at first, and one more with each
    /// [replacement](Limiter::replace) and each [switch](Limiter::set_enabled).
    pub fn version(&self) -> u64 {
        self.live.version()
    }

    /// Switches the policies of this limiter and of its clones off or on. While they are off, all
    /// requests pass, and nothing is charged but what is [debited](Limiter::debit):
    /// [`RateLimitLayer::set_enabled`] says more.
    ///
    /// [`RateLimitLayer::set_enabled`]: crate::RateLimitLayer::set_enabled
    pub fn set_enabled(&self, enabled: bool) {
        self.live.set_enabled(enabled);
    }

    /// Returns whether the policies are [switched on](Limiter::set_enabled), as they are at first.
    pub fn is_enabled(&self) -> bool {
        self.live.is_enabled()
    }

    /// Forgets what `key` has used of every policy. Requests that hold a [slot](crate::Slot) go on,
    /// and as many others may start. Do not [refund](Permit::refund) a permit from
    /// before: that would return what others were charged since. While the store fails, nothing is
    /// forgotten.
    ///
    /// The empty key belongs to no caller, and this does nothing for it.
    pub async fn reset(&self, key: &Key) {
        self.live.load_full().reset(key).await;
    }
}

/// Rules of which no request is asked for a key.
fn rules_of(policies: impl IntoIterator<Item = Policy>) -> Vec<Rule> {
    policies.into_iter().map(|policy| policy.by(global())).collect()
}

fn questions<'a, Q: Into<Question<'a>> + Copy>(each: &[Q]) -> SmallVec<[Question<'a>; 4]> {
    each.iter().map(|question| (*question).into()).collect()
}
