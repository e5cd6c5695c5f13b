//! The rules of a file that a log can be replayed by.

use serde_json::Value;
use tollgate::config::{ConfigError, Registry, RuleConfig, RuleFile};
use tollgate::{Head, Key, Rule};

use super::line::{LoggedCheck, LoggedDecision};
use super::log::SortedLog;

/// Returns the rules that can be replayed. Of the others, the names, and why they cannot.
pub(super) fn choose(file: &RuleFile, log: &SortedLog) -> (Vec<Rule>, Vec<(String, String)>) {
    let (mut rules, mut skipped) = (Vec::new(), Vec::new());
    for config in file.rules() {
        match replayed(config, log) {
            Ok(rule) => rules.push(rule),
            Err(reason) => skipped.push((config.name().to_owned(), reason)),
        }
    }
    (rules, skipped)
}

fn replayed(config: &RuleConfig, log: &SortedLog) -> Result<Rule, String> {
    let mut fields = serde_json::to_value(config).map_err(|error| error.to_string())?;
    let original = fields.clone();
    let lacks = |field: &str| format!("the log lacks what {field} = {} needs", original[field]);
    let unnamed = |error: ConfigError| lacks(error.field().unwrap_or("name"));
    if original["in-flight"].is_number() {
        return Err(lacks("in-flight"));
    }
    if original["block"].is_object() {
        return Err("blocks are not replayed: remove its block to replay the rest".to_owned());
    }
    if !log.rules.contains(config.name()) {
        let has = |part: &str| match part {
            "ip" | "method" | "global" => true,
            "basic-user" => !log.is_json,
            "header:referer" | "header:user-agent" => log.is_combined,
            _ => false,
        };
        let by = original["by"].as_str().unwrap_or_default();
        let header = original["when"]["header"].as_str();
        return match header {
            _ if !by.split(['|', '+']).all(|part| has(part.trim())) => Err(lacks("by")),
            Some(name) if !has(&format!("header:{name}")) => Err(lacks("when")),
            // A line may lack the address of its client.
            _ if log.is_json => {
                fields["missing-key"] = "skip".into();
                let config = serde_json::from_value(fields).map_err(|error| error.to_string())?;
                Registry::new().rule(&config).map_err(unnamed)
            }
            _ => Registry::new().rule(config).map_err(unnamed),
        };
    }
    // The log says to which requests the rule applied, by which key, and what they cost.
    fields["by"] = "logged".into();
    fields["missing-key"] = "skip".into();
    remove(&mut fields, "exempt");
    if let Some(when) = fields.get_mut("when") {
        remove(when, "header");
    }
    let has_cost = original["cost"].is_number();
    if !has_cost {
        remove(&mut fields, "cost");
    }
    let config: RuleConfig = serde_json::from_value(fields).map_err(|error| error.to_string())?;
    let of_key = config.name().to_owned();
    let find = move |head: &Head<'_>| check(head, &of_key).map(|check| Key::from(&check.key));
    let rule = Registry::new().key("logged", find).rule(&config).map_err(unnamed)?;
    let of_cost = config.name().to_owned();
    let cost = move |head: &Head<'_>| check(head, &of_cost).map_or(1, |check| check.cost);
    Ok(if has_cost { rule } else { rule.cost(cost) })
}

fn remove(table: &mut Value, field: &str) {
    _ = table.as_object_mut().and_then(|fields| fields.remove(field));
}

fn check<'a>(head: &Head<'a>, rule: &str) -> Option<&'a LoggedCheck> {
    head.extensions().get::<LoggedDecision>()?.check(rule)
}
