//! What a replay counts, as tables.

use std::collections::{BTreeMap, HashMap};

use tollgate::{Key, Timestamp};

use crate::chart::{human, utc};
use crate::output::printable;
use crate::table::table;

const HOUR_US: u64 = 3_600_000_000;

/// The counts of rules by their numbers, and of all together.
pub(super) struct ReplayCounts {
    names: Vec<String>,
    /// The requests of an hour, those that were refused, and those that were refused in the log.
    hours: BTreeMap<(usize, u64), [u64; 3]>,
    /// How many requests with this key each rule refused.
    keys: HashMap<(usize, Key), u64>,
}

impl ReplayCounts {
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a str>) -> ReplayCounts {
        let names = rules.map(printable).chain(["all rules".to_owned()]).collect();
        ReplayCounts { names, hours: BTreeMap::new(), keys: HashMap::new() }
    }

    /// How many rules there are, which is the number of all together.
    pub(super) fn rules(&self) -> usize {
        self.names.len() - 1
    }

    /// Counts a request to which a rule applied.
    pub(super) fn add(&mut self, rule: usize, time: Timestamp, refused: bool, refused_in_log: bool) {
        let hour = if rule == self.rules() { 0 } else { time.as_micros() / HOUR_US };
        let counts = self.hours.entry((rule, hour)).or_default();
        for (count, is_counted) in counts.iter_mut().zip([true, refused, refused_in_log]) {
            *count += u64::from(is_counted);
        }
    }

    /// Counts a refusal for its key.
    pub(super) fn add_key(&mut self, rule: usize, key: Key) {
        *self.keys.entry((rule, key)).or_default() += 1;
    }

    /// The table by rule and hour.
    pub(super) fn hours(&self, has_verdicts: bool) -> String {
        let row = |(&(rule, hour), counts): (&(usize, u64), &[u64; 3])| {
            let [requests, refused, in_log] = counts.map(human);
            let hour = if rule == self.rules() { "in all".to_owned() } else { utc(hour * 60) };
            let in_log = if has_verdicts { in_log } else { "?".to_owned() };
            [self.names[rule].clone(), hour, requests, refused, in_log]
        };
        let rows: Vec<_> = self.hours.iter().map(row).collect();
        table(&["rule", "hour (UTC)", "requests", "refused", "in the log"], &rows)
    }

    /// The table of the most refused keys.
    pub(super) fn keys(&self, most: usize) -> String {
        let mut keys: Vec<_> =
            self.keys.iter().map(|((rule, key), count)| (count, rule, key.to_readable())).collect();
        keys.sort_unstable_by(|a, b| b.0.cmp(a.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
        keys.truncate(most);
        let rows = keys.into_iter().map(|(count, rule, key)| [self.names[*rule].clone(), key, human(*count)]);
        table(&["rule", "key", "refused"], &rows.collect::<Vec<_>>())
    }
}
