//! Rules in shadow: they decide, and nothing follows.

use std::sync::Arc;

use smallvec::smallvec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_core::{Policy, Reply, Source, Store, Times, Timestamp, Verdict};

use super::decider::Decider;
use crate::blocks::DenialCounts;
use crate::denial::Denial;
use crate::ending::Home;
use crate::extract::Head;
use crate::never_fails::NeverFails;
use crate::observe::Outcome;
use crate::plan::{Asks, Plan, RuleNumber};

/// How many checks of a limiter wait for the store at most. Others are dropped, and observers see
/// that.
const MOST_CHECKS: usize = 1_024;

/// What the rules in shadow have of their own: their state, and what they count. Each decides by
/// itself about the requests that the other rules let pass.
#[derive(Clone, Debug)]
pub(crate) struct Shadow<S> {
    /// Without such rules it is never asked.
    pub(super) store: S,
    /// `None` unless a policy blocks keys.
    denials: Option<Arc<DenialCounts>>,
    free: Arc<Semaphore>,
}

impl<S: Store<Error: NeverFails>> Shadow<S> {
    /// That of a plan, whose enforced rules have this store.
    pub(super) fn new(plan: &Plan, store: &S) -> Shadow<S> {
        Shadow {
            store: if plan.has_shadow() { store.in_shadow() } else { store.clone() },
            denials: plan.needs().blocks.then(|| Arc::new(DenialCounts::new())),
            free: Arc::new(Semaphore::new(MOST_CHECKS)),
        }
    }

    /// That of a plan which replaces an earlier one, with the same state.
    pub(super) fn replaced(&self, earlier: &Plan, next: &Plan, store: &S) -> Shadow<S> {
        let first = Shadow::new(next, store);
        Shadow {
            store: if earlier.has_shadow() { self.store.clone() } else { first.store },
            denials: self.denials.clone().or(first.denials),
            free: Arc::clone(&self.free),
        }
    }

    /// Asks each rule in shadow about a request that passes, and does not wait for the answers.
    #[inline]
    pub(crate) fn ask(&self, decider: &Decider<S>, head: &Head<'_>) {
        if decider.plan.has_shadow() {
            self.ask_each(decider, head);
        }
    }

    fn ask_each(&self, decider: &Decider<S>, head: &Head<'_>) {
        let (store, denials) = (self.store.clone(), self.denials.clone());
        let decider = Decider { store, denials, slots: None, ..decider.clone() };
        let Decider { plan, observers, store, .. } = &decider;
        let supports = |policy: &Policy| store.supports(policy).is_ok();
        let mut waiting = Vec::new();
        for rule in plan.in_shadow(head) {
            match plan.ask_of(rule, head, supports) {
                Ok(Some(ask)) => {
                    waiting.extend(self.charge(&decider, rule, plan.with_blocks(smallvec![ask])));
                }
                Ok(None) => {}
                Err(_) => observers.undecided(plan, rule, Outcome::ShadowDenied),
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
    fn charge(
        &self,
        decider: &Decider<S>,
        rule: RuleNumber,
        asks: Asks,
    ) -> Option<(ShadowCheck<S>, S::Acquire)> {
        let Ok(turn) = Arc::clone(&self.free).try_acquire_owned() else {
            decider.observers.undecided(&decider.plan, rule, Outcome::ShadowDropped);
            return None;
        };
        let reply = decider.acquire(&asks, Times::ONCE, None);
        let since = if let Reply::Later(_) = reply { decider.waits_since() } else { None };
        let check = ShadowCheck { decider: decider.clone(), rule, asks, since, ends: Some(turn) };
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
    rule: RuleNumber,
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
        decider.observers.verdict(&decider.plan, asks, verdict, *since);
        if !verdict.is_granted() && decider.counts_denials() {
            decider.count(&Denial::of(decider.report(asks, verdict)), asks);
        }
        self.ends = None;
    }
}

impl<S> Drop for ShadowCheck<S> {
    fn drop(&mut self) {
        if self.ends.is_some() {
            let Decider { plan, observers, .. } = &self.decider;
            observers.undecided(plan, self.rule, Outcome::ShadowDropped);
        }
    }
}
