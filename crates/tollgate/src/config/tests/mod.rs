//! Tests of whole files.

#[cfg(feature = "calendar")]
mod calendar;
mod every_mistake;
pub(super) mod files;
mod keys;
mod mistakes;
mod mistakes_in_form;
mod requests;
mod secrets;
mod warnings;

use super::{Registry, RuleFile};

/// What `FIELDS` stands for in the messages below.
const FIELDS: &str = "`name`, `quota`, `zone`, `anchor`, `in-flight`, `by`, `algorithm`, `buckets`, `max-limit`, `max-wait`, `lease`, `held-at-most`, `when`, `exempt`, \
                      `missing-key`, `cost`, `reserve`, `reserve-at-most`, `count-if`, `cost-by`, `quota-by`, `tiers`, `leaving`, `block`, `unit`, `track-usage`, `without-fields`, `mode`";

/// The error of a text with one mistake.
fn of_toml(text: &str) -> String {
    let file = RuleFile::from_toml(text);
    let error = file.as_ref().err().cloned();
    assert_eq!(RuleFile::mistakes_in_toml(text), Vec::from_iter(error), "{text}");
    file.and_then(|file| Registry::new().rules(&file)).map(drop).unwrap_err().to_string()
}

fn of_json(text: &str) -> String {
    let file = RuleFile::from_json(text);
    let error = file.as_ref().err().cloned();
    assert_eq!(RuleFile::mistakes_in_json(text), Vec::from_iter(error), "{text}");
    file.and_then(|file| Registry::new().rules(&file)).map(drop).unwrap_err().to_string()
}
