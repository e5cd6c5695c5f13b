//! Makes rules of a file by a registry.

use tollgate_core::Key;

use super::error::ConfigError;
use super::file::RuleFile;
use super::registry::Registry;
use super::rule::RuleConfig;
use super::rule_fields::Mode;
use crate::extract::Head;
use crate::rule::Rule;

impl Registry {
    /// Makes the rules of a file, for [`RateLimitLayer::try_new`](crate::RateLimitLayer::try_new).
    ///
    /// # Errors
    /// [`ConfigError`] for the first value that is not valid, for the first name that this registry
    /// does not have, and for the first rule that it [requires](Registry::require) and the file
    /// lacks.
    pub fn rules(&self, file: &RuleFile) -> Result<Vec<Rule>, ConfigError> {
        self.required.iter().try_for_each(|(rule, fields)| check_required(file, rule, fields))?;
        let rule = |(at, config)| self.rule(config).map_err(|error| file.source().in_rule(at, error));
        file.rules().iter().enumerate().map(rule).collect()
    }

    /// Makes one rule.
    ///
    /// # Errors
    /// [`ConfigError`] for the first value that is not valid, and for the first name that this
    /// registry does not have.
    pub fn rule(&self, config: &RuleConfig) -> Result<Rule, ConfigError> {
        self.build(config).map_err(|mistake| mistake.in_rule(&config.name, config))
    }

    /// The key of a request for output: values of headers and cookies, tokens, users, and keys of
    /// the application are the text `hidden`.
    ///
    /// # Errors
    /// [`ConfigError`] for the first name that this registry does not have.
    ///
    /// ```
    /// use tollgate::config::{Registry, RuleConfig};
    /// use tollgate::{Head, Key};
    ///
    /// let rule: RuleConfig = "api=5/s,key=header:x-api-key+method".parse()?;
    /// let request = http::Request::get("/").header("x-api-key", "sesame").body(()).unwrap();
    /// let key = Registry::new().shown_key(&rule, &Head::from(&request))?;
    /// assert_eq!(key.unwrap().to_text(), "(=hidden,=GET)");
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn shown_key(&self, config: &RuleConfig, head: &Head<'_>) -> Result<Option<Key>, ConfigError> {
        let registry = Registry { hides_secrets: true, ..self.clone() };
        Ok(registry.rule(config)?.key(head))
    }
}

/// Checks that a file has a rule with these fields that is enforced.
fn check_required(file: &RuleFile, name: &str, fields: &[&'static str]) -> Result<(), ConfigError> {
    let mistake = |field: Option<&str>, reason: &str| {
        let (rule, field) = (Some(name.to_owned()), field.map(str::to_owned));
        ConfigError { line: None, rule, field, reason: reason.to_owned() }
    };
    let Some(at) = file.rules().iter().position(|rule| rule.name == name) else {
        return Err(mistake(None, "missing: the application needs a rule with this name"));
    };
    let rule = &file.rules()[at];
    let values = serde_json::to_value(rule).unwrap_or_default();
    let missing = fields.iter().find(|field| values.get(**field).is_none());
    let wrong = match missing {
        Some(field) => Some(mistake(Some(field), "missing: the application needs it")),
        None if rule.mode == Mode::Shadow => {
            Some(mistake(Some("mode"), "the application needs this rule, so it cannot be in shadow"))
        }
        None => None,
    };
    wrong.map_or(Ok(()), |error| Err(file.source().in_rule(at, error)))
}
