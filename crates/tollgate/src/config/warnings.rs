//! What is probably not meant by a file without mistakes.

use std::collections::BTreeSet;

use super::error::ConfigError;
use super::exemption::ExemptionText;
use super::fields::{MissingKeyName, ModeName, RuleFields};
use super::file::RuleFile;
use super::mistakes::MOST;
use super::registry::Registry;
use super::rule::RuleConfig;
use super::when::When;
use crate::layer::{RateLimitLayer, RuleChange};

impl RuleFile {
    /// Returns a warning for each way around a rule: a key that callers invent, a header or a key
    /// that they omit. There is none if another rule without such a way applies to the same
    /// requests, such as one by address. At most 100 are listed.
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
        let firm: Vec<_> = self.rules().iter().filter(|rule| rule.is_firm()).collect();
        let is_open = |rule: &RuleConfig| {
            let when = rule.fields.when.as_ref();
            !firm.iter().any(|other| other.fields.when.as_ref().is_none_or(|other| other.includes(when)))
        };
        let open = self.rules().iter().enumerate().filter(|(_, rule)| is_open(rule));
        let warnings = open.flat_map(|(at, rule)| {
            let ways = rule.ways_around().into_iter().flatten();
            ways.map(move |(field, reason)| self.in_rule(at, rule.mistake(field, &reason)))
        });
        warnings.take(MOST).collect()
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
        let by = |file: &RuleFile, name: &str| {
            file.rules().iter().find(|rule| rule.name() == name).map(|rule| rule.fields.by.clone())
        };
        let change = |name: &str| match (by(earlier, name), by(self, name)) {
            (Some(was), Some(is)) if was != is => Some(RuleChange::StartsAgain),
            _ => changes.of(name),
        };
        let names: BTreeSet<_> = self.rules().iter().chain(earlier.rules()).map(RuleConfig::name).collect();
        Ok(names.into_iter().filter_map(|name| Some((name.to_owned(), change(name)?))).collect())
    }
}

impl RuleConfig {
    /// Whether it limits the rate of all requests, not only in shadow, and callers cannot avoid it.
    fn is_firm(&self) -> bool {
        let RuleFields { mode, quota, exempt, count_if, cost_by, .. } = &self.fields;
        let exempts =
            |each: &ExemptionText| matches!(each, ExemptionText::Network(all) if all.ends_with("/0"));
        let refunds = count_if.is_some() || cost_by.is_some();
        let ignores = refunds || exempt.iter().flat_map(|all| &all.0).any(exempts);
        let refuses = quota.is_some() && *mode != Some(ModeName::Shadow);
        refuses && !ignores && self.ways_around().iter().all(Option::is_none)
    }

    /// How callers avoid this rule: a field, and what to do.
    fn ways_around(&self) -> [Option<(&'static str, String)>; 3] {
        let skips = self.fields.missing_key == Some(MissingKeyName::Skip);
        let header = self.fields.when.as_ref().and_then(When::header);
        let invented = |part| {
            format!(
                "a caller that invents a new {part} for each request is not limited: add a rule by ip, unless an \
                 outer layer checks it"
            )
        };
        let without =
            |what| format!("a caller without {what} is not limited: add a rule by ip for the same requests");
        [
            self.fields.by.0.invented().map(|part| ("by", invented(part))),
            header.map(|name| ("when", without(format!("the header {name}")))),
            skips.then(|| ("missing-key", without("its key".to_owned()))),
        ]
    }
}
