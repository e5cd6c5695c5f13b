//! Counts decisions, as an observer of the limiter.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use serde::Serialize;
use sketches_ddsketch::DDSketch;
use tollgate::store::Source;
use tollgate::{Decision, Outcome};

/// What was decided since the start. The limiter adds to it, and the page shows it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    policies: RwLock<Vec<Arc<OfPolicy>>>,
    sources: [AtomicU64; Source::ALL.len()],
    latencies: Mutex<Latencies>,
}

#[derive(Debug, Default)]
struct OfPolicy {
    name: String,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    units: [AtomicU64; Outcome::ALL.len()],
}

/// The latencies of the store in seconds, since the last turn and the one before. A percentile has
/// an error of at most 1 %.
#[derive(Default)]
struct Latencies {
    recent: DDSketch,
    earlier: DDSketch,
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latencies").finish_non_exhaustive()
    }
}

/// Units that were charged before the work, and what became of them after it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Units {
    reserved: u64,
    settled: u64,
    forgiven: u64,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Percentiles {
    p50: u64,
    p99: u64,
}

impl Counts {
    /// Counts the outcomes of these policies, and no longer of others.
    pub(crate) fn show<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) {
        if self.policies().iter().map(|policy| policy.name.as_str()).eq(names.clone()) {
            return;
        }
        let mut policies = self.policies.write().unwrap_or_else(PoisonError::into_inner);
        let of_policy = |name: &str| match policies.iter().find(|policy| policy.name == name) {
            Some(known) => Arc::clone(known),
            None => Arc::new(OfPolicy { name: name.to_owned(), ..OfPolicy::default() }),
        };
        *policies = names.map(of_policy).collect();
    }

    pub(crate) fn add(&self, decision: &Decision<'_>) {
        let name = decision.policy().name();
        if let Some(policy) = self.policies().iter().find(|policy| policy.name == name) {
            let outcome = decision.outcome() as usize;
            policy.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
            policy.units[outcome].fetch_add(decision.units(), Ordering::Relaxed);
        }
        // The end of a charge or of a slot decides nothing, and nor does what becomes of a block.
        use Outcome::{BlockDropped, BlockStarted, Forgiven, Released, Settled, Unknown};
        let follows = [Settled, Forgiven, Unknown, Released, BlockStarted, BlockDropped];
        if follows.contains(&decision.outcome()) {
            return;
        }
        self.sources[decision.source() as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(latency) = decision.latency() {
            self.latencies().recent.add(latency.as_secs_f64());
        }
    }

    /// Returns the name of each policy, and its decisions in the order of [`Outcome::ALL`].
    pub(crate) fn outcomes(&self) -> Vec<(String, [u64; Outcome::ALL.len()])> {
        let policies = self.policies();
        policies.iter().map(|policy| (policy.name.clone(), policy.outcomes.each_ref().map(read))).collect()
    }

    /// Returns the units of each policy.
    pub(crate) fn units(&self) -> Vec<Units> {
        let of_policy = |policy: &Arc<OfPolicy>| {
            let units = |outcome: Outcome| read(&policy.units[outcome as usize]);
            Units {
                reserved: units(Outcome::Allowed),
                settled: units(Outcome::Settled),
                forgiven: units(Outcome::Forgiven),
            }
        };
        self.policies().iter().map(of_policy).collect()
    }

    fn policies(&self) -> RwLockReadGuard<'_, Vec<Arc<OfPolicy>>> {
        self.policies.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the decisions of all policies, in the order of [`Source::ALL`].
    pub(crate) fn sources(&self) -> [u64; Source::ALL.len()] {
        self.sources.each_ref().map(read)
    }

    /// Returns the latency of the store since the turn before the last one; `None` without answers.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let mut both = self.latencies().earlier.clone();
        both.merge(&self.latencies().recent).ok()?;
        let microseconds = |quantile| {
            let latency = Duration::try_from_secs_f64(both.quantile(quantile).ok()??).ok()?;
            u64::try_from(latency.as_micros()).ok()
        };
        Some(Percentiles { p50: microseconds(0.5)?, p99: microseconds(0.99)? })
    }

    /// Forgets the latencies from before the last turn.
    pub(crate) fn turn(&self) {
        let latencies = &mut *self.latencies();
        latencies.earlier = mem::take(&mut latencies.recent);
    }

    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
