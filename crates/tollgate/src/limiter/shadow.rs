//! Rules in shadow: they decide, and nothing follows.

use std::sync::Arc;

use smallvec::smallvec;
use tokio::sync::Semaphore;
use tollgate_core::{Policy, Store};

use super::background::in_background;
use super::decider::Decider;
use super::never_fails::NeverFails;
use crate::extract::Head;
use crate::observe::Outcome;
use crate::policy_set::Asks;
use crate::rule::Rule;
use crate::rule::set::RuleSet;
use crate::setup_error::SetupError;

/// How many checks of a limiter wait for the store at most. Others are dropped, and observers see
/// that.
const MOST_CHECKS: usize = 1_024;

/// The rules of a limiter that are in shadow. Each decides by itself about the requests that the
/// other rules let pass.
#[derive(Clone, Debug)]
pub(crate) struct ShadowRules<S> {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) decider: Decider<S>,
    free: Arc<Semaphore>,
}

impl<S> ShadowRules<S> {
    pub(crate) fn new(rules: RuleSet, decider: Decider<S>) -> ShadowRules<S> {
        ShadowRules { rules: Arc::new(rules), decider, free: Arc::new(Semaphore::new(MOST_CHECKS)) }
    }

    /// The same rules on another store.
    pub(super) fn try_store<T: Store<Error: NeverFails>>(
        self,
        store: T,
    ) -> Result<ShadowRules<T>, SetupError> {
        let decider = self.decider.try_store(store)?;
        Ok(ShadowRules { rules: self.rules, decider, free: self.free })
    }

    /// The same rules with a change of the decider.
    pub(super) fn with(self, change: impl FnOnce(Decider<S>) -> Decider<S>) -> ShadowRules<S> {
        ShadowRules { decider: change(self.decider), ..self }
    }

    /// Other rules with another decider.
    pub(crate) fn replaced(&self, rules: RuleSet, decider: Decider<S>) -> ShadowRules<S> {
        ShadowRules { rules: Arc::new(rules), decider, free: Arc::clone(&self.free) }
    }
}

impl<S: Store<Error: NeverFails>> ShadowRules<S> {
    /// Asks each rule about a request that passes, and does not wait for the answers.
    #[inline]
    pub(crate) fn ask(&self, head: &Head<'_>) {
        if !self.rules.is_empty() {
            (0..self.rules.len()).for_each(|rule| self.ask_rule(rule, head));
        }
    }

    fn ask_rule(&self, rule: usize, head: &Head<'_>) {
        let Decider { policies, observers, store, .. } = &self.decider;
        let supports = |policy: &Policy| store.supports(policy).is_ok();
        let outcome = match self.rules.ask_of(rule, head, policies, supports) {
            Ok(Some(ask)) => self.charge(rule, policies.with_blocks(smallvec![ask])),
            Ok(None) => Some(Outcome::Skipped),
            Err(_) => Some(Outcome::ShadowDenied),
        };
        if let Some(outcome) = outcome {
            observers.undecided(policies, rule, outcome);
        }
    }

    /// Charges what a request asks of a rule. Returns the outcome if the store is not asked.
    fn charge(&self, rule: usize, asks: Asks) -> Option<Outcome> {
        let Ok(turn) = Arc::clone(&self.free).try_acquire_owned() else {
            return Some(Outcome::ShadowDropped);
        };
        let decider = self.decider.clone();
        let is_asked = in_background(Box::pin(async move {
            // Observers see the denial, too.
            let _ = decider.charge_by(rule..rule + 1, asks, None).await;
            drop(turn);
        }));
        (!is_asked).then_some(Outcome::ShadowDropped)
    }
}

impl Rule {
    /// Puts the rule in shadow: it decides about each request that the other rules let pass, and
    /// nothing follows. Observers, [metrics](crate::RateLimitLayer::metrics) and the
    /// [usage](crate::usage) of the store show what it would refuse, before it bites.
    ///
    /// It changes no answer, no field, and no charge or slot of another rule. It counts in a state
    /// of its own, under its name. Without the shadow it goes on from there.
    ///
    /// - Its outcomes are [`ShadowAllowed`](Outcome::ShadowAllowed) and
    ///   [`ShadowDenied`](Outcome::ShadowDenied). What it would refuse is not charged.
    /// - Several rules in shadow decide each by itself.
    /// - Its key extractor and its other closures run within the request.
    /// - No request waits for its store. A limiter has 1,024 of its checks on the way at most;
    ///   another is [dropped](Outcome::ShadowDropped), also if a store over a network is asked
    ///   without a tokio runtime.
    /// - Its keys take room in the store, and its checks are calls of the store.
    ///
    /// A layer may have rules in shadow only. A rule of [requests in
    /// flight](crate::Policy::in_flight), or one that corrects its charges after the work, cannot
    /// be in shadow: [`SetupError::NotInShadow`].
    ///
    /// ```
    /// use tollgate::extract::PeerIp;
    /// use tollgate::{Outcome, Policy, PolicyExt, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new([
    ///     Policy::new("api", Quota::per_minute(600)).by(PeerIp::new()),
    ///     // What would it refuse?
    ///     Policy::new("stricter", Quota::per_minute(60)).by(PeerIp::new()).shadow(),
    /// ])
    /// .observe(|decision| {
    ///     if decision.outcome() == Outcome::ShadowDenied {
    ///         println!("{} would refuse a request", decision.policy().name());
    ///     }
    /// });
    /// ```
    #[doc(alias("dry_run", "report_only"))]
    pub fn shadow(self) -> Rule {
        self.in_shadow()
    }

    /// Checks that a rule in shadow needs nothing that follows a decision.
    pub(crate) fn check_shadow(&self) -> Result<(), SetupError> {
        let follows = self.policy().is_in_flight() || self.policy().is_reserved();
        match self.is_shadow() && follows {
            true => Err(SetupError::NotInShadow(self.policy().name().to_owned())),
            false => Ok(()),
        }
    }
}
