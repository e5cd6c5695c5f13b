//! What observers, metrics and spans show of decisions.

mod decisions;
mod latency;
mod metrics;
mod sources;
mod spans;
mod stores;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate::store::Source;
use tollgate::{Decision, Outcome};

/// A decision without its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    policy: String,
    outcome: Outcome,
    units: u64,
    source: Source,
    wait: Option<Duration>,
    latency: Option<Duration>,
}

/// All decisions that an observer has seen.
#[derive(Clone, Debug, Default)]
struct Eye(Arc<Mutex<Vec<Seen>>>);

impl Eye {
    fn watch(&self) -> impl Fn(&Decision<'_>) + Send + Sync + 'static {
        let eye = self.clone();
        move |decision| {
            let seen = Seen {
                policy: decision.policy().name().to_owned(),
                outcome: decision.outcome(),
                units: decision.units(),
                source: decision.source(),
                wait: decision.wait(),
                latency: decision.latency(),
            };
            eye.0.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        }
    }

    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Policy, outcome and units of each decision since the last call.
    fn outcomes(&self) -> Vec<(String, Outcome, u64)> {
        self.take().into_iter().map(|seen| (seen.policy, seen.outcome, seen.units)).collect()
    }
}

fn named(each: &[(&str, Outcome, u64)]) -> Vec<(String, Outcome, u64)> {
    each.iter().map(|(policy, outcome, units)| ((*policy).to_owned(), *outcome, *units)).collect()
}
