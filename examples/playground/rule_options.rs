//! Options that add to a rule of another option: `--block RULE=DENIALS/TIME` and
//! `--leaving RULE=UNITS`.

use std::time::Duration;

use tollgate::{Head, Key, Rule, SetupError};

use crate::options::{parse_span, parse_units};
use crate::rule_spec::RuleSpec;

/// The class of requests that `--leaving` is for, and the header that names it.
const CLASS: &str = "batch";
const CLASS_HEADER: &str = "x-class";

/// What options add to rules, each by its name.
#[derive(Debug, Default)]
pub(crate) struct RuleOptions {
    blocks: Vec<(String, u32, Duration)>,
    leaving: Vec<(String, u64)>,
}

impl RuleOptions {
    /// Parses the texts of both options. Errors are one line, and quote the text.
    pub(crate) fn parse(
        blocks: &[String],
        leaving: &[String],
        rules: &[RuleSpec],
    ) -> Result<RuleOptions, String> {
        let mut options = RuleOptions::default();
        for text in blocks {
            let block = parse_block(text, rules).map_err(|error| format!("--block {text:?}: {error}"))?;
            options.blocks.push(block);
        }
        for text in leaving {
            let units = parse_leaving(text, rules).map_err(|error| format!("--leaving {text:?}: {error}"))?;
            options.leaving.push(units);
        }
        Ok(options)
    }

    /// Adds them to a rule.
    pub(crate) fn add_to(&self, mut rule: Rule) -> Result<Rule, SetupError> {
        let name = rule.policy().name().to_owned();
        for (_, denials, time) in self.blocks.iter().filter(|(of, ..)| *of == name) {
            rule = rule.block_after(*denials, *time);
        }
        for (_, units) in self.leaving.iter().filter(|(of, _)| *of == name) {
            rule = rule.try_leaving([(CLASS, *units)], class)?;
        }
        Ok(rule)
    }
}

/// The class of a request. A server would choose it by what it knows of the caller.
fn class(head: &Head<'_>, _: &Key) -> Option<String> {
    Some(head.headers().get(CLASS_HEADER)?.to_str().ok()?.to_owned())
}

fn parse_block(text: &str, rules: &[RuleSpec]) -> Result<(String, u32, Duration), String> {
    let form = || "expected RULE=DENIALS/TIME, such as login=20/15m".to_owned();
    let (name, block) = named(text, rules, form)?;
    let (denials, time) = block.split_once('/').ok_or_else(form)?;
    let denials = u32::try_from(parse_units(denials)?).map_err(|_| "too many denials".to_owned())?;
    let time = parse_span(time)?;
    // A dry run, since a rule panics.
    let policy = rules[0].policy.clone().try_block_after(denials, time);
    policy.map_err(|error| error.to_string())?;
    Ok((name, denials, time))
}

fn parse_leaving(text: &str, rules: &[RuleSpec]) -> Result<(String, u64), String> {
    let (name, units) = named(text, rules, || "expected RULE=UNITS, such as api=200".to_owned())?;
    Ok((name, parse_units(units)?))
}

/// The name of a rule, and what follows its equals sign.
fn named<'a>(
    text: &'a str,
    rules: &[RuleSpec],
    form: impl Fn() -> String,
) -> Result<(String, &'a str), String> {
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    if rules.iter().any(|rule| rule.policy.name() == name) {
        Ok((name.to_owned(), rest))
    } else {
        Err(format!("there is no rule {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_explained_in_one_line() {
        let rules = ["api=10/s".parse::<RuleSpec>().unwrap()];
        let block = |text: &str| RuleOptions::parse(&[text.to_owned()], &[], &rules).map(drop);
        let leaving = |text: &str| RuleOptions::parse(&[], &[text.to_owned()], &rules).map(drop);
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
