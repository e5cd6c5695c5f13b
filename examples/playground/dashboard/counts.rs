//! Counts decisions, as an observer of the limiter.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use tollgate::store::Source;
use tollgate::{Decision, Outcome};

/// A longer answer counts as this, in microseconds.
const LONGEST: u64 = 60_000_000;

/// What was decided since the start. The limiter adds to it, and the page shows it.
#[derive(Debug)]
pub(crate) struct Counts {
    policies: Vec<OfPolicy>,
    sources: [AtomicU64; Source::ALL.len()],
    latencies: Mutex<Latencies>,
}

#[derive(Debug)]
struct OfPolicy {
    name: String,
    outcomes: [AtomicU64; Outcome::ALL.len()],
}

/// The latencies of the store in microseconds, since the last turn and the one before.
#[derive(Debug)]
struct Latencies {
    recent: Histogram<u64>,
    earlier: Histogram<u64>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Percentiles {
    p50: u64,
    p99: u64,
}

impl Counts {
    /// Counts the outcomes of these policies.
    pub(crate) fn new<'a>(policies: impl Iterator<Item = &'a str>) -> Counts {
        let of_policy = |name: &str| OfPolicy { name: name.to_owned(), outcomes: Default::default() };
        let latencies = Latencies { recent: histogram(), earlier: histogram() };
        Counts {
            policies: policies.map(of_policy).collect(),
            sources: Default::default(),
            latencies: Mutex::new(latencies),
        }
    }

    pub(crate) fn add(&self, decision: &Decision<'_>) {
        let name = decision.policy().name();
        if let Some(policy) = self.policies.iter().find(|policy| policy.name == name) {
            policy.outcomes[decision.outcome() as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.sources[decision.source() as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(latency) = decision.latency() {
            self.latencies().recent.saturating_record(microseconds(latency));
        }
    }

    /// Returns the decisions of each policy, in the order of [`Outcome::ALL`].
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = [u64; Outcome::ALL.len()]> {
        self.policies.iter().map(|policy| policy.outcomes.each_ref().map(read))
    }

    /// Returns the decisions of all policies, in the order of [`Source::ALL`].
    pub(crate) fn sources(&self) -> [u64; Source::ALL.len()] {
        self.sources.each_ref().map(read)
    }

    /// Returns the latency of the store since the turn before the last one; `None` without answers.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let mut both = self.latencies().earlier.clone();
        both.add(&self.latencies().recent).ok()?;
        let percentiles = Percentiles { p50: both.value_at_quantile(0.5), p99: both.value_at_quantile(0.99) };
        (!both.is_empty()).then_some(percentiles)
    }

    /// Forgets the latencies from before the last turn.
    pub(crate) fn turn(&self) {
        let latencies = &mut *self.latencies();
        mem::swap(&mut latencies.recent, &mut latencies.earlier);
        latencies.recent.reset();
    }

    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// An empty histogram with an error of at most 1 %.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are valid")
}

fn microseconds(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)
}
