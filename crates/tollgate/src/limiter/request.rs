//! The limiter of requests.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Key, Policy, Store};

use super::decider::Decider;
use super::permit::Permit;
use super::replacement::Successors;
use super::shadow::{ShadowRules, store_for};
use crate::charge::{Charge, ResponseHead, Settler};
use crate::denial::Denial;
use crate::extract::Head;
use crate::in_flight::HeldUntilDropped;
use crate::memory::MemoryStore;
use crate::never_fails::NeverFails;
use crate::observe::Decision;
use crate::policy_set::Asks;
use crate::report::Report;
use crate::rule::IntoRules;
use crate::rule::set::RuleSet;
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
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) decider: Decider<S>,
    pub(crate) shadow: ShadowRules<S>,
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
        let [(rules, policies), (in_shadow, of_shadow)] = RuleSet::try_both(rules)?;
        let store = MemoryStore::new();
        let store_of_shadow = store_for(&in_shadow, &store);
        Ok(RequestLimiter {
            rules: Arc::new(rules),
            decider: Decider::new(policies, store),
            shadow: ShadowRules::new(in_shadow, Decider::new(of_shadow, store_of_shadow)),
            successors: Successors::none(),
        })
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
        let shadow = self.shadow.try_store(&store)?;
        let decider = self.decider.try_store(store)?;
        Ok(RequestLimiter { rules: self.rules, decider, shadow, successors: Successors::none() })
    }

    /// A limiter with other rules, on the same state.
    pub(crate) fn replaced(&self, rules: impl IntoRules) -> Result<RequestLimiter<S>, SetupError>
    where
        S: Store,
        S::Error: NeverFails,
    {
        let [(rules, policies), (in_shadow, of_shadow)] = RuleSet::try_both(rules)?;
        // Before observers and metrics change.
        policies.supported_by(&self.decider.store)?;
        Ok(RequestLimiter {
            rules: Arc::new(rules),
            shadow: self.shadow.replaced(in_shadow, of_shadow, &self.decider.store)?,
            decider: self.decider.replaced(policies)?,
            successors: Successors::none(),
        })
    }

    /// Calls `observe` for each decision: [`RateLimitLayer::observe`] says more.
    ///
    /// [`RateLimitLayer::observe`]: crate::RateLimitLayer::observe
    #[must_use]
    pub fn observe(self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> RequestLimiter<S> {
        let observe = Arc::new(observe);
        let of_shadow = Arc::clone(&observe);
        let shadow = self.shadow.with(|decider| decider.observe(move |decision| of_shadow(decision)));
        let decider = self.decider.observe(move |decision| observe(decision));
        RequestLimiter { rules: self.rules, decider, shadow, successors: self.successors.with_own_settings() }
    }

    /// Counts decisions and units as metrics: [`RateLimitLayer::metrics`] says more.
    ///
    /// [`RateLimitLayer::metrics`]: crate::RateLimitLayer::metrics
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    #[must_use]
    pub fn metrics(self) -> RequestLimiter<S> {
        let shadow = self.shadow.with(Decider::metrics);
        let (decider, successors) = (self.decider.metrics(), self.successors.with_own_settings());
        RequestLimiter { rules: self.rules, decider, shadow, successors }
    }

    /// Sets whether callers of [`until_ready`](RequestLimiter::until_ready) also wait while the
    /// store is unavailable: [`Limiter::wait_for_store`](crate::Limiter::wait_for_store) says more.
    #[must_use]
    pub fn wait_for_store(self, wait: bool) -> RequestLimiter<S> {
        let (decider, successors) = (self.decider.wait_for_store(wait), self.successors.with_own_settings());
        RequestLimiter { rules: self.rules, decider, shadow: self.shadow, successors }
    }

    /// Returns the policies that together hold all states of a key: one for each window of a rule
    /// and its tiers. To sum what a key used [recently](crate::usage::RecentUsage), or to list what
    /// a [reset](RequestLimiter::reset) forgets.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        let in_shadow = self.shadow.decider.policies.with_states();
        self.decider.policies.with_states().chain(in_shadow)
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
        self.shadow.ask(head);
        self.rules.hold_at_most(permit.slot());
        permit
    }

    /// What a request asks of each rule that applies to it.
    pub(crate) fn asks(&self, head: &Head<'_>) -> Result<Asks, Denial> {
        let supports = |policy: &Policy| self.decider.store.supports(policy).is_ok();
        let asks = self
            .rules
            .ask(head, &self.decider.policies, supports)
            .map_err(|(rule, reason)| self.decider.no_key(rule, reason))?;
        Ok(self.decider.policies.with_blocks(asks))
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

    /// Refunds what a permit was charged, as far as the algorithms allow: see [`Store::refund`].
    /// The permit must be from this limiter or a clone, because only its store has charged it.
    pub async fn refund(&self, permit: Permit) {
        self.decider.refund(&permit).await;
    }

    /// Takes what the policy of one rule charged a permit: see
    /// [`Limiter::charge`](crate::Limiter::charge). A rule that did not apply to the request, or is
    /// in shadow, charged nothing.
    ///
    /// # Panics
    /// If [`RequestLimiter::try_charge`] would return an error.
    #[track_caller]
    pub fn charge(&self, permit: &mut Permit, policy: &str) -> Charge {
        or_panic(self.try_charge(permit, policy))
    }

    /// [`RequestLimiter::charge`] for rules that a file may rename or remove.
    ///
    /// # Errors
    /// [`SetupError::UnknownPolicy`] if no rule that decided about the permit has a policy of that
    /// name. The permit keeps all charges then.
    pub fn try_charge(&self, permit: &mut Permit, policy: &str) -> Result<Charge, SetupError> {
        let charge = self.decider.charge_of(permit, policy);
        charge.or_else(|error| self.shadow.decider.no_charge_of(policy).ok_or(error))
    }

    /// Settles a permit by the response that its request got: what [`Rule::count_if`] and
    /// [`Rule::cost_by`] say. Other rules keep what they charged, and what was taken out of the
    /// permit is not settled again. A layer does this by itself.
    ///
    /// [`Rule::count_if`]: crate::Rule::count_if
    /// [`Rule::cost_by`]: crate::Rule::cost_by
    pub fn settle_by(&self, permit: Permit, response: &ResponseHead<'_>) {
        let decider = Arc::new(self.decider.of_permit(&permit));
        let settler: Arc<dyn Settler> = decider.clone();
        let mut slot = HeldUntilDropped::new(permit.slot().clone());
        let (asks, granted) = permit.take_all();
        let charges = self.rules.charges(&settler, &decider.policies, &asks, |at| granted[at]);
        slot.correct_first(charges.by_response.settle_by(response));
    }

    /// Releases the slots that requests of this process hold: see
    /// [`Limiter::give_back`](crate::Limiter::give_back).
    pub async fn give_back(&self) {
        self.decider.give_back().await;
    }

    /// Forgets what `key` has used of every rule, in all of its tiers. Do not
    /// [refund](RequestLimiter::refund) a permit from before: that would return what others were
    /// charged since.
    ///
    /// The empty key belongs to no caller, and this does nothing for it. With
    /// [`MissingKey::OneKey`](crate::MissingKey::OneKey), requests without a key share the state of
    /// [`Key::global`]: reset that.
    pub async fn reset(&self, key: &Key) {
        self.decider.reset(key).await;
        self.shadow.decider.reset(key).await;
    }
}
