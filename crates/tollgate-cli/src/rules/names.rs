//! What only the application knows of a rule.

use tollgate::config::{CorrectionConfig, CostConfig, ExemptionText, KeyPart, LimitConfig, RuleConfig};

/// The names that the file has for what only the application knows. Each has the method of a
/// registry that gives it (`key`, `cost`, `class`, `quota`, `count_if`, `cost_by`, `exempt`). Or it
/// is `route`, with `path`: a router gives it.
pub(super) fn application_names(rule: &RuleConfig) -> Vec<(&'static str, &str)> {
    let keys = rule.by.0.iter().flatten().filter_map(|part| match part {
        KeyPart::Named(name) => Some(("key", name.as_str())),
        KeyPart::Path => Some(("route", "path")),
        _ => None,
    });
    let cost = match &rule.cost {
        Some(CostConfig::Named { cost: name } | CostConfig::Reserved { reserve: name, .. }) => {
            Some(("cost", name))
        }
        _ => None,
    };
    let tiers = match &rule.limit {
        LimitConfig::Rate { tiers, .. } => tiers.as_ref().map(|tiers| &tiers.by),
        LimitConfig::Calendar { tiers, .. } => tiers.as_ref().map(|tiers| &tiers.by),
        LimitConfig::InFlight { tiers, .. } => tiers.as_ref().map(|tiers| &tiers.by),
    };
    let correction = rule.correction.as_ref().map(|correction| match correction {
        CorrectionConfig::CountIf(name) => ("count_if", name),
        CorrectionConfig::CostBy(name) => ("cost_by", name),
    });
    let closures = [
        cost,
        tiers.map(|by| ("class", by)),
        rule.leaving.as_ref().map(|leaving| ("class", &leaving.by)),
        rule.quota_by.as_ref().map(|name| ("quota", name)),
        correction,
    ];
    let closures = closures.into_iter().flatten().map(|(kind, name)| (kind, name.as_str()));
    let exemptions = rule.exempt.iter().filter_map(|each| match each {
        ExemptionText::Named(name) => Some(("exempt", name.as_str())),
        _ => None,
    });
    keys.chain(closures).chain(exemptions).collect()
}
