//! What the page shows at one moment, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate::usage::top_keys::KeyUsage;

use super::blocks::BlockedKey;
use super::counts::{Percentiles, Units};
use super::minute::Series;
use super::shown_key::shown_of_log;
use super::slots::InUse;

/// A snapshot. It contains the whole minute: a page that misses some snapshots loses nothing.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot<'a> {
    /// Headers that requests need, as `name: value`.
    pub(crate) headers: Vec<&'a str>,
    /// The file that the rules are from, if they are from one.
    pub(crate) rules_file: Option<RulesFile<'a>>,
    pub(crate) policies: Vec<OfPolicy<'a>>,
    /// Rules that are not shown.
    pub(crate) more: usize,
    pub(crate) sources: BTreeMap<&'static str, &'a Series>,
    /// Where the limits are.
    pub(crate) place: &'a str,
    pub(crate) latency: Option<Percentiles>,
    /// The state of the circuit; `None` without a circuit breaker.
    pub(crate) circuit: Option<&'static str>,
    /// The keys that were denied most.
    pub(crate) denied: &'a [DeniedKey],
    /// The latest keys that are blocked; `None` without a rule that blocks.
    pub(crate) blocked: Option<Vec<BlockedKey>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RulesFile<'a> {
    pub(crate) path: &'a str,
    /// The version of the rules.
    pub(crate) version: u64,
    /// The time of their latest change, in milliseconds since 1970.
    pub(crate) since: u64,
    /// Why the file as it is now is not used.
    pub(crate) error: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct OfPolicy<'a> {
    pub(crate) name: &'a str,
    /// The rule in words.
    pub(crate) rule: &'a str,
    pub(crate) outcomes: BTreeMap<&'static str, &'a Series>,
    pub(crate) units: Units,
    /// `None` unless it is for requests in flight.
    pub(crate) slots: Option<InUse>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeniedKey {
    policy: String,
    key: String,
    count: u64,
}

impl From<KeyUsage> for DeniedKey {
    fn from(usage: KeyUsage) -> DeniedKey {
        let KeyUsage { policy, key, count, .. } = usage;
        DeniedKey { policy, key: shown_of_log(key), count }
    }
}
