//! Decisions as metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tollgate_core::{Quota, Source};

use super::decision::{Decision, Outcome};
use super::live_series::{self, Series};
use super::stores::describe;
use crate::plan::Plan;
use crate::rule::Rule;

/// The handles of a limiter, registered once: a request then costs two additions for each rule.
pub(crate) struct Metrics {
    policies: Arc<Box<[Handles]>>,
    store_seconds: Histogram,
}

struct Handles {
    name: String,
    /// `None` for what no store of this crate decides: a wrapper of a user may.
    decisions: [[Option<Counter>; Source::ALL.len()]; Outcome::ALL.len()],
    units: [Option<Counter>; Outcome::ALL.len()],
    limit: Gauge,
    /// The slots that this process holds, of a policy of requests in flight.
    in_flight: Option<Gauge>,
    /// The blocks that this process started, and those that were dropped.
    blocks: Option<[Counter; 2]>,
}

impl Metrics {
    /// Registers the handles of all rules, which replace those of the limits.
    pub(crate) fn new(plan: &Plan, limits: &LayerLimits) -> Metrics {
        describe();
        let is_alone = plan.enforced().nth(1).is_none();
        let handles = plan.rules().map(|rule| Handles::new(rule, is_alone));
        let handles: Arc<Box<[Handles]>> = live_series::keep(handles.collect());
        limits.show(
            plan.rules()
                .map(Rule::policy)
                .zip(&**handles)
                .map(|(policy, handles)| (policy.name(), policy.quota().limit(), &handles.limit)),
        );
        Metrics { policies: handles, store_seconds: histogram!("tollgate_store_seconds") }
    }

    #[inline]
    pub(crate) fn record(&self, decision: &Decision<'_>) {
        let handles = &self.policies[decision.rule.index()];
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
        if let Some([started, dropped]) = &handles.blocks {
            match decision.outcome {
                Outcome::BlockStarted => started.increment(1),
                Outcome::BlockDropped => dropped.increment(1),
                _ => {}
            }
        }
        if let Some(latency) = decision.latency {
            self.store_seconds.record(latency);
        }
    }
}

impl Handles {
    fn new(rule: &Rule, is_alone: bool) -> Handles {
        let policy = rule.policy();
        let is_possible = |outcome: Outcome, source| {
            let has_it = match outcome {
                _ if outcome.is_shadow() || rule.is_shadow() => outcome.is_shadow() == rule.is_shadow(),
                Outcome::NotCharged => !is_alone,
                Outcome::Delayed => !policy.longest_wait().is_zero(),
                Outcome::Blocked => policy.numbers().denials_until_block().is_some(),
                _ => true,
            };
            has_it && is_possible(outcome, source)
        };
        let name = policy.name().to_owned();
        let decisions = |outcome: Outcome, source: Source| {
            is_possible(outcome, source).then(|| decisions_of(&name, outcome, source))
        };
        let units = |outcome: Outcome| {
            let ends = match outcome {
                Outcome::Released => policy.is_in_flight(),
                Outcome::BlockStarted | Outcome::BlockDropped => false,
                _ => decides_nothing(outcome) && policy.numbers().is_reserved(),
            };
            let counts = ends || is_possible(outcome, Source::Store);
            counts.then(|| units_of(&name, outcome))
        };
        Handles {
            decisions: Outcome::ALL.map(|outcome| Source::ALL.map(|source| decisions(outcome, source))),
            units: Outcome::ALL.map(units),
            limit: gauge!("tollgate_policy_limit", "policy" => name.clone()),
            in_flight: policy.is_in_flight().then(|| gauge!("tollgate_in_flight", "policy" => name.clone())),
            blocks: policy.numbers().denials_until_block().map(|_| {
                let blocks = |series: &'static str| counter!(series, "policy" => name.clone());
                [blocks("tollgate_blocks_total"), blocks("tollgate_dropped_blocks_total")]
            }),
            name,
        }
    }
}

impl Series for Box<[Handles]> {
    fn touch(&self) {
        for handles in self {
            let counters = handles.decisions.as_flattened().iter().chain(&handles.units).flatten();
            let blocks = handles.blocks.iter().flatten();
            counters.chain(blocks).for_each(|counter| counter.increment(0));
            std::iter::once(&handles.limit).chain(&handles.in_flight).for_each(|gauge| gauge.increment(0.0));
        }
    }
}

/// The limits that the rules of a layer have now. The gauge of a name shows the largest of those
/// that layers have under it.
#[derive(Default)]
pub(crate) struct LayerLimits(Arc<Mutex<HashMap<String, ShownLimit>>>);

