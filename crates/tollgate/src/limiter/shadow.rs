//! Rules in shadow: they decide, and nothing follows.

use std::sync::Arc;

use smallvec::smallvec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_core::{Policy, Reply, Source, Store, Times, Timestamp, Verdict};

use super::decider::Decider;
use crate::denial::Denial;
use crate::ending::Home;
use crate::extract::Head;
use crate::never_fails::NeverFails;
use crate::observe::Outcome;
use crate::policy_set::{Asks, PolicySet};
use crate::rule::Rule;
use crate::rule::set::RuleSet;
use crate::setup_error::SetupError;

/// How many checks of a limiter wait for the store at most. Others are dropped, and observers see
/// that.
const MOST_CHECKS: usize = 1_024;

/// The rules of a limiter that are in shadow. Each decides by itself about the requests that the
/// other rules let pass. Its decider has a store [in shadow](Store::in_shadow).
#[derive(Clone, Debug)]
pub(crate) struct ShadowRules<S> {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) decider: Decider<S>,
    free: Arc<Semaphore>,
}

impl<S> ShadowRules<S> {
    pub(super) fn new(rules: RuleSet, decider: Decider<S>) -> ShadowRules<S> {
        ShadowRules { rules: Arc::new(rules), decider, free: Arc::new(Semaphore::new(MOST_CHECKS)) }
    }

    /// The same rules on another store.
    pub(super) fn try_store<T: Store<Error: NeverFails>>(
        self,
        store: &T,
    ) -> Result<ShadowRules<T>, SetupError> {
        let decider = self.decider.try_store(store_for(&self.rules, store))?;
        Ok(ShadowRules { rules: self.rules, decider, free: self.free })
    }

    /// The same rules with a change of the decider.
    pub(super) fn with(self, change: impl FnOnce(Decider<S>) -> Decider<S>) -> ShadowRules<S> {
        ShadowRules { decider: change(self.decider), ..self }
    }
}

/// The store of these rules. Without rules it is never asked.
pub(super) fn store_for<S: Store>(rules: &RuleSet, store: &S) -> S {
    if rules.is_empty() { store.clone() } else { store.in_shadow() }
}

impl<S: Store<Error: NeverFails>> ShadowRules<S> {
    /// Other rules on the same state. `store` is that of the enforced rules.
    pub(super) fn replaced(
        &self,
        rules: RuleSet,
        policies: PolicySet,
        store: &S,
    ) -> Result<ShadowRules<S>, SetupError> {
        let mut decider = self.decider.replaced(policies)?;
        if self.rules.is_empty() {
            decider.store = store_for(&rules, store);
        }
        Ok(ShadowRules { rules: Arc::new(rules), decider, free: Arc::clone(&self.free) })
    }

    /// Asks each rule about a request that passes, and does not wait for the answers.
    #[inline]
    pub(crate) fn ask(&self, head: &Head<'_>) {
        if !self.rules.is_empty() {
            self.ask_each(head);
        }
    }

    fn ask_each(&self, head: &Head<'_>) {
        let Decider { policies, observers, store, .. } = &self.decider;
        let supports = |policy: &Policy| store.supports(policy).is_ok();
        let mut waiting = Vec::new();
        let may_apply = self.rules.that_may_apply(head);
        for rule in may_apply.unwrap_or_else(|| (0..self.rules.len()).collect()) {
            match self.rules.ask_of(rule, head, policies, supports) {
                Ok(Some(ask)) => waiting.extend(self.charge(rule, policies.with_blocks(smallvec![ask]))),
                Ok(None) => {}
                Err(_) => observers.undecided(policies, rule, Outcome::ShadowDenied),
            }
        }
        if !waiting.is_empty() {
            // Without a runtime they are dropped. One task for all rules of a request.
            Home::here().end(|| async move {
                for (check, verdict) in waiting {
                    check.decided(&verdict.await.unwrap_or_else(NeverFails::never));
                }
            });
        }
    }

    /// Charges what a request asks of a rule. Returns what the store has not answered yet.
    fn charge(&self, rule: usize, asks: Asks) -> Option<(ShadowCheck<S>, S::Acquire)> {
        let Decider { policies, observers, .. } = &self.decider;
        let Ok(turn) = Arc::clone(&self.free).try_acquire_owned() else {
            observers.undecided(policies, rule, Outcome::ShadowDropped);
            return None;
        };
        let reply = self.decider.acquire(&asks, Times::ONCE, None);
        let since = if let Reply::Later(_) = reply { self.decider.waits_since() } else { None };
        let check = ShadowCheck { decider: self.decider.clone(), rule, asks, since, ends: Some(turn) };
        match reply {
            Reply::Now(answer) => {
                check.decided(&answer.unwrap_or_else(NeverFails::never));
                None
            }
            Reply::Later(answer) => Some((check, answer)),
        }
    }
}

/// What a request asked of a rule in shadow. If no store decides it, observers see that it was
/// dropped.
struct ShadowCheck<S> {
    decider: Decider<S>,
    rule: usize,
    asks: Asks,
    /// When the store was asked, if an observer needs it.
    since: Option<Timestamp>,
    /// `None` once observers have seen it.
    ends: Option<OwnedSemaphorePermit>,
}

impl<S: Store<Error: NeverFails>> ShadowCheck<S> {
    fn decided(mut self, verdict: &Verdict) {
        // What stands in for a store that fails says nothing about the rule.
        if matches!(verdict.source(), Source::FailurePolicy | Source::Fallback) {
            return;
        }
        let ShadowCheck { decider, asks, since, .. } = &self;
        decider.observers.verdict(&decider.policies, asks, verdict, *since);
        if !verdict.is_granted() && decider.counts_denials() {
            decider.count(&Denial::of(decider.report(asks, verdict)), asks);
        }
        self.ends = None;
    }
}

impl<S> Drop for ShadowCheck<S> {
    fn drop(&mut self) {
        if self.ends.is_some() {
            let Decider { policies, observers, .. } = &self.decider;
            observers.undecided(policies, self.rule, Outcome::ShadowDropped);
        }
    }
}

impl Rule {
    /// Puts the rule in shadow: it decides about each request that the other rules let pass, and
    /// nothing follows. Observers, [metrics](crate::RateLimitLayer::metrics) and the
    /// [usage](crate::usage) of the store show what it would refuse, before it bites.
    ///
    /// It changes no answer, no field, and no charge, block or slot of another rule, also of a rule
    /// with its name that another layer or process enforces. All that it counts is apart: without
    /// the shadow the rule starts again.
    ///
    /// - Its outcomes are [`ShadowAllowed`](Outcome::ShadowAllowed) and
    ///   [`ShadowDenied`](Outcome::ShadowDenied). What it would refuse is not charged.
    /// - Several rules in shadow decide each by itself.
    /// - A [block](Rule::block_after) that it would start blocks in shadow only.
    /// - Its key extractor and its other closures run within the request.
    /// - No request waits for its store. A limiter has 1,024 of its checks on the way at most.
    ///   Others are [dropped](Outcome::ShadowDropped). So is a check that Redis is not sent within
    ///   50 ms because enforced checks go first. So is one whose store fails, and one over a
    ///   network without a tokio runtime.
    /// - A [`MemoryStore`](crate::MemoryStore) has a table of its own for such rules, with as many
    ///   keys at most. **In Redis its keys take memory of the same server**: if that is
    ///   [full](https://redis.io/docs/latest/develop/reference/eviction/), they can push out keys
    ///   of enforced rules.
    /// - [`Store::in_shadow`] returns the store that has its state, to ask what its keys have used.
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
