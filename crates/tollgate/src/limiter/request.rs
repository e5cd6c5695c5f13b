//! The limiter of requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Key, Policy, Store};

use super::changes::RuleChanges;
use super::decider::Decider;
use super::live::Live;
use super::permit::Permit;
use crate::decision::observe::Decision;
use crate::decision::{Denial, Report};
use crate::errors::{SetupError, or_panic};
use crate::extract::Head;
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rule::IntoRules;
use crate::store::NeverFails;

/// Asks rules directly, with the head of a request: for handlers that decide themselves. A
/// [`RateLimitLayer`](crate::RateLimitLayer) is one with a service around it.
///
/// Clones share their rules, also when these are [replaced](RequestLimiter::replace), and so do a
/// layer and [its limiter](crate::RateLimitLayer::limiter). A limiter that is changed otherwise, as
/// by [`observe`](RequestLimiter::observe), has its own from then on, on the same state. A
/// [`Limiter`](crate::Limiter) takes keys instead of requests.
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
    pub(crate) live: Arc<Live<S>>,
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
        Ok(RequestLimiter { live: Live::new(Decider::new(Plan::try_new(rules)?)) })
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
    /// [`SetupError::Unsupported`] if the store cannot enforce a policy: it may not know the
    /// algorithm.
    pub fn try_store<T>(self, store: T) -> Result<RequestLimiter<T>, SetupError>
    where
        T: Store,
        T::Error: NeverFails,
    {
        Ok(RequestLimiter { live: Live::new(self.live.load().try_store(store)?) })
    }

    /// Calls `observe` for each decision: [`RateLimitLayer::observe`] says more.
    ///
    /// [`RateLimitLayer::observe`]: crate::RateLimitLayer::observe
    #[must_use]
    pub fn observe(self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> RequestLimiter<S> {
        RequestLimiter { live: Live::new(self.live.load().observe(observe)) }
    }

    /// Counts decisions and units as metrics: [`RateLimitLayer::metrics`] says more.
    ///
    /// [`RateLimitLayer::metrics`]: crate::RateLimitLayer::metrics
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    #[must_use]
    pub fn metrics(self) -> RequestLimiter<S> {
        RequestLimiter { live: Live::new(self.live.load().metrics()) }
    }

    /// Sets whether callers of [`until_ready`](RequestLimiter::until_ready) also wait while the
    /// store is unavailable: [`Limiter::wait_for_store`](crate::Limiter::wait_for_store) says more.
    #[must_use]
    pub fn wait_for_store(self, wait: bool) -> RequestLimiter<S>
    where
        S: Clone,
    {
        RequestLimiter { live: Live::new(self.live.load().wait_for_store(wait)) }
    }

    /// Returns the policies that together hold all states of a key: one for each window of a rule
    /// and its tiers. To sum what a key used [recently](crate::usage::RecentUsage), or to list what
    /// a [reset](RequestLimiter::reset) forgets.
    pub fn policies(&self) -> Vec<Policy> {
        let decider = self.live.load();
        let of = |in_shadow| decider.plan().with_states(in_shadow).cloned();
        of(false).chain(of(true)).collect()
    }
}

impl<S> RequestLimiter<S>
where
    S: Store,
    S::Error: NeverFails,
{
    /// The permit of a request that passes. Asks the rules in shadow.
    async fn permit(&self, head: &Head<'_>, at_most: Option<Duration>) -> Result<Permit, Denial> {
        let asks = |decider: &Decider<S>| Ok(decider.asks_of(head));
        let Ok(decided) = self.live.permit::<Infallible>(asks, at_most).await;
        let (decider, permit) = decided?;
        decider.after_grant(head);
        Ok(permit)
    }

    /// Charges a request to all rules that apply to it, or to none. If the future is dropped before
    /// it is ready, the request may have been charged.
    ///
    /// # Errors
    /// A [`Denial`] with the rules that refused, and how long they do.
    pub async fn check(&self, head: &Head<'_>) -> Result<Permit, Denial> {
        self.permit(head, None).await
    }

    /// Returns the state of the rules that apply to a request. Charges nothing.
    ///
    /// # Errors
    /// A [`Denial`] if a rule finds no key and refuses such requests.
    #[doc(alias("peek", "dry_run"))]
    pub async fn look(&self, head: &Head<'_>) -> Result<Report, Denial> {
        let decider = self.live.load_full();
        Ok(decider.look(&decider.asks_of(head)?, None).await)
    }

    /// Waits until a request may pass, and charges it: see
    /// [`Limiter::until_ready`](crate::Limiter::until_ready), also for errors and panics. If the
    /// rules of its layer are replaced meanwhile, it goes on to wait by the new ones.
    pub async fn until_ready(&self, head: &Head<'_>, at_most: Duration) -> Result<Permit, Denial> {
        self.permit(head, Some(at_most)).await
    }

    /// Replaces the rules of this limiter and of its clones, and of the layer that it belongs to:
    /// see [`RateLimitLayer::replace`](crate::RateLimitLayer::replace).
    ///
    /// # Errors
    /// The errors of [`RequestLimiter::try_new`] and [`RequestLimiter::try_store`]. The rules stay
    /// as they are then.
    pub fn replace(&self, rules: impl IntoRules) -> Result<RuleChanges, SetupError> {
        self.live.replace(rules)
    }

    /// Returns the version of the rules: 1 at first, and one more with each
    /// [replacement](RequestLimiter::replace) and each [switch](RequestLimiter::set_enabled).
    pub fn version(&self) -> u64 {
        self.live.version()
    }

    /// Switches the rules of this limiter and of its clones off or on. While they are off, all
    /// requests pass, and nothing is charged: [`RateLimitLayer::set_enabled`] says more.
    ///
    /// [`RateLimitLayer::set_enabled`]: crate::RateLimitLayer::set_enabled
    pub fn set_enabled(&self, enabled: bool) {
        self.live.set_enabled(enabled);
    }

    /// Returns whether the rules are [switched on](RequestLimiter::set_enabled), as they are at
    /// first.
    pub fn is_enabled(&self) -> bool {
        self.live.is_enabled()
    }

    /// Forgets what `key` has used of every rule, in all of its tiers. Do not
    /// [refund](Permit::refund) a permit from before: that would return what others were
    /// charged since. While the store fails, nothing is forgotten.
    ///
    /// The empty key belongs to no caller, and this does nothing for it. With
    /// [`MissingKey::OneKey`](crate::MissingKey::OneKey), requests without a key share the state of
    /// [`Key::global`]: reset that.
    pub async fn reset(&self, key: &Key) {
        self.live.load_full().reset(key).await;
    }
}
