//! The rules of a layer as data.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::RateLimitLayer;
use crate::plan::Switch;
use crate::rule::Rule;

/// The rules that a layer has now, to be serialized for operators: see
/// [`RateLimitLayer::rules_in_force`].
#[derive(Clone, Debug, Serialize)]
pub struct RulesInForce {
    version: u64,
    enabled: bool,
    rules: Vec<RuleInForce>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    slots_held: BTreeMap<Box<str>, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    blocks_started: BTreeMap<Box<str>, u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum RuleInForce {
    OfFile(Box<RawValue>),
    OfCode(CodedRule),
}

/// What a file could say of a rule that is not from one.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct CodedRule {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
}

impl RuleInForce {
    fn of(rule: &Rule) -> RuleInForce {
        let of_file = rule.fields_text().and_then(|fields| serde_json::from_str(fields).ok());
        of_file.map_or_else(|| RuleInForce::OfCode(CodedRule::of(rule)), RuleInForce::OfFile)
    }
}

impl CodedRule {
    fn of(rule: &Rule) -> CodedRule {
        let policy = rule.policy();
        let (quota, slots) = (policy.quota(), policy.is_in_flight());
        CodedRule {
            name: policy.name().to_owned(),
            quota: (!slots).then(|| quota.to_string()),
            in_flight: slots.then(|| quota.limit()),
            algorithm: (!slots).then(|| policy.algorithm().name()),
            mode: rule.mode(),
        }
    }
}

impl<S> RateLimitLayer<S> {
    /// Returns the rules that requests are decided by now, with their
    /// [version](RateLimitLayer::version), for a route of operators.
    ///
    /// A rule from a [file](crate::config) has the fields of the file. Of a rule in code there are
    /// its name, limit, algorithm and mode. `slots_held` has the slots that this process holds, and
    /// `blocks_started` the blocks that its denials have started, by policy.
    ///
    /// Serve it behind the authentication of your operators: callers that know the rules know how
    /// to stay below them.
    ///
    /// ```
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100).burst(20));
    /// assert_eq!(
    ///     serde_json::to_string(&layer.rules_in_force())?,
    ///     r#"{"version":1,"enabled":true,"rules":[{"name":"default","quota":"100/min burst 20","algorithm":"gcra"}]}"#
    /// );
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn rules_in_force(&self) -> RulesInForce {
        let decider = self.live.load();
        let plan = decider.plan();
        RulesInForce {
            version: plan.version(),
            enabled: plan.switch() == Switch::On,
            rules: plan.rules().map(RuleInForce::of).collect(),
            slots_held: decider.engine.slots_held(),
            blocks_started: decider.engine.blocks_started(),
        }
    }
}

impl RulesInForce {
    /// Returns the version of the rules.
    pub fn version(&self) -> u64 {
        self.version
    }
}
