//! The step in which a decision becomes visible: to observers, and in the current span.

mod decision;
#[cfg(feature = "metrics")]
mod live_series;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "metrics")]
pub mod stores;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

use tollgate_core::{BlockStart, Clock, Policy, Settled, Source, Status, Timestamp, Verdict, Wait};

pub use decision::{Decision, Outcome};

use crate::errors::Reason;
use crate::plan::{Ask, Plan, PolicyRef, RuleNumber};

pub(crate) type Observe = dyn Fn(&Decision<'_>) + Send + Sync;

/// Makes an observer of the decisions by some policies, which replace those of the call before.
type MakeObserver = dyn Fn(&Plan) -> Arc<Observe> + Send + Sync;

/// The observers of a limiter.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<Observing>>);

struct Observing {
    makers: Vec<Arc<MakeObserver>>,
    observers: Vec<Arc<Observe>>,
    clock: Clock,
}

impl Observing {
    fn observe(&self, decision: &Decision<'_>) {
        self.observers.iter().for_each(|observe| observe(decision));
    }

    /// The same for what ends, maybe because a handler panics. A second panic would abort the
    /// process.
    fn observe_end(&self, decision: &Decision<'_>) {
        if panicking() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.observe(decision)));
        } else {
            self.observe(decision);
        }
    }
}

impl Observers {
    /// Adds one of the decisions by these policies.
    pub(crate) fn and(
        &self,
        plan: &Plan,
        make: impl Fn(&Plan) -> Arc<Observe> + Send + Sync + 'static,
    ) -> Observers {
        let (mut makers, mut observers, clock) = match &self.0 {
            Some(watch) => (watch.makers.clone(), watch.observers.clone(), watch.clock.clone()),
            None => (Vec::new(), Vec::new(), Clock::system()),
        };
        observers.push(make(plan));
        makers.push(Arc::new(make));
        Observers(Some(Arc::new(Observing { makers, observers, clock })))
    }

    /// The same observers, of the decisions by other policies.
    pub(crate) fn of(&self, plan: &Plan) -> Observers {
        let of = |watch: &Arc<Observing>| {
            let observers = watch.makers.iter().map(|make| make(plan)).collect();
            Arc::new(Observing { makers: watch.makers.clone(), observers, clock: watch.clock.clone() })
        };
        Observers(self.0.as_ref().map(of))
    }

