//! A rule of a file, checked.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use serde_json::json;
use tollgate_core::Policy;

use super::error::{ConfigError, Mistake};
use super::fields::RuleFields;
use super::message::escaped;
use super::registry::Registry;
use crate::extract::Head;

/// A rule as a file says it. Its values are checked; the names of closures are looked up by
/// [`Registry::rules`].
///
/// It is made of a [`RuleFile`](super::RuleFile), of a part of the application's own configuration
/// by [serde](https://serde.rs), or of one line:
/// `NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]` for a quota, or
/// `NAME=N[,key=K][,lease=D][,max-wait=D]` for requests in flight. `key` is the `by` of a file, and
/// is `ip` if it is left out.
///
/// ```
/// use tollgate::config::RuleConfig;
///
/// let rule: RuleConfig = "api=5/10s,burst=20,key=header:x-api-key|ip".parse()?;
/// assert_eq!(rule.policy().quota().to_string(), "5/10s burst 20");
/// assert_eq!(
///     rule.in_words(),
///     "5 per 10 seconds for each value of the header x-api-key, else client address; at most 20 at once (gcra)"
/// );
/// # Ok::<(), tollgate::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RuleConfig {
    pub(super) fields: RuleFields,
    policy: Policy,
}

impl RuleConfig {
    /// Checks all values that need no closure of the application.
    pub(super) fn try_new(fields: RuleFields) -> Result<RuleConfig, ConfigError> {
        match Registry::of_any_name().build(&fields) {
            Ok(rule) => Ok(RuleConfig { policy: rule.policy().clone(), fields }),
            Err(mistake) => Err(mistake_in(&fields, mistake)),
        }
    }

    /// The name of the policy.
    pub fn name(&self) -> &str {
        self.policy.name()
    }

    /// The policy of callers without a tier.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the rule is for such requests, by its field `when`.
    ///
    /// ```
    /// use tollgate::Head;
    /// use tollgate::config::RuleFile;
    ///
    /// let text = "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"ip\"\nwhen = { path = \"/api/*\" }";
    /// let file = RuleFile::from_toml(text)?;
    /// let request = http::Request::get("/api/users").body(()).unwrap();
    /// assert!(file.rules()[0].applies_to(&Head::from(&request)));
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn applies_to(&self, head: &Head<'_>) -> bool {
        self.fields.when.as_ref().is_none_or(|when| when.is_met_by(head))
    }
}

impl RuleConfig {
    pub(super) fn mistake(&self, field: &'static str, reason: &str) -> ConfigError {
        mistake_in(&self.fields, Mistake::new(field, reason))
    }
}

/// Adds the name of the rule and the value of the field.
pub(super) fn mistake_in(fields: &RuleFields, mistake: Mistake) -> ConfigError {
    let Mistake { field, reason } = mistake;
    let value = serde_json::to_value(fields).ok().and_then(|mut values| Some(values.get_mut(field)?.take()));
    let reason = match value {
        Some(value) if !reason.starts_with('"') => format!("{value}: {reason}"),
        _ => reason,
    };
    let (rule, field, reason) = (Some(fields.name.clone()), Some(field.to_owned()), escaped(&reason));
    ConfigError { line: None, rule, field, reason }
}

impl PartialEq for RuleConfig {
    fn eq(&self, other: &RuleConfig) -> bool {
        self.fields == other.fields
    }
}

impl Serialize for RuleConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(&self.fields, serializer)
    }
}

impl<'de> Deserialize<'de> for RuleConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RuleConfig, D::Error> {
        RuleConfig::try_new(<RuleFields as Deserialize>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// `NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]`, or
/// `NAME=N[,key=K][,lease=D][,max-wait=D]`.
impl FromStr for RuleConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<RuleConfig, ConfigError> {
        let fields = one_line(text);
        fields
            .map_err(|reason| ConfigError { line: None, rule: None, field: None, reason })
            .and_then(RuleConfig::try_new)
    }
}

fn one_line(text: &str) -> Result<RuleFields, String> {
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
        false => &["key", "lease", "max-wait"],
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
    serde_json::from_value(fields).map_err(|error| escaped(&error.to_string()))
}
