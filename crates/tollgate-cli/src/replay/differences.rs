//! Verdicts of a replay that are not those of the log.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_micros;
use tollgate::{Rule, Timestamp};

use super::line::LoggedDecision;
use super::log::SortedLog;
use crate::chart::human;
use crate::output::printable;
use crate::table::table;

/// Compares verdicts, and says why they differ as far as a log shows it.
pub(super) struct Differences {
    /// The latest version of the rules in the log.
    version: u64,
    /// The rules that were in shadow for a part of the log.
    shadow_rules: HashSet<String>,
    /// For how long keys owe what they have used, and when the log began.
    memory: Duration,
    began: Option<Timestamp>,
    compared: u64,
    reasons: BTreeMap<String, u64>,
    most_rows: usize,
    rows: Vec<[String; 5]>,
    /// The rules and keys of requests that differed.
    keys: HashSet<(String, String)>,
}

impl Differences {
    pub(super) fn new(rules: &[Rule], log: &SortedLog, most_rows: usize) -> Differences {
        let memory = |rule: &Rule| {
            let windows = rule.policy().capacity() / rule.policy().quota().limit() + 2;
            rule.policy().quota().window().saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX))
        };
        let memory = rules.iter().map(memory).max().unwrap_or_default();
        let (reasons, rows, keys) = (BTreeMap::new(), Vec::new(), HashSet::new());
        let (version, shadow_rules) = (log.version, log.shadow_rules.clone());
        Differences {
            version,
            shadow_rules,
            memory,
            began: None,
            compared: 0,
            reasons,
            most_rows,
            rows,
            keys,
        }
    }

    /// Compares the verdict on a request with that of the log. `is_at_limit` says that a
    /// millisecond may change it.
    pub(super) fn compare(
        &mut self,
        line: u64,
        time: Timestamp,
        logged: &LoggedDecision,
        refused_by: &[&str],
        is_at_limit: bool,
    ) {
        self.compared += 1;
        let began = *self.began.get_or_insert(time);
        if logged.allowed == refused_by.is_empty() {
            return;
        }
        let keys = logged.checks.iter().map(|check| (check.rule.clone(), check.key.clone()));
        let known = self.keys.len() + logged.checks.len();
        self.keys.extend(keys);
        let has_differed = self.keys.len() < known;
        let reason = match logged.allowed {
            _ if logged.version != self.version => format!("version {} of the rules decided", logged.version),
            false if logged.refused_by().any(|rule| self.shadow_rules.contains(rule)) => {
                "its rule was in shadow, and counted there".to_owned()
            }
            _ if has_differed => "its key has differed before".to_owned(),
            false if time < began.saturating_add(self.memory) => {
                "its key may have been used before the log began".to_owned()
            }
            _ if is_at_limit => "at its limit, where inexact times decide".to_owned(),
            _ => "other rules decided, or the log lacks requests".to_owned(),
        };
        *self.reasons.entry(reason.clone()).or_default() += 1;
        if self.rows.len() < self.most_rows {
            let verdict = |refused_by: &[&str]| match refused_by {
                [] => "allowed".to_owned(),
                rules => format!("refused: {}", printable(&rules.join(", "))),
            };
            let time = format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(time.as_micros()));
            let in_log = verdict(&logged.refused_by().collect::<Vec<_>>());
            self.rows.push([line.to_string(), time.to_string(), in_log, verdict(refused_by), reason]);
        }
    }

    /// How many verdicts differ, why, and the first of them.
    pub(super) fn tables(&self) -> String {
        let differing = self.reasons.values().sum();
        let mut text = format!("{} verdicts compared, {} differ\n", human(self.compared), human(differing));
        if differing > 0 {
            let reasons = self.reasons.iter().map(|(reason, count)| [reason.clone(), human(*count)]);
            text += &format!("\n{}", table(&["reason", "verdicts"], &reasons.collect::<Vec<_>>()));
            text += &format!("\n{}", table(&["line", "time", "in the log", "now", "reason"], &self.rows));
        }
        text
    }
}
