//! The limiter of requests.

use std::time::Duration;

use tollgate_core::{Key, Policy, Store};

use super::decider::Decider;
use super::permit::Permit;
use super::replacement::Successors;
use crate::denial::Denial;
use crate::extract::Head;
use crate::memory::MemoryStore;
use crate::never_fails::NeverFails;
use crate::observe::Decision;
use crate::plan::{Asks, Plan};
use crate::report::Report;
use crate::rule::IntoRules;
use crate::setup_error::{SetupError, or_panic};

/// Asks rules directly, with the head of a request: for handlers that decide themselves. A
/// [`RateLimitLayer`](crate::RateLimitLayer) is one with a service around it.
///
/// A layer and a limiter made from each other
/// ([`RateLimitLayer::limiter`](crate::RateLimitLayer::limiter)) share their rules and their state.
/// A [`Limiter`](crate::Limiter) takes keys instead of requests.
///
/// ```
/// use http::Request;
/// use tollgate::extract::header;
/// use tollgate::{Head, Policy, PolicyExt, Quota, RequestLimiter};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
/// let limiter = RequestLimiter::new([Policy::new("mails", Quota::per_day(2)).by(header("x-user"))]);
/// let request = Request::post("/mails").header("x-user", "ada").body("Dear Ada").unwrap();
///
/// let _permit = limiter.check(&Head::from(&request)).await?;
/// let report = limiter.look(&Head::from(&request)).await?;
/// assert_eq!(report.get("mails").unwrap().1.remaining(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RequestLimiter<S = MemoryStore> {
    pub(crate) decider: Decider<S>,
    /// Those who wait follow them.
    pub(crate) successors: Successors<RequestLimiter<S>>,
}

impl RequestLimiter {
    /// Enforces one rule, or decides several together, on a [`MemoryStore`] of their own.
    ///
    /// # Panics
    /// If [`RequestLimiter::try_new`] would return an error.
    #[track_caller]
    pub fn new(rules: impl IntoRules) -> RequestLimiter {
        or_panic(RequestLimiter::try_new(rules))
    }

    /// [`RequestLimiter::new`] for rules that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError`] if there are none, or if two have one name.
    pub fn try_new(rules: impl IntoRules) -> Result<RequestLimiter, SetupError> {
        Ok(RequestLimiter { decider: Decider::new(Plan::try_new(rules)?), successors: Successors::none() })
    }
}

impl<S> RequestLimiter<S> {
    /// Sets the store. A store that can fail needs a [failure policy](crate::failure) first.
    ///
    /// # Panics
    /// If [`RequestLimiter::try_store`] would return an error.
    #[track_caller]
    pub fn store<T>(self, store: T) -> RequestLimiter<T>
    where
        T: Store,
        T::Error: NeverFails,
    {
        or_panic(self.try_store(store))
    }

    /// [`RequestLimiter::store`] for rules or stores that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError::Unsupported`] if the store cannot enforce a policy, such as a
    /// [fallback](crate::StoreExt::fall_back_to) whose share of it is less than one unit.
    pub fn try_store<T>(self, store: T) -> Result<RequestLimiter<T>, SetupError>
    where
        T: Store,
        T::Error: NeverFails,
    {
        Ok(RequestLimiter { decider: self.decider.try_store(store)?, successors: Successors::none() })
    }

    /// A limiter with other rules, on the same state.
    pub(crate) fn replaced(&self, rules: impl IntoRules) -> Result<RequestLimiter<S>, SetupError>
    where
        S: Store,
        S::Error: NeverFails,
    {
        let decider = self.decider.replaced(Plan::try_new(rules)?)?;
        Ok(RequestLimiter { decider, successors: Successors::none() })
    }

