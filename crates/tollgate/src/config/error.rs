//! What is wrong with a file of rules.

use std::error::Error;
use std::fmt;

use serde::Serialize;
use tollgate_core::PolicyError;

use super::message::escaped;

/// The reason why rules are refused. Its message is one line: it names the line, the rule, the
/// field, the value, and what is allowed. It quotes nothing of a text that is not of its format,
/// and 20 characters at most of the name of a field.
///
/// ```
/// use tollgate::config::RuleFile;
///
/// let text = r#"
/// [[rule]]
/// name = "api"
/// quota = "100/fortnight"
/// by = "ip"
/// "#;
/// let error = RuleFile::from_toml(text).unwrap_err();
/// assert_eq!((error.line(), error.rule(), error.field()), (Some(4), Some("api"), Some("quota")));
/// assert_eq!(
///     error.to_string(),
///     r#"line 4, rule "api", quota: "fortnight" is not a time such as 10s, 500ms, 5min, h or d"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfigError {
    pub(super) line: Option<usize>,
    pub(super) rule: Option<String>,
    pub(super) field: Option<String>,
    pub(super) reason: String,
}

impl ConfigError {
    pub(super) fn of_file(reason: String) -> ConfigError {
        ConfigError { line: None, rule: None, field: None, reason }
    }

    /// The line of the mistake, from 1. `None` for a rule that was not read from a file.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The name of the rule, if the mistake is in one with a name.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The field, such as `quota` or `when.path`, if the mistake is in one.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// What is wrong, with the value and what is allowed.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!("line {line}"));
        let rule = self.rule.as_ref().map(|rule| format!("rule {:?}", Short(rule)));
        let place: Vec<String> = [line, rule, self.field.clone()].into_iter().flatten().collect();
        match place.is_empty() {
            true => write!(f, "{}", Short(&self.reason)),
            false => write!(f, "{}: {}", place.join(", "), Short(&self.reason)),
        }
    }
}

impl Error for ConfigError {}

/// The beginning of a text that a file may make long.
struct Short<'a>(&'a str);

impl Short<'_> {
    /// In characters.
    const MOST: usize = 1_024;

    fn cut(&self) -> (&str, &'static str) {
        match self.0.char_indices().nth(Short::MOST) {
            Some((end, _)) => (&self.0[..end], "…"),
            None => (self.0, ""),
        }
    }
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, more) = self.cut();
        write!(f, "{text}{more}")
    }
}

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, more) = self.cut();
        write!(f, "{text:?}{more}")
    }
}

/// What is wrong with a field of a rule.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) field: &'static str,
    pub(super) reason: String,
}

impl Mistake {
    pub(super) fn new(field: &'static str, reason: impl fmt::Display) -> Mistake {
        Mistake { field, reason: reason.to_string() }
    }

    /// That of a policy, of which this field is wrong if its name is not.
    pub(super) fn of_policy(field: &'static str, error: PolicyError) -> Mistake {
        Mistake::new(if error == PolicyError::InvalidName { "name" } else { field }, error)
    }

    /// Adds the name of the rule, and the value of the field.
    pub(super) fn in_rule(self, name: &str, fields: &impl Serialize) -> ConfigError {
        let Mistake { field, reason } = self;
        let value =
            serde_json::to_value(fields).ok().and_then(|mut values| Some(values.get_mut(field)?.take()));
        let reason = match value {
            Some(value) if !value.is_null() && !reason.starts_with('"') => format!("{value}: {reason}"),
            _ => reason,
        };
        let (rule, field, reason) = (Some(name.to_owned()), Some(field.to_owned()), escaped(&reason));
        ConfigError { line: None, rule, field, reason }
    }
}

pub(super) fn refuse(is_wrong: bool, field: &'static str, reason: impl fmt::Display) -> Result<(), Mistake> {
    if is_wrong { Err(Mistake::new(field, reason)) } else { Ok(()) }
}
