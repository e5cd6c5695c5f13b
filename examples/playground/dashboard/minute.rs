//! What was decided in each second of the last minute.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use tollgate::Outcome;
use tollgate::store::Source;

use super::counts::Counts;

const SECONDS: usize = 60;

/// The last minute of all counters.
#[derive(Debug)]
pub(crate) struct Minute {
    /// The current second since the start.
    second: u64,
    policies: Vec<[Series; Outcome::ALL.len()]>,
    sources: [Series; Source::ALL.len()],
}

/// The last minute of one counter.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// The count since the start.
    total: u64,
    /// The count of each second; the last one is the current second.
    seconds: VecDeque<u64>,
}

impl Minute {
    pub(crate) fn new(counts: &Counts) -> Minute {
        let policies = counts.outcomes().map(|_| Default::default()).collect();
        Minute { second: 0, policies, sources: Default::default() }
    }

    /// Adds what was counted since the last call to the current second.
    pub(crate) fn read(&mut self, counts: &Counts, second: u64) {
        let passed = usize::try_from(second.saturating_sub(self.second)).unwrap_or(SECONDS);
        self.second = second;
        let policies = self.policies.iter_mut().zip(counts.outcomes());
        let outcomes = policies.flat_map(|(series, totals)| series.iter_mut().zip(totals));
        for (series, total) in outcomes.chain(self.sources.iter_mut().zip(counts.sources())) {
            series.pass(passed);
            series.read(total);
        }
    }

    /// Returns the outcomes of each policy that occurred, in the order of the policies.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = BTreeMap<&'static str, &Series>> {
        self.policies.iter().map(|series| occurred(Outcome::ALL.map(Outcome::name), series))
    }

    /// Returns what decided, for all policies together.
    pub(crate) fn sources(&self) -> BTreeMap<&'static str, &Series> {
        occurred(Source::ALL.map(Source::name), &self.sources)
    }
}

fn occurred<'a, const N: usize>(
    names: [&'static str; N],
    series: &'a [Series; N],
) -> BTreeMap<&'static str, &'a Series> {
    names.into_iter().zip(series).filter(|(_, series)| series.total > 0).collect()
}

impl Default for Series {
    fn default() -> Series {
        Series { total: 0, seconds: VecDeque::from([0; SECONDS]) }
    }
}

impl Series {
    fn pass(&mut self, seconds: usize) {
        for _ in 0..seconds.min(SECONDS) {
            self.seconds.pop_front();
            self.seconds.push_back(0);
        }
    }

    fn read(&mut self, total: u64) {
        let counted = total.saturating_sub(self.total);
        self.total = total;
        if let Some(current) = self.seconds.back_mut() {
            *current += counted;
        }
    }
}
