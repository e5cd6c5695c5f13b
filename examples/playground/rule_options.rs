//! The rules of the command line. Each option changes a rule, as a file of rules has them.

use std::collections::BTreeMap;
use std::str::FromStr;

use tollgate::config::{
    BlockConfig, ConfigError, CostConfig, ExemptionText, LeavingConfig, LimitConfig, Registry, RuleConfig,
};
use tollgate::{MissingKey, TextError};

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
    let rates = cli.rules.iter().map(String::as_str).chain(default).map(|text| ("--rule", text));
    let slots = cli.in_flight.iter().map(|text| ("--in-flight", text.as_str()));
    let options: Vec<(&str, &str)> = rates.chain(slots).collect();
    let rule = |(option, text): &(&str, &str)| {
        let rule = if *option == "--rule" { read_rate(text) } else { read_in_flight(text) };
        of_option(option, text, rule)
    };
    let mut rules = options.iter().map(rule).collect::<Result<Vec<RuleConfig>, String>>()?;
    for text in &cli.block {
        of_option("--block", text, add_block(text, &mut rules))?;
    }
    for text in &cli.leaving {
        of_option("--leaving", text, add_leaving(text, &mut rules))?;
    }
    let finish = |(mut config, (option, text)): (RuleConfig, &(&str, &str))| {
        config.missing_key = match cli.missing_key {
            Action::Refuse => MissingKey::Refuse,
            Action::Skip => MissingKey::Skip,
            Action::Share => MissingKey::OneKey,
        };
        let error = |error: ConfigError| match error.field() {
            Some("block") => format!("--block: {error}"),
            Some("leaving") => format!("--leaving: {error}"),
            _ => format!("{option} {text:?}: {error}"),
        };
        registry.rule(&config).map(|rule| LiveRule::new(rule, &config)).map_err(error)
    };
    rules.into_iter().zip(&options).map(finish).collect()
}

fn of_option<T>(option: &str, text: &str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|error| format!("{option} {text:?}: {error}"))
}

fn read_rate(text: &str) -> Result<RuleConfig, String> {
    let mut rule: RuleConfig = text.parse().map_err(|error: ConfigError| error.to_string())?;
    if is_in_flight(&rule) {
        return Err("expected NAME=LIMIT/WINDOW: --in-flight limits requests in flight".to_owned());
    }
    let reserve = |cost: &str| CostConfig::Reserved { reserve: cost.to_owned(), reserve_at_most: None };
    rule.cost = Some(match &*rule.name {
        tokens::RULE => reserve(ESTIMATE),
        login::RULE => {
            rule.exempt.push(ExemptionText::Named(NOT_LOGIN.to_owned()));
            reserve(ONE)
        }
        _ => CostConfig::Named { cost: TRANSFER.to_owned() },
    });
    Ok(rule)
}

fn read_in_flight(text: &str) -> Result<RuleConfig, String> {
    let rule: RuleConfig = text.parse().map_err(|error: ConfigError| error.to_string())?;
    match &*rule.name {
        _ if !is_in_flight(&rule) => Err("expected NAME=N: --rule limits rates".to_owned()),
        name @ (tokens::RULE | login::RULE | login::TURN) => {
            Err(format!("{name} has a meaning of its own: choose another name"))
        }
        _ => Ok(rule),
    }
}

fn is_in_flight(rule: &RuleConfig) -> bool {
    matches!(rule.limit, LimitConfig::InFlight { .. })
}

/// `RULE=DENIALS/TIME`.
fn add_block(text: &str, rules: &mut [RuleConfig]) -> Result<(), String> {
    let parts = text.split_once('=').and_then(|(name, block)| Some((name, block.split_once('/')?)));
    let (name, (after, time)) = parts.ok_or("expected RULE=DENIALS/TIME, such as login=20/15m")?;
    let time = time.parse().map_err(|error: TextError| error.to_string())?;
    let rule = find(name, rules)?;
    set(&mut rule.block, BlockConfig { after: number(after)?, time }, &rule.name)
}

/// `RULE=UNITS`.
fn add_leaving(text: &str, rules: &mut [RuleConfig]) -> Result<(), String> {
    let (name, units) = text.split_once('=').ok_or("expected RULE=UNITS, such as api=200")?;
    let rule = find(name, rules)?;
    let units = BTreeMap::from([(BATCH.to_owned(), number(units)?)]);
    set(&mut rule.leaving, LeavingConfig { by: CLASS_HEADER.to_owned(), units }, &rule.name)
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number, or too large"))
}

fn find<'a>(name: &str, rules: &'a mut [RuleConfig]) -> Result<&'a mut RuleConfig, String> {
    let rule = rules.iter_mut().find(|rule| rule.name == name);
    rule.ok_or_else(|| format!("there is no rule {name:?}"))
}

fn set<T>(field: &mut Option<T>, value: T, rule: &str) -> Result<(), String> {
    match field.replace(value) {
        Some(_) => Err(format!("the rule {rule:?} has this option already")),
        None => Ok(()),
    }
}
