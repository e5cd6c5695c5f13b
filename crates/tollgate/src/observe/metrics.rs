//! Decisions as metrics.

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tollgate_core::{Policy, Quota, Source};

use super::decision::{Decision, Outcome};
use super::stores::describe;
use crate::policy_set::PolicySet;

/// The handles of a limiter, registered once: a request then costs two additions for each rule.
pub(crate) struct Metrics {
    policies: Box<[Handles]>,
    store_seconds: Histogram,
}

struct Handles {
    name: String,
    /// `None` for what no store of this crate decides: a wrapper of a user may.
    decisions: [[Option<Counter>; Source::ALL.len()]; Outcome::ALL.len()],
    units: [Option<Counter>; Outcome::ALL.len()],
    /// The slots that this process holds, of a policy of requests in flight.
    in_flight: Option<Gauge>,
    /// The blocks that this process started.
    blocks: Option<Counter>,
}

impl Metrics {
    /// Registers the handles of all rules. The limit of a rule that was removed is 0 from now on.
    pub(crate) fn new(earlier: Option<&PolicySet>, policies: &PolicySet) -> Metrics {
        describe();
        let is_gone = |policy: &&Policy| !policies.is_known(policy.name());
        for policy in earlier.map_or(&[][..], PolicySet::own).iter().filter(is_gone) {
            limit_of(policy).set(0.0);
        }
        let is_alone = policies.own().len() == 1;
        let handles = policies.own().iter().map(|policy| Handles::new(policies, policy, is_alone)).collect();
        Metrics { policies: handles, store_seconds: histogram!("tollgate_store_seconds") }
    }

    #[inline]
    pub(crate) fn record(&self, decision: &Decision<'_>) {
        let handles = &self.policies[decision.rule];
        let outcome = decision.outcome as usize;
        match &handles.decisions[outcome][decision.source as usize] {
            // Only its units count.
            _ if decides_nothing(decision.outcome) => {}
            Some(counter) => counter.increment(1),
            None => decisions_of(&handles.name, decision.outcome, decision.source).increment(1),
        }
        if decision.units > 0 {
            // The largest that can pass, so that one hostile cost does not overflow the counter.
            let units = decision.units().min(Quota::MAX_UNITS);
            match &handles.units[outcome] {
                Some(counter) => counter.increment(units),
                None => units_of(&handles.name, decision.outcome).increment(units),
            }
        }
        if let Some(in_flight) = &handles.in_flight {
            match (decision.outcome, decision.source) {
                (Outcome::Released, _) => in_flight.decrement(1.0),
                // It passes without a slot.
                (_, Source::FailurePolicy) => {}
                (Outcome::Allowed | Outcome::Delayed, _) if decision.units > 0 => in_flight.increment(1.0),
                _ => {}
            }
        }
        if let (Outcome::BlockStarted, Some(blocks)) = (decision.outcome, &handles.blocks) {
            blocks.increment(1);
        }
        if let Some(latency) = decision.latency {
            self.store_seconds.record(latency);
        }
    }
}

impl Handles {
    fn new(policies: &PolicySet, policy: &Policy, is_alone: bool) -> Handles {
        let is_possible = |outcome: Outcome, source| {
            let has_it = match outcome {
                Outcome::Skipped => true,
                _ if outcome.is_shadow() || policies.is_shadow() => {
                    outcome.is_shadow() == policies.is_shadow()
                }
                Outcome::NotCharged => !is_alone,
                Outcome::Delayed => !policy.longest_wait().is_zero(),
                Outcome::Blocked => policy.denials_until_block().is_some(),
                _ => true,
            };
            has_it && is_possible(outcome, source)
        };
        let name = policy.name().to_owned();
        limit_of(policy).set(policy.quota().limit() as f64);
        let decisions = |outcome: Outcome, source: Source| {
            is_possible(outcome, source).then(|| decisions_of(&name, outcome, source))
        };
        let units = |outcome: Outcome| {
            let ends = match outcome {
                Outcome::Released => policy.is_in_flight(),
                Outcome::BlockStarted => false,
                _ => decides_nothing(outcome) && policy.is_reserved(),
            };
            let counts = ends || is_possible(outcome, Source::Store);
            counts.then(|| units_of(&name, outcome))
        };
        Handles {
            decisions: Outcome::ALL.map(|outcome| Source::ALL.map(|source| decisions(outcome, source))),
            units: Outcome::ALL.map(units),
            in_flight: policy.is_in_flight().then(|| gauge!("tollgate_in_flight", "policy" => name.clone())),
            blocks: policy
                .denials_until_block()
                .map(|_| counter!("tollgate_blocks_total", "policy" => name.clone())),
            name,
        }
    }
}

/// Shows the rules of a watched file.
pub(crate) fn show_rules(file: String, version: u64, is_invalid: bool) {
    describe();
    gauge!("tollgate_rules_version", "file" => file.clone()).set(version as f64);
    gauge!("tollgate_rules_error", "file" => file).set(f64::from(u8::from(is_invalid)));
}

fn limit_of(policy: &Policy) -> Gauge {
    gauge!("tollgate_policy_limit", "policy" => policy.name().to_owned())
}

fn decisions_of(policy: &str, outcome: Outcome, source: Source) -> Counter {
    let (policy, outcome, source) = (policy.to_owned(), outcome.name(), source.name());
    counter!("tollgate_decisions_total", "policy" => policy, "outcome" => outcome, "source" => source)
}

fn units_of(policy: &str, outcome: Outcome) -> Counter {
    counter!("tollgate_units_total", "policy" => policy.to_owned(), "outcome" => outcome.name())
}

/// Whether it follows a decision: how a charge or a slot ends, or that a block starts.
fn decides_nothing(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Settled | Outcome::Forgiven | Outcome::Released | Outcome::BlockStarted)
}

/// Whether a source can decide so, for a policy that may delay and that others apply with.
fn is_possible(outcome: Outcome, source: Source) -> bool {
    use Outcome::{Allowed, Blocked, Denied, NeverPossible, NoKey, NotCharged, Skipped};
    use Outcome::{ShadowAllowed, ShadowDenied, ShadowDropped};
    match source {
        Source::Rule => matches!(outcome, Skipped | NotCharged | NoKey | ShadowDenied | ShadowDropped),
        Source::Lease => matches!(outcome, Allowed | ShadowAllowed),
        Source::DenyCache => matches!(outcome, NotCharged | Denied | Blocked | NeverPossible | ShadowDenied),
        Source::FailurePolicy => matches!(outcome, Allowed | Denied | ShadowAllowed | ShadowDenied),
        // The store, and a fallback, which is one.
        _ => !matches!(outcome, Skipped | NoKey | ShadowDropped) && !decides_nothing(outcome),
    }
}
