//! A rule in one line.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::json;

use super::error::ConfigError;
use super::message::escaped;
use super::rule::RuleConfig;
use super::rule_fields::RuleFields;

/// `NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]`, or
/// `NAME=N[,key=K][,ttl=D][,max-wait=D]`.
impl FromStr for RuleConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<RuleConfig, ConfigError> {
        fields(text).map_err(ConfigError::of_file).and_then(RuleConfig::try_new)
    }
}

fn fields(text: &str) -> Result<RuleFields, String> {
    let form = || {
        "expected NAME=LIMIT/WINDOW[,OPTION=VALUE]..., such as api=10/10s, or NAME=N[,OPTION=VALUE]... for N requests \
         in flight"
            .to_owned()
    };
    // The first equals sign ends the name, which may contain commas and slashes.
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    let mut parts = rest.split(',');
    let limit = parts.next().unwrap_or_default();
    let known: &[&str] = match limit.contains('/') {
        true => &["burst", "algorithm", "key", "max-wait"],
        false => &["key", "ttl", "max-wait"],
    };
    let mut options = BTreeMap::new();
    for part in parts {
        let (option, value) = part.split_once('=').unwrap_or((part, ""));
        if !known.contains(&option) {
            return Err(format!("{option:?} is not an option: use {}", known.join(", ")));
        }
        if options.insert(option, value).is_some() {
            return Err(format!("{option} is given twice"));
        }
    }
    let by = options.remove("key").unwrap_or("ip");
    let mut fields = json!({ "name": name, "by": by });
    if limit.contains('/') {
        let burst = options.remove("burst").map(|burst| format!(" burst {burst}")).unwrap_or_default();
        fields["quota"] = format!("{limit}{burst}").into();
    } else {
        let digits = limit.bytes().all(|sign| sign.is_ascii_digit());
        fields["in-flight"] = limit.parse::<u64>().ok().filter(|_| digits).ok_or_else(form)?.into();
    }
    for (option, value) in options {
        fields[option] = value.into();
    }
    <RuleFields as Deserialize>::deserialize(fields).map_err(|error| escaped(&error.to_string()))
}
