//! What is probably not meant by a file without mistakes.

use std::collections::HashMap;

use super::error::ConfigError;
use super::exemption::ExemptionText;
use super::fields::{MissingKeyName, ModeName, RuleFields};
use super::file::RuleFile;
use super::mistakes::MOST;
use super::registry::Registry;
use super::rule::RuleConfig;
use super::values::{Units, UnitsOr};
use super::when::When;
use crate::layer::{RateLimitLayer, RuleChange};

/// How many tiers and classes a warning names.
const MOST_NAMED: usize = 5;

impl RuleFile {
    /// Returns a warning for each way around a rule: a key that callers invent, a header or a key
    /// that they omit. There is none if another rule without such a way applies to the same
    /// requests, such as one by address. And one for each rule with requests that never pass, since
    /// the quota of their tier or their class is less than a request costs. At most 1,000 are
    /// listed.
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
        let (source, guards) = (self.source(), Guards::new(self.rules()));
        let warnings = self.rules().iter().enumerate().flat_map(|(at, rule)| {
            let ways = rule.ways_around().into_iter().flatten().filter(|_| !guards.cover(rule));
            let all: Vec<_> = ways.chain(rule.never_passes().map(|reason| ("cost", reason))).collect();
            all.into_iter().map(move |(field, reason)| (at, rule.mistake(field, &reason)))
        });
        warnings.take(MOST).map(|(at, warning)| source.in_rule(at, warning)).collect()
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
        let mut changes: Vec<_> = changes.iter().map(|(name, change)| (name.to_owned(), change)).collect();
        changes.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(changes)
    }
}

/// The rules of a file that limit the rate of all requests to which they apply.
struct Guards<'a> {
    /// Whether one applies to every request.
    all: bool,
    /// Those without a path.
    without_path: Vec<&'a When>,
    /// The others, by each of their paths.
    by_path: HashMap<&'a str, Vec<&'a When>>,
}

impl<'a> Guards<'a> {
    fn new(rules: &'a [RuleConfig]) -> Guards<'a> {
        let mut guards = Guards { all: false, without_path: Vec::new(), by_path: HashMap::new() };
        for rule in rules.iter().filter(|rule| rule.is_firm()) {
            match &rule.fields.when {
                None => guards.all = true,
                Some(when) => match when.paths() {
                    None => guards.without_path.push(when),
                    Some(paths) => paths.for_each(|path| guards.by_path.entry(path).or_default().push(when)),
                },
            }
        }
        guards
    }

    /// Whether one applies to all requests of a rule. It has the first path of the rule, or the
    /// beginning of that path before `*`.
    fn cover(&self, rule: &RuleConfig) -> bool {
        let when = rule.fields.when.as_ref();
        let includes = |guard: &&When| guard.includes(when);
        let path = when.and_then(When::paths).and_then(|mut paths| paths.next()).unwrap_or_default();
        let beginnings = path.char_indices().map(|(at, _)| format!("{}*", &path[..at]));
        let mut with_path = beginnings
            .chain([path.to_owned(), format!("{path}*")])
            .filter_map(|path| self.by_path.get(&*path));
        self.all
            || self.without_path.iter().any(includes)
            || with_path.any(|guards| guards.iter().any(includes))
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

    /// The requests whose quota is less than they cost. One that brings a quota along may have
    /// more.
    fn never_passes(&self) -> Option<String> {
        let Some(UnitsOr::Units(Units(cost))) = self.fields.cost else { return None };
        if self.fields.quota_by.is_some() || self.policy().is_in_flight() {
            return None;
        }
        let rule = Registry::of_any_name().rule(self).ok()?;
        let variants = rule.variants();
        let never = variants.iter().filter(|variant| variant.policy.largest_cost() < cost);
        let words =
            never.map(|variant| format!("requests {variant} (at most {})", variant.policy.largest_cost()));
        let words: Vec<String> = words.collect();
        let (named, others) = words.split_at(words.len().min(MOST_NAMED));
        let others = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
        (!named.is_empty()).then(|| format!("never passes for {}{others}", named.join(", ")))
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
