//! What a replay counts, as tables.

use std::collections::{BTreeMap, HashMap};

use tollgate::{Key, Rule, Timestamp};

use crate::chart::{human, utc};
use crate::output::printable;
use crate::table::table;

const HOUR_US: u64 = 3_600_000_000;

/// The requests of an hour, those that were refused, and those that the log says were refused.
type HourCounts = [u64; 3];

#[derive(Default)]
pub(super) struct ReplayCounts {
    /// By the number of the rule and the hour.
    hours: BTreeMap<(usize, u64), HourCounts>,
    all: HourCounts,
    /// How many requests with this key each rule refused.
    keys: HashMap<(usize, Key), u64>,
}

impl ReplayCounts {
    /// Counts a request for all rules together.
    pub(super) fn add(&mut self, refused: bool, refused_in_log: bool) {
        count(&mut self.all, refused, refused_in_log);
    }

    /// Counts a request for a rule that applied to it.
    pub(super) fn add_to(&mut self, rule: usize, time: Timestamp, refused: bool, refused_in_log: bool) {
        let hour = self.hours.entry((rule, time.as_micros() / HOUR_US)).or_default();
        count(hour, refused, refused_in_log);
    }

    /// Counts a refusal for its key.
    pub(super) fn add_key(&mut self, rule: usize, key: Key) {
        *self.keys.entry((rule, key)).or_default() += 1;
    }

    /// The table by rule and hour.
    pub(super) fn hours(&self, rules: &[Rule], has_verdicts: bool) -> String {
        let row = |rule: String, hour: String, counts: &HourCounts| {
            let [requests, refused, in_log] = counts.map(human);
            [rule, hour, requests, refused, if has_verdicts { in_log } else { "?".to_owned() }]
        };
        let mut rows = Vec::new();
        for ((rule, hour), counts) in &self.hours {
            rows.push(row(name(rules, *rule), utc(hour * 60), counts));
        }
        rows.push(row("all rules".to_owned(), "in all".to_owned(), &self.all));
        table(&["rule", "hour (UTC)", "requests", "refused", "in the log"], &rows)
    }

    /// The table of the most refused keys.
    pub(super) fn keys(&self, rules: &[Rule], most: usize) -> String {
        let mut keys: Vec<_> =
            self.keys.iter().map(|((rule, key), count)| (count, *rule, key.to_text())).collect();
        keys.sort_unstable_by(|a, b| b.0.cmp(a.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
        keys.truncate(most);
        let rows = keys.into_iter().map(|(count, rule, key)| [name(rules, rule), key, human(*count)]);
        table(&["rule", "key", "refused"], &rows.collect::<Vec<_>>())
    }
}

fn count([requests, refused, in_log]: &mut HourCounts, is_refused: bool, is_refused_in_log: bool) {
    *requests += 1;
    *refused += u64::from(is_refused);
    *in_log += u64::from(is_refused_in_log);
}

fn name(rules: &[Rule], rule: usize) -> String {
    printable(rules[rule].policy().name())
}
