//! Rules in shadow: they decide, and nothing follows.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::sync::OwnedSemaphorePermit;
use tollgate_core::{Check, Policy, Reply, Source, Store, Times, Timestamp, Verdict};

use super::decider::Decider;
use crate::decision::observe::Outcome;
use crate::decision::{Denial, InForce};
use crate::extract::Head;
use crate::plan::{Asks, RuleNumber};
use crate::store::NeverFails;
use crate::time::ending::Home;

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Asks each rule in shadow about a request that passes, and does not wait for the answers.
    /// Each decides by itself.
    pub(super) fn ask_in_shadow(&self, head: &Head<'_>) {
        let InForce { plan, observers, .. } = &*self.in_force;
        let supports = |policy: &Policy| self.engine.shadow_store().supports(policy).is_ok();
        let mut waiting = Vec::new();
        for rule in plan.in_shadow(head) {
            match plan.ask_of(rule, head, supports) {
                Ok(Some(ask)) => {
                    waiting.extend(self.charge_in_shadow(rule, plan.with_blocks(smallvec![ask])));
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
    fn charge_in_shadow(&self, rule: RuleNumber, asks: Asks) -> Option<(ShadowCheck<S>, S::Acquire)> {
        let Ok(turn) = Arc::clone(&self.engine.shadow.free).try_acquire_owned() else {
            self.in_force.observers.undecided(self.plan(), rule, Outcome::ShadowDropped);
            return None;
        };
        let set: SmallVec<[Check<'_>; 2]> = asks.iter().map(|ask| self.plan().check(ask)).collect();
        let reply = self.engine.shadow_store().acquire(&set, Times::ONCE);
        drop(set);
        let since = if let Reply::Later(_) = reply { self.waits_since() } else { None };
        let check = ShadowCheck { decider: self.clone(), rule, asks, since, ends: Some(turn) };
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
        // Observers see it once, also if one of them panics.
        let _turn = self.ends.take();
        let ShadowCheck { decider, asks, since, .. } = &self;
        let InForce { plan, observers, .. } = &*decider.in_force;
        observers.verdict(plan, asks, verdict, *since);
        if !verdict.is_granted() && plan.needs().blocks {
            let store = || decider.engine.cold_store(true);
            let in_shadow = || Arc::new(InForce { store: store(), ..InForce::clone(&decider.in_force) });
            let denial = Denial::of(decider.report(asks, verdict));
            decider.engine.shadow.denials.note(in_shadow, &denial, asks);
        }
    }
}

impl<S> Drop for ShadowCheck<S> {
    fn drop(&mut self) {
        if self.ends.is_some() {
            let InForce { plan, observers, .. } = &*self.decider.in_force;
            observers.undecided(plan, self.rule, Outcome::ShadowDropped);
        }
    }
}
