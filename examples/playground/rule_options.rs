//! The rules of the command line. Each option adds fields to a rule, as a file of rules has them.

use serde_json::{Value, json};
use tollgate::config::{Registry, RuleConfig};

use crate::cli::{Action, Cli};
use crate::live_rules::LiveRule;
use crate::login;
use crate::registry::{BATCH, CLASS_HEADER, ESTIMATE, NOT_LOGIN, ONE, TRANSFER};
use crate::tokens;

/// The rule of a server whose command line has none.
const DEFAULT_RULE: &str = "api=10/10s";

/// Errors are one line, which names the option and quotes its value.
pub(crate) fn rules(cli: &Cli, registry: &Registry) -> Result<Vec<LiveRule>, String> {
    let default = (cli.rules.is_empty() && cli.in_flight.is_empty()).then_some(DEFAULT_RULE);
    let rates = cli.rules.iter().map(String::as_str).chain(default);
    let known = |rule: RuleConfig| registry.rule(&rule).map(|_| rule).map_err(|error| error.to_string());
    let rates = rates.map(|text| of_option("--rule", text, read_rate(text).and_then(known)));
    let slots = cli.in_flight.iter();
    let slots = slots.map(|text| of_option("--in-flight", text, read_in_flight(text).and_then(known)));
    let mut rules = rates.chain(slots).collect::<Result<Vec<RuleConfig>, String>>()?;
    for text in &cli.block {
        of_option("--block", text, add_block(text, &mut rules))?;
    }
    for text in &cli.leaving {
        of_option("--leaving", text, add_leaving(text, &mut rules))?;
    }
    let missing_key = match cli.missing_key {
        Action::Refuse => None,
        Action::Skip => Some("skip"),
        Action::Share => Some("one-key"),
    };
    let finish = |rule: &RuleConfig| {
        let rule = match missing_key {
            Some(action) => with(rule, "missing-key", action.into())?,
            None => rule.clone(),
        };
        LiveRule::from_config(registry, &rule).map_err(|error| error.to_string())
    };
    rules.iter().map(finish).collect::<Result<_, String>>().map_err(|error| format!("--missing-key: {error}"))
}

fn of_option<T>(option: &str, text: &str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|error| format!("{option} {text:?}: {error}"))
}

fn read_rate(text: &str) -> Result<RuleConfig, String> {
    let rule: RuleConfig = text.parse().map_err(|error| format!("{error}"))?;
    match rule.name() {
        _ if rule.policy().is_in_flight() => {
            Err("expected NAME=LIMIT/WINDOW: --in-flight limits requests in flight".to_owned())
        }
        tokens::RULE => with(&rule, "reserve", ESTIMATE.into()),
        login::RULE => with(&with(&rule, "reserve", ONE.into())?, "exempt", NOT_LOGIN.into()),
        _ => with(&rule, "cost", TRANSFER.into()),
    }
}

fn read_in_flight(text: &str) -> Result<RuleConfig, String> {
    let rule: RuleConfig = text.parse().map_err(|error| format!("{error}"))?;
    match rule.name() {
        _ if !rule.policy().is_in_flight() => Err("expected NAME=N: --rule limits rates".to_owned()),
        name @ (tokens::RULE | login::RULE | login::TURN) => {
            Err(format!("{name} has a meaning of its own: choose another name"))
        }
        _ => Ok(rule),
    }
}

/// `RULE=DENIALS/TIME`.
fn add_block(text: &str, rules: &mut [RuleConfig]) -> Result<(), String> {
    let parts = text.split_once('=').and_then(|(name, block)| Some((name, block.split_once('/')?)));
    let (name, (after, time)) = parts.ok_or("expected RULE=DENIALS/TIME, such as login=20/15m")?;
    add(name, "block", json!({ "after": number(after), "for": time }), rules)
}

/// `RULE=UNITS`.
fn add_leaving(text: &str, rules: &mut [RuleConfig]) -> Result<(), String> {
    let (name, units) = text.split_once('=').ok_or("expected RULE=UNITS, such as api=200")?;
    add(name, "leaving", json!({ "by": CLASS_HEADER, "units": { BATCH: number(units) } }), rules)
}

/// What is not a number stays a text, which the field refuses.
fn number(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
}

/// Adds a field to the rule with this name.
fn add(name: &str, field: &str, value: Value, rules: &mut [RuleConfig]) -> Result<(), String> {
    let rule = rules.iter_mut().find(|rule| rule.name() == name);
    let rule = rule.ok_or_else(|| format!("there is no rule {name:?}"))?;
    *rule = with(rule, field, value)?;
    Ok(())
}

fn with(rule: &RuleConfig, field: &str, value: Value) -> Result<RuleConfig, String> {
    let mut fields = serde_json::to_value(rule).map_err(|error| error.to_string())?;
    if fields.get(field).is_some() {
        return Err(format!("the rule {:?} has this option already", rule.name()));
    }
    fields[field] = value;
    serde_json::from_value(fields).map_err(|error| error.to_string())
}
