//! Tests of whole files.

#[cfg(feature = "calendar")]
mod calendar;
mod every_mistake;
pub(super) mod files;
mod keys;
mod mistakes;
mod mistakes_in_form;
mod replacement;
mod requests;
mod secrets;

use super::{ConfigError, Registry, RuleFile};

/// What `FIELDS` stands for in the messages below.
const FIELDS: &str = "`name`, `quota`, `zone`, `anchor`, `in-flight`, `by`, `algorithm`, `buckets`, `max-limit`, `max-wait`, `ttl`, `held-at-most`, `when`, `exempt`, \
                      `missing-key`, `cost`, `reserve`, `reserve-at-most`, `count-if`, `cost-by`, `quota-by`, `tiers`, `leaving`, `block`, `unit`, `track-usage`, `without-fields`, `mode`";

/// The error of a text with one mistake.
fn of_toml(text: &str) -> String {
    of(RuleFile::from_toml(text), &RuleFile::mistakes_in_toml(text))
}

fn of_json(text: &str) -> String {
    of(RuleFile::from_json(text), &RuleFile::mistakes_in_json(text))
}

fn of(file: Result<RuleFile, ConfigError>, mistakes: &[ConfigError]) -> String {
    let checked = |registry: &Registry, file: RuleFile| registry.rules(&file).map(|_| file);
    let file = file.and_then(|file| checked(&Registry::of_any_name(), file));
    assert_eq!(mistakes, Vec::from_iter(file.as_ref().err().cloned()));
    file.and_then(|file| checked(&Registry::new(), file)).map(drop).unwrap_err().to_string()
}
