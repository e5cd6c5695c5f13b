//! Options that add to a rule of another option: `--block RULE=DENIALS/TIME` and
//! `--leaving RULE=UNITS`.

use tollgate::{Rule, SetupError};

use crate::options::{parse_span, parse_units};
use crate::registry::class;
use crate::rule_spec::RuleSpec;

/// The class of requests that `--leaving` is for.
const CLASS: &str = "batch";

/// What `--leaving` adds to rules, by their names.
#[derive(Debug, Default)]
pub(crate) struct RuleOptions(Vec<(String, u64)>);

impl RuleOptions {
    /// Parses the texts of `--leaving`. Errors are one line, and quote the text.
    pub(crate) fn parse(leaving: &[String], rules: &[RuleSpec]) -> Result<RuleOptions, String> {
        let parse = |text: &String| {
            parse_leaving(text, rules).map_err(|error| format!("--leaving {text:?}: {error}"))
        };
        leaving.iter().map(parse).collect::<Result<_, _>>().map(RuleOptions)
    }

    /// Adds them to a rule.
    pub(crate) fn add_to(&self, mut rule: Rule) -> Result<Rule, SetupError> {
        let name = rule.policy().name().to_owned();
        for (_, units) in self.0.iter().filter(|(of, _)| *of == name) {
            rule = rule.try_leaving([(CLASS, *units)], class)?;
        }
        Ok(rule)
    }
}

/// Makes rules block keys, as the texts of `--block` say. Errors are one line, and quote the text.
pub(crate) fn add_blocks(blocks: &[String], rules: &mut [RuleSpec]) -> Result<(), String> {
    let mut add =
        |text: &String| add_block(text, rules).map_err(|error| format!("--block {text:?}: {error}"));
    blocks.iter().try_for_each(&mut add)
}

fn add_block(text: &str, rules: &mut [RuleSpec]) -> Result<(), String> {
    let form = || "expected RULE=DENIALS/TIME, such as login=20/15m".to_owned();
    let (at, block) = named(text, rules, form)?;
    let (denials, time) = block.split_once('/').ok_or_else(form)?;
    let denials = u32::try_from(parse_units(denials)?).map_err(|_| "too many denials".to_owned())?;
    let policy = rules[at].policy.clone().try_block_after(denials, parse_span(time)?);
    rules[at].policy = policy.map_err(|error| error.to_string())?;
    Ok(())
}

fn parse_leaving(text: &str, rules: &[RuleSpec]) -> Result<(String, u64), String> {
    let (at, units) = named(text, rules, || "expected RULE=UNITS, such as api=200".to_owned())?;
    Ok((rules[at].policy.name().to_owned(), parse_units(units)?))
}

/// The place of the rule that a text names, and what follows its equals sign.
fn named<'a>(
    text: &'a str,
    rules: &[RuleSpec],
    form: impl Fn() -> String,
) -> Result<(usize, &'a str), String> {
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    match rules.iter().position(|rule| rule.policy.name() == name) {
        Some(at) => Ok((at, rest)),
        None => Err(format!("there is no rule {name:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_explained_in_one_line() {
        let rules = ["api=10/s".parse::<RuleSpec>().unwrap()];
        let block = |text: &str| add_blocks(&[text.to_owned()], &mut rules.clone());
        let leaving = |text: &str| RuleOptions::parse(&[text.to_owned()], &rules).map(drop);
        assert_eq!((block("api=3/15m"), leaving("api=9")), (Ok(()), Ok(())));
        for (text, why) in [
            ("", "expected RULE=DENIALS/TIME"),
            ("api=3", "expected RULE=DENIALS/TIME"),
            ("other=3/m", "there is no rule \"other\""),
            ("api=0/m", "\"0\" is not a whole number"),
            ("api=4294967296/m", "too many denials"),
            ("api=3/soon", "\"soon\" is not a time"),
            ("api=3/0s", "lasts 1 ms to 366 days"),
        ] {
            let error = block(text).unwrap_err();
            assert!(error.starts_with("--block ") && error.contains(why), "{text:?}: {error}");
        }
        for (text, why) in
            [("", "expected RULE=UNITS"), ("other=3", "there is no rule"), ("api=", "not a whole number")]
        {
            let error = leaving(text).unwrap_err();
            assert!(error.starts_with("--leaving ") && error.contains(why), "{text:?}: {error}");
        }
    }
}