    /// The time at which a store began to let a request wait, if there is an observer.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.0.as_ref().map(|watch| watch.clock.now())
    }

    /// Whether an observer or a span may see decisions.
    #[inline]
    fn is_on(&self) -> bool {
        self.0.is_some() || is_traced()
    }

    /// Shows what each rule of which something was asked decided, with the time [from
    /// which](Observers::now) the request waited.
    #[inline]
    pub(crate) fn verdict(&self, plan: &Plan, asks: &[Ask], verdict: &Verdict, since: Option<Timestamp>) {
        if self.is_on() {
            self.show_verdict(plan, asks, verdict, since);
        }
    }

    #[inline]
    fn show_verdict(&self, plan: &Plan, asks: &[Ask], verdict: &Verdict, since: Option<Timestamp>) {
        let mut latency = since.and_then(|since| Some(self.now()?.saturating_since(since)));
        let mut last = None;
        let decisions = asks.iter().enumerate().map_while(|(at, ask)| {
            let rule = plan.rule_of(&ask.policy);
            if last.replace(rule).is_some_and(|last| last >= rule) {
                // Asks are in the order of the rules. Those of their blocks follow.
                return None;
            }
            let policy = plan.policy(&ask.policy);
            let (outcome, wait) = match blocked(plan, asks, verdict, rule) {
                Some(wait) => (Outcome::Blocked, Some(wait)),
                None => outcome(verdict, at, policy),
            };
            let outcome = if plan.is_shadow(rule) { outcome.in_shadow() } else { outcome };
            let (source, latency) = (verdict.source(), latency.take());
            Some(Decision { policy, rule, outcome, units: ask.cost, source, wait, latency })
        });
        self.show(decisions);
    }

    /// Shows that the rule with this number refused a request, without asking a store.
    pub(crate) fn refused(&self, plan: &Plan, rule: RuleNumber, reason: Reason) {
        let outcome = match reason {
            Reason::NothingAllowed | Reason::InvalidLimit => Outcome::Denied,
            _ => Outcome::NoKey,
        };
        let decision = Decision::of_rule(plan.own(rule), rule, outcome);
        self.show([decision].into_iter());
    }

    /// Shows the outcome for a rule in shadow of which no store is asked.
    pub(crate) fn undecided(&self, plan: &Plan, rule: RuleNumber, outcome: Outcome) {
        if let Some(watch) = &self.0 {
            watch.observe_end(&Decision::of_rule(plan.own(rule), rule, outcome));
        }
    }

    /// Shows how a charge has ended. No span sees it, since that of the request may have ended.
    pub(crate) fn settled(&self, plan: &Plan, policy: &PolicyRef, settled: Settled) {
        let Settled { charged, forgiven, unknown, .. } = settled;
        self.ended(plan, policy, Outcome::Settled, charged);
        if forgiven > 0 {
            self.ended(plan, policy, Outcome::Forgiven, forgiven);
        }
        if unknown > 0 {
            self.ended(plan, policy, Outcome::Unknown, unknown);
        }
    }

    /// Shows that a slot has come back.
    pub(crate) fn released(&self, plan: &Plan, policy: &PolicyRef) {
        self.ended(plan, policy, Outcome::Released, 1);
    }

    /// Shows what became of a block by a rule, unless one went on. In shadow no caller is blocked.
    pub(crate) fn block(&self, plan: &Plan, rule: RuleNumber, start: BlockStart) {
        let outcome = match start {
            BlockStart::Started => Outcome::BlockStarted,
            BlockStart::GoesOn => return,
            BlockStart::Dropped => Outcome::BlockDropped,
        };
        if !plan.is_shadow(rule) {
            self.ended(plan, &rule.into(), outcome, 0);
        }
    }

    fn ended(&self, plan: &Plan, policy: &PolicyRef, outcome: Outcome, units: u64) {
        let Some(watch) = &self.0 else { return };
        let of_rule = Decision::of_rule(plan.policy(policy), plan.rule_of(policy), outcome);
        watch.observe_end(&Decision { units, source: Source::Store, ..of_rule });
    }

    #[inline]
    fn show<'a>(&self, decisions: impl Iterator<Item = Decision<'a>>) {
        let is_traced = is_traced();
        let mut decided: Option<Decision<'a>> = None;
        for decision in decisions {
            if let Some(watch) = &self.0 {
                watch.observe(&decision);
            }
            let is_traced = is_traced && !decision.outcome.is_shadow();
            if is_traced && decided.is_none_or(|earlier| earlier.outcome < decision.outcome) {
                decided = Some(decision);
            }
        }
        #[cfg(feature = "tracing")]
        if let Some(decided) = decided {
            span::record(&decided);
        }
    }
}

/// Whether there may be a span: some subscriber listens.
#[inline]
fn is_traced() -> bool {
    #[cfg(feature = "tracing")]
    return span::is_on();
    #[cfg(not(feature = "tracing"))]
    false
}

/// For how much longer the key of this rule is blocked, if it is.
#[inline]
fn blocked(plan: &Plan, asks: &[Ask], verdict: &Verdict, rule: RuleNumber) -> Option<Duration> {
    if verdict.is_granted() || !plan.needs().blocks {
        return None;
    }
    let of_rule =
        |ask: &Ask| plan.policy(&ask.policy).numbers().is_block() && plan.rule_of(&ask.policy) == rule;
    let (_, status) = asks.iter().zip(verdict.each()).find(|(ask, _)| of_rule(ask))?;
    match status.wait() {
        Wait::For(wait) => Some(wait),
        Wait::None | Wait::Never => None,
    }
}

/// The outcome for the check at this place of the set, and its wait.
#[inline]
fn outcome(verdict: &Verdict, at: usize, policy: &Policy) -> (Outcome, Option<Duration>) {
    if verdict.is_granted() {
        let delay = verdict.delay().min(policy.longest_wait());
        return if delay.is_zero() {
            (Outcome::Allowed, None)
        } else {
            (Outcome::Delayed, Some(verdict.delay()))
        };
    }
    match verdict.each().get(at).map(Status::wait) {
        Some(Wait::For(wait)) => (Outcome::Denied, Some(wait)),
        Some(Wait::Never) => (Outcome::NeverPossible, None),
        Some(Wait::None) if verdict.wait() != Wait::None => (Outcome::NotCharged, None),
        // A failure policy refused.
        Some(Wait::None) | None => (Outcome::Denied, None),
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observers(..)" } else { "Observers(none)" })
    }
}