struct ShownLimit {
    limit: u64,
    /// Each exporter has gauges of its own: in tests there may be several.
    recorder: usize,
    gauge: Gauge,
}

/// The limits of all layers by the exporter and the name of the policy, with the layers.
static SHOWN: Mutex<BTreeMap<(usize, String), BTreeMap<usize, u64>>> = Mutex::new(BTreeMap::new());

impl LayerLimits {
    /// Shows these limits in the place of those before. The limit of a name that no layer has any
    /// more is 0.
    fn show<'a>(&self, limits: impl Iterator<Item = (&'a str, u64, &'a Gauge)>) {
        let recorder = ::metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).addr());
        let shown = |(name, limit, gauge): (&str, u64, &Gauge)| {
            (name.to_owned(), ShownLimit { limit, recorder, gauge: gauge.clone() })
        };
        let next: HashMap<String, ShownLimit> = limits.map(shown).collect();
        let mut earlier = std::mem::replace(&mut *lock(&self.0), next);
        for (name, shown) in &*lock(&self.0) {
            self.set(name, shown, Some(shown.limit));
            earlier.remove(name);
        }
        self.remove(&earlier);
    }

    fn remove(&self, limits: &HashMap<String, ShownLimit>) {
        limits.iter().for_each(|(name, shown)| self.set(name, shown, None));
    }

    /// Changes the limit of this layer, and shows the largest one of all layers.
    #[expect(clippy::cast_precision_loss, reason = "decides nothing")]
    fn set(&self, name: &str, shown: &ShownLimit, limit: Option<u64>) {
        let (mut all, layer) = (lock(&SHOWN), Arc::as_ptr(&self.0).addr());
        let of_name = all.entry((shown.recorder, name.to_owned())).or_default();
        match limit {
            Some(limit) => of_name.insert(layer, limit),
            None => of_name.remove(&layer),
        };
        shown.gauge.set(of_name.values().max().copied().unwrap_or(0) as f64);
        if of_name.is_empty() {
            all.remove(&(shown.recorder, name.to_owned()));
        }
    }
}

impl Drop for LayerLimits {
    fn drop(&mut self) {
        let limits = std::mem::take(&mut *lock(&self.0));
        self.remove(&limits);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rules of a watched file.
pub(crate) struct FileGauges {
    version: Gauge,
    error: Gauge,
}

impl FileGauges {
    pub(crate) fn new(file: &str) -> Arc<FileGauges> {
        describe();
        let file = || file.to_owned();
        live_series::keep(FileGauges {
            version: gauge!("tollgate_rules_version", "file" => file()),
            error: gauge!("tollgate_rules_error", "file" => file()),
        })
    }

    pub(crate) fn show(&self, version: u64, is_invalid: bool) {
        self.version.set(version as f64);
        self.error.set(f64::from(u8::from(is_invalid)));
    }
}

impl Series for FileGauges {
    fn touch(&self) {
        self.version.increment(0.0);
        self.error.increment(0.0);
    }
}

fn decisions_of(policy: &str, outcome: Outcome, source: Source) -> Counter {
    let (policy, outcome, source) = (policy.to_owned(), outcome.name(), source.name());
    counter!("tollgate_decisions_total", "policy" => policy, "outcome" => outcome, "source" => source)
}

fn units_of(policy: &str, outcome: Outcome) -> Counter {
    counter!("tollgate_units_total", "policy" => policy.to_owned(), "outcome" => outcome.name())
}

/// Whether it follows a decision: how a charge or a slot ends, or what becomes of a block.
fn decides_nothing(outcome: Outcome) -> bool {
    use Outcome::{BlockDropped, BlockStarted, Forgiven, Released, Settled, Unknown};
    matches!(outcome, Settled | Forgiven | Unknown | Released | BlockStarted | BlockDropped)
}

/// Whether a source can decide so, for a policy that may delay and that others apply with.
fn is_possible(outcome: Outcome, source: Source) -> bool {
    use Outcome::{Allowed, Blocked, Denied, NeverPossible, NoKey, NotCharged};
    use Outcome::{ShadowAllowed, ShadowDenied, ShadowDropped};
    match source {
        Source::Rule => matches!(outcome, NoKey | ShadowDenied | ShadowDropped),
        Source::Lease => matches!(outcome, Allowed | ShadowAllowed),
        Source::DenyCache => matches!(outcome, NotCharged | Denied | Blocked | NeverPossible | ShadowDenied),
        Source::FailurePolicy => matches!(outcome, Allowed | Denied | ShadowAllowed | ShadowDenied),
        // The store, and a fallback, which is one.
        _ => !matches!(outcome, NoKey | ShadowDropped) && !decides_nothing(outcome),
    }
}
