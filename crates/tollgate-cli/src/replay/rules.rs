//! The rules of a file that a log can be replayed by.

use tollgate::config::{
    ConfigError, CostConfig, KeyExpression, KeyPart, LimitConfig, Registry, RuleConfig, RuleFile,
};
use tollgate::{Head, Key, MissingKey, Rule};

use super::line::{LoggedCheck, LoggedDecision};
use super::log::SortedLog;

/// Returns the rules that can be replayed. Of the others, the names, and why they cannot.
pub(super) fn choose(file: &RuleFile, log: &SortedLog) -> (Vec<Rule>, Vec<(String, String)>) {
    let (mut rules, mut skipped) = (Vec::new(), Vec::new());
    for config in file.rules() {
        match replayed(config, log) {
            Ok(rule) => rules.push(rule),
            Err(reason) => skipped.push((config.name.clone(), reason)),
        }
    }
    (rules, skipped)
}

fn replayed(config: &RuleConfig, log: &SortedLog) -> Result<Rule, String> {
    let fields = serde_json::to_value(config).map_err(|error| error.to_string())?;
    let lacks = |field: &str| format!("the log lacks what {field} = {} needs", fields[field]);
    let unnamed = |error: ConfigError| lacks(error.field().unwrap_or("name"));
    if matches!(config.limit, LimitConfig::InFlight { .. }) {
        return Err(lacks("in-flight"));
    }
    if config.block.is_some() {
        return Err("blocks are not replayed: remove its block to replay the rest".to_owned());
    }
    let mut edited = config.clone();
    if !log.rules.contains(&*config.name) {
        let has = |part: &KeyPart| match part {
            KeyPart::Ip | KeyPart::Method | KeyPart::Global => true,
            KeyPart::BasicUser => !log.is_json,
            KeyPart::Header(name) => log.is_combined && (name == "referer" || name == "user-agent"),
            _ => false,
        };
        let header = config.when.as_ref().and_then(|when| when.header.clone());
        if !config.by.0.iter().flatten().all(has) {
            return Err(lacks("by"));
        }
        if header.is_some_and(|name| !has(&KeyPart::Header(name))) {
            return Err(lacks("when"));
        }
        if log.is_json {
            // A line may lack the address of its client.
            edited.missing_key = MissingKey::Skip;
        }
        return Registry::new().rule(&edited).map_err(unnamed);
    }
    // The log says to which requests the rule applied, by which key, and what they cost.
    edited.by = KeyExpression(vec![vec![KeyPart::Named("logged".to_owned())]]);
    edited.missing_key = MissingKey::Skip;
    edited.exempt.clear();
    if let Some(when) = &mut edited.when {
        when.header = None;
    }
    let has_cost = matches!(config.cost, Some(CostConfig::Units { .. }));
    edited.cost = edited.cost.filter(|cost| !matches!(cost, CostConfig::Named { .. }));
    let of_key = config.name.clone();
    let find = move |head: &Head<'_>| check(head, &of_key).map(|check| Key::from(&check.key));
    let rule = Registry::new().key("logged", find).rule(&edited).map_err(unnamed)?;
    let of_cost = config.name.clone();
    let cost = move |head: &Head<'_>| check(head, &of_cost).map_or(1, |check| check.cost);
    Ok(if has_cost { rule } else { rule.cost(cost) })
}

fn check<'a>(head: &Head<'a>, rule: &str) -> Option<&'a LoggedCheck> {
    head.extensions().get::<LoggedDecision>()?.check(rule)
}
