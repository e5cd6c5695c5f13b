//! A rule of a file.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use tollgate_core::Policy;

use super::block::BlockConfig;
use super::cost::{CorrectionConfig, CostConfig};
use super::error::{ConfigError, Mistake};
use super::exemption::ExemptionText;
use super::key::KeyExpression;
use super::leaving::LeavingConfig;
use super::limit::LimitConfig;
use super::rule_fields::{Mode, RuleFields};
use super::values::{is_default, one_or_many, text};
use super::when::When;
use crate::extract::Head;
use crate::rule::MissingKey;

/// A rule as a file says it, to be changed and to be given to
/// [`Registry::rule`](super::Registry::rule), which checks its values.
///
/// It is made of a [`RuleFile`](super::RuleFile), of a part of the application's own configuration
/// by [serde](https://serde.rs), or of one line:
/// `NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]` for a quota, or
/// `NAME=N[,key=K][,ttl=D][,max-wait=D]` for requests in flight. `key` is the `by` of a file, and
/// is `ip` if it is left out.
///
/// ```
/// use tollgate::Quota;
/// use tollgate::config::{AlgorithmConfig, LimitConfig, Mode, Registry, RuleConfig};
///
/// let mut rule: RuleConfig = "api=5/10s,burst=20,key=header:x-api-key|ip".parse()?;
/// assert_eq!(rule.policy()?.capacity(), 20);
/// rule.mode = Mode::Shadow;
/// rule.limit = LimitConfig::Rate {
///     quota: Quota::per_day(500),
///     algorithm: AlgorithmConfig::SlidingBuckets { buckets: 60 },
///     unit: None,
///     tiers: None,
/// };
/// let rule = Registry::new().rule(&rule)?;
/// assert_eq!(rule.policy().quota().limit(), 500);
/// # Ok::<(), tollgate::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleConfig {
    /// The name of the policy.
    pub name: String,
    /// What the rule limits: `quota`, or `in-flight`, with the fields that belong to it.
    #[serde(flatten)]
    pub limit: LimitConfig,
    /// The key.
    #[serde(with = "text")]
    pub by: KeyExpression,
    /// The requests to which the rule applies; all if this is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// The requests that the rule ignores.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "one_or_many")]
    pub exempt: Vec<ExemptionText>,
    /// What happens to a request without a key.
    #[serde(skip_serializing_if = "is_default")]
    pub missing_key: MissingKey,
    /// What a request costs: `cost`, or `reserve`; 1 if this is `None`.
    #[serde(flatten)]
    pub cost: Option<CostConfig>,
    /// What corrects the charge by the response: `count-if`, or `cost-by`.
    #[serde(flatten)]
    pub correction: Option<CorrectionConfig>,
    /// A quota of the registry, which a request brings along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_by: Option<String>,
    /// Classes of requests that leave units to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaving: Option<LeavingConfig>,
    /// Blocks a key for a time after so many denials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockConfig>,
    /// Whether the last use and the total of every key are kept.
    #[serde(skip_serializing_if = "is_default")]
    pub track_usage: bool,
    /// Whether the rule is left out of the fields of responses.
    #[serde(skip_serializing_if = "is_default")]
    pub without_fields: bool,
    /// Whether the rule refuses requests, or only shows what it would refuse.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: Mode,
}

impl RuleConfig {
    /// Checks which fields stand together. Their values are checked once the rule is made.
    pub(super) fn try_new(fields: RuleFields) -> Result<RuleConfig, ConfigError> {
        let groups = LimitConfig::of(&fields)
            .and_then(|limit| Ok((limit, CostConfig::of(&fields)?, CorrectionConfig::of(&fields)?)));
        let (limit, cost, correction) =
            groups.map_err(|mistake: Mistake| mistake.in_rule(&fields.name, &fields))?;
        let RuleFields { name, when, quota_by, leaving, block, track_usage, without_fields, .. } = fields;
        Ok(RuleConfig {
            name,
            limit,
            by: fields.by.0,
            when,
            exempt: fields.exempt.map(|exempt| exempt.0).unwrap_or_default(),
            missing_key: fields.missing_key.unwrap_or_default(),
            cost,
            correction,
            quota_by,
            leaving,
            block,
            track_usage,
            without_fields,
            mode: fields.mode.unwrap_or_default(),
        })
    }

    /// Returns the policy of callers without a tier.
    ///
    /// # Errors
    /// [`ConfigError`] if the limit, the name, the unit or the block is not valid.
    pub fn policy(&self) -> Result<Policy, ConfigError> {
        self.try_policy().map_err(|mistake| mistake.in_rule(&self.name, self))
    }

    pub(super) fn try_policy(&self) -> Result<Policy, Mistake> {
        let policy = self.limit.policy(&self.name)?;
        let policy = match &self.block {
            Some(block) => policy.try_block_after(block.after, block.time.0),
            None => Ok(policy),
        };
        let policy = policy.map_err(|error| Mistake::new("block", error))?;
        Ok(if self.track_usage { policy.track_usage() } else { policy })
    }

    /// Returns whether the rule is for such requests, by its field `when`.
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
        self.when.as_ref().is_none_or(|when| when.is_met_by(head))
    }
}

impl<'de> Deserialize<'de> for RuleConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RuleConfig, D::Error> {
        RuleConfig::try_new(<RuleFields as Deserialize>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