    /// Calls `observe` for each decision: [`RateLimitLayer::observe`] says more.
    ///
    /// [`RateLimitLayer::observe`]: crate::RateLimitLayer::observe
    #[must_use]
    pub fn observe(self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> RequestLimiter<S> {
        let (decider, successors) = (self.decider.observe(observe), self.successors.with_own_settings());
        RequestLimiter { decider, successors }
    }

    /// Counts decisions and units as metrics: [`RateLimitLayer::metrics`] says more.
    ///
    /// [`RateLimitLayer::metrics`]: crate::RateLimitLayer::metrics
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    #[must_use]
    pub fn metrics(self) -> RequestLimiter<S> {
        let (decider, successors) = (self.decider.metrics(), self.successors.with_own_settings());
        RequestLimiter { decider, successors }
    }

    /// Sets whether callers of [`until_ready`](RequestLimiter::until_ready) also wait while the
    /// store is unavailable: [`Limiter::wait_for_store`](crate::Limiter::wait_for_store) says more.
    #[must_use]
    pub fn wait_for_store(self, wait: bool) -> RequestLimiter<S>
    where
        S: Clone,
    {
        let (decider, successors) = (self.decider.wait_for_store(wait), self.successors.with_own_settings());
        RequestLimiter { decider, successors }
    }

    /// Returns the policies that together hold all states of a key: one for each window of a rule
    /// and its tiers. To sum what a key used [recently](crate::usage::RecentUsage), or to list what
    /// a [reset](RequestLimiter::reset) forgets.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        let plan = &self.decider.plan;
        plan.with_states(false).chain(plan.with_states(true))
    }
}

impl<S> RequestLimiter<S>
where
    S: Store,
    S::Error: NeverFails,
{
    /// The permit of a request that passes. Asks the rules in shadow, and its slots end when their
    /// rules say so.
    pub(super) fn passed(&self, head: &Head<'_>, permit: Permit) -> Permit {
        self.decider.after_grant(head);
        permit.slot().end_in_time();
        permit
    }

    /// What a request asks of each rule that applies to it.
    pub(crate) fn asks(&self, head: &Head<'_>) -> Result<Asks, Denial> {
        let supports = |policy: &Policy| self.decider.engine.store.supports(policy).is_ok();
        self.decider.plan.ask(head, supports).map_err(|(rule, reason)| self.decider.no_key(rule, reason))
    }

    /// Charges a request to all rules that apply to it, or to none. If the future is dropped before
    /// it is ready, the request may have been charged.
    ///
    /// # Errors
    /// A [`Denial`] with the rules that refused, and how long they do.
    pub async fn check(&self, head: &Head<'_>) -> Result<Permit, Denial> {
        self.ask_in_turn(head, None).await
    }

    /// Returns the state of the rules that apply to a request. Charges nothing.
    ///
    /// # Errors
    /// A [`Denial`] if a rule finds no key and refuses such requests.
    #[doc(alias("peek", "dry_run"))]
    pub async fn look(&self, head: &Head<'_>) -> Result<Report, Denial> {
        Ok(self.decider.look(&self.asks(head)?).await)
    }

    /// Waits until a request may pass, and charges it: see
    /// [`Limiter::until_ready`](crate::Limiter::until_ready), also for errors and panics. If the
    /// rules of its layer are replaced meanwhile, it goes on to wait by the new ones.
    pub async fn until_ready(&self, head: &Head<'_>, at_most: Duration) -> Result<Permit, Denial> {
        self.ask_in_turn(head, Some(at_most)).await
    }

    /// Releases the slots that requests of this process hold: see
    /// [`Limiter::give_back`](crate::Limiter::give_back).
    pub async fn give_back(&self) {
        self.decider.give_back().await;
    }

    /// Forgets what `key` has used of every rule, in all of its tiers. Do not
    /// [refund](Permit::refund) a permit from before: that would return what others were
    /// charged since.
    ///
    /// The empty key belongs to no caller, and this does nothing for it. With
    /// [`MissingKey::OneKey`](crate::MissingKey::OneKey), requests without a key share the state of
    /// [`Key::global`]: reset that.
    pub async fn reset(&self, key: &Key) {
        self.decider.reset(key).await;
    }
}
