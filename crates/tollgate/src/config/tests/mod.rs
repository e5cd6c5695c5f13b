//! Tests of whole files.

#[cfg(feature = "calendar")]
mod calendar;
mod files;
mod keys;
mod mistakes;
mod mistakes_in_form;
mod requests;

use super::{Registry, RuleFile};

/// What `FIELDS` stands for in the messages below.
const FIELDS: &str = "`name`, `quota`, `zone`, `anchor`, `in-flight`, `by`, `algorithm`, `buckets`, `max-limit`, `max-wait`, `lease`, `held-at-most`, `when`, `exempt`, \
                      `missing-key`, `cost`, `reserve`, `reserve-at-most`, `count-if`, `cost-by`, `quota-by`, `tiers`, `leaving`, `block`, `unit`, `track-usage`, `without-fields`, `mode`";

fn of_toml(text: &str) -> String {
    let rules = RuleFile::from_toml(text).and_then(|file| Registry::new().rules(&file));
    rules.map(drop).unwrap_err().to_string()
}

fn of_json(text: &str) -> String {
    let rules = RuleFile::from_json(text).and_then(|file| Registry::new().rules(&file));
    rules.map(drop).unwrap_err().to_string()
}
