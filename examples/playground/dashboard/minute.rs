//! What was decided in each second of the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use serde::Serialize;
use tollgate::Outcome;
use tollgate::store::Source;

use super::counts::Counts;

const SECONDS: usize = 60;

/// The last minute of all counters.
#[derive(Debug, Default)]
pub(crate) struct Minute {
    /// The current second since the start.
    second: u64,
    policies: Vec<(String, [Series; Outcome::ALL.len()])>,
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
    /// Adds what was counted since the last call to the current second.
    pub(crate) fn read(&mut self, counts: &Counts, second: u64) {
        let passed = usize::try_from(second.saturating_sub(self.second)).unwrap_or(SECONDS);
        self.second = second;
        let counted = counts.outcomes();
        if !counted.iter().map(|(name, _)| name).eq(self.policies.iter().map(|(name, _)| name)) {
            self.show(&counted);
        }
        let policies = self.policies.iter_mut().zip(counted);
        let outcomes = policies.flat_map(|((_, series), (_, totals))| series.iter_mut().zip(totals));
        for (series, total) in outcomes.chain(self.sources.iter_mut().zip(counts.sources())) {
            series.pass(passed);
            series.read(total);
        }
    }

    /// Keeps the series of these policies, and forgets those of others.
    fn show(&mut self, policies: &[(String, [u64; Outcome::ALL.len()])]) {
        let mut earlier = mem::take(&mut self.policies);
        for (name, _) in policies {
            let known = earlier.iter_mut().find(|(known, _)| known == name);
            let series = known.map(|(_, series)| mem::take(series)).unwrap_or_default();
            self.policies.push((name.clone(), series));
        }
    }

    /// Returns the outcomes of each policy that occurred, in the order of the policies.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = BTreeMap<&'static str, &Series>> {
        self.policies.iter().map(|(_, series)| occurred(Outcome::ALL.map(Outcome::name), series))
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
