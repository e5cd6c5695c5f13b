//! What is probably not meant by a file without mistakes.

use super::error::ConfigError;
use super::fields::MissingKeyName;
use super::file::RuleFile;
use super::registry::Registry;
use super::rule::RuleConfig;
use super::when::When;
use crate::layer::{RateLimitLayer, RuleChange};

impl RuleFile {
    /// Returns a warning for each way around a rule: a key that callers invent, a header or a key
    /// that they omit. There is none if another rule without such a way applies to the same
    /// requests, such as one by address.
    ///
    /// ```
    /// use tollgate::config::RuleFile;
    ///
    /// let by = |by: &str| format!("[[rule]]\nname = \"{by}\"\nquota = \"5/s\"\nby = \"{by}\"\n");
    /// let file = RuleFile::from_toml(&by("bearer"))?;
    /// assert_eq!(file.warnings()[0].line(), Some(4));
    /// let file = RuleFile::from_toml(&(by("bearer") + &by("ip")))?;
    /// assert_eq!(file.warnings(), []);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn warnings(&self) -> Vec<ConfigError> {
        let is_firm = |rule: &&RuleConfig| rule.fields.quota.is_some() && rule.ways_around().is_empty();
        let firm: Vec<Option<&When>> =
            self.rules().iter().filter(is_firm).map(|rule| rule.fields.when.as_ref()).collect();
        let is_open = |rule: &RuleConfig| !When::cover(&firm, rule.fields.when.as_ref());
        let open = self.rules().iter().enumerate().filter(|(_, rule)| is_open(rule));
        let of_rule = |(at, rule): (usize, &RuleConfig)| {
            let ways = rule.ways_around().into_iter();
            ways.map(|(field, reason)| self.in_rule(at, rule.mistake(field, &reason))).collect::<Vec<_>>()
        };
        open.flat_map(of_rule).collect()
    }

    /// Returns what becomes of each rule if this file replaces an earlier one, as
    /// [`RateLimitLayer::replace`] does. A rule with another key starts again too.
    ///
    /// # Errors
    /// [`ConfigError`] if a layer refuses one of the files.
    ///
    /// ```
    /// use tollgate::RuleChange;
    /// use tollgate::config::RuleFile;
    ///
    /// let quota = |quota: &str| format!("[[rule]]\nname = \"api\"\nquota = \"{quota}\"\nby = \"ip\"\n");
    /// let (earlier, next) = (RuleFile::from_toml(&quota("60/min"))?, RuleFile::from_toml(&quota("60/h"))?);
    /// assert_eq!(next.changes_since(&earlier)?, [("api".to_owned(), RuleChange::StartsAgain)]);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn changes_since(&self, earlier: &RuleFile) -> Result<Vec<(String, RuleChange)>, ConfigError> {
        let refused = |error: crate::SetupError| ConfigError::of_file(error.to_string());
        let any = Registry::of_any_name();
        let layer = RateLimitLayer::try_new(any.rules(earlier)?).map_err(refused)?;
        let changes = layer.replace(any.rules(self)?).map_err(refused)?;
        let has_other_key = |rule: &&RuleConfig| {
            let same_name = earlier.rules().iter().find(|other| other.name() == rule.name());
            same_name.is_some_and(|other| other.fields.by != rule.fields.by)
        };
        let other_keys: Vec<&str> = self.rules().iter().filter(has_other_key).map(RuleConfig::name).collect();
        let others = changes.iter().filter(|(name, _)| !other_keys.contains(name));
        let all = other_keys.iter().map(|name| (*name, RuleChange::StartsAgain)).chain(others);
        Ok(all.map(|(name, change)| (name.to_owned(), change)).collect())
    }
}

impl RuleConfig {
    /// How callers avoid this rule: a field, and what to do.
    fn ways_around(&self) -> Vec<(&'static str, String)> {
        let fields = &self.fields;
        let invented = fields.by.0.invented().map(|part| {
            let reason = format!(
                "a caller that invents a new {part} for each request is not limited: add a rule by ip, unless an \
                 outer layer checks it"
            );
            ("by", reason)
        });
        let omitted = fields.when.as_ref().and_then(When::header).map(|name| {
            let reason = format!("a caller without the header {name} is not limited: add a rule without it");
            ("when", reason)
        });
        let skipped = (fields.missing_key == Some(MissingKeyName::Skip)).then(|| {
            let reason = "a caller that omits its key is not limited: add a rule by ip".to_owned();
            ("missing-key", reason)
        });
        [invented, omitted, skipped].into_iter().flatten().collect()
    }
}
