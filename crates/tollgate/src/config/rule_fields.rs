//! The fields of a rule as a file has them.

use serde::{Deserialize, Serialize};
use tollgate_core::{Share, TimeSpan};

use super::block::BlockConfig;
use super::exemption::ExemptionText;
use super::key::KeyExpression;
use super::leaving::LeavingConfig;
use super::rate::Rate;
use super::values::{AsText, NamedValues, OneOrMany, Units, UnitsOr};
use super::when::When;
use crate::rule::MissingKey;

/// A rule: a quota, or a number of requests in flight, for each key.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Rule"))]
#[serde(remote = "Self", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RuleFields {
    /// The name of the policy: printable ASCII, once in a file.
    pub(super) name: String,
    /// LIMIT/WINDOW, and "burst N" for gcra and leaky-bucket: 100/min, or 5/10s burst 20. Or
    /// LIMIT/day, LIMIT/week or LIMIT/month, with zone.
    pub(super) quota: Option<AsText<Rate>>,
    /// The time zone of a quota per day, week or month, such as Europe/Berlin.
    pub(super) zone: Option<String>,
    /// The first day of each month, 1 to 31, or of each week, 1 (Monday) to 7; 1 if none is given.
    pub(super) anchor: Option<u8>,
    /// How many requests may run at once, instead of a quota.
    pub(super) in_flight: Option<Units>,
    /// What divides the quota among callers: ip, bearer, basic-user, header:NAME, cookie:NAME,
    /// path, method, global, or a key of the registry. "a + b" counts by both together, and "a | b"
    /// by the first that the request has. + binds tighter.
    pub(super) by: AsText<KeyExpression>,
    /// The algorithm; gcra if none is given. The guide says what each guarantees.
    pub(super) algorithm: Option<AlgorithmName>,
    /// The number of sub-windows of sliding-buckets; 10 if none is given.
    pub(super) buckets: Option<u32>,
    /// The largest limit of sliding-log; 100000 if none is given.
    pub(super) max_limit: Option<u32>,
    /// How long leaky-bucket delays a request, by default for the window; or how long a request
    /// waits to be in flight, by default not at all.
    pub(super) max_wait: Option<AsText<TimeSpan>>,
    /// How long the slots of a killed process stay taken; 15s if none is given.
    pub(super) ttl: Option<AsText<TimeSpan>>,
    /// How long a request holds its slot at most.
    pub(super) held_at_most: Option<AsText<TimeSpan>>,
    /// The requests to which the rule applies; all if this is not given.
    pub(super) when: Option<When>,
    /// Requests that the rule ignores: networks and addresses, cors-preflight, or exemptions of the
    /// registry.
    pub(super) exempt: Option<OneOrMany<ExemptionText>>,
    /// What happens to a request without a key: it is refused, if this is not given.
    pub(super) missing_key: Option<MissingKey>,
    /// What a request costs: a number, or a cost of the registry; 1 if none is given.
    pub(super) cost: Option<UnitsOr<String>>,
    /// A cost of the registry that estimates a request. The handler settles it.
    pub(super) reserve: Option<String>,
    /// The largest estimate, as a share of the capacity.
    pub(super) reserve_at_most: Option<AsText<Share>>,
    /// A condition of the registry: requests whose response does not meet it are refunded.
    pub(super) count_if: Option<String>,
    /// A response cost of the registry, to which a request is settled.
    pub(super) cost_by: Option<String>,
    /// A quota of the registry, which a request brings along.
    pub(super) quota_by: Option<String>,
    /// Other quotas for some requests.
    pub(super) tiers: Option<TiersFields>,
    /// Classes of requests that leave units to others.
    pub(super) leaving: Option<LeavingConfig>,
    /// Blocks a key for a time after so many denials.
    pub(super) block: Option<BlockConfig>,
    /// What the policy counts, if that is not requests: content-bytes, or any name.
    pub(super) unit: Option<String>,
    /// Whether the last use and the total of every key are kept.
    #[serde(default)]
    pub(super) track_usage: bool,
    /// Whether the rule is left out of the fields of responses.
    #[serde(default)]
    pub(super) without_fields: bool,
    /// Whether the rule only shows what it would refuse; enforce if this is not given.
    pub(super) mode: Option<Mode>,
}

impl RuleFields {
    /// Fields on which others depend. Without them, fields that are correct would seem to be
    /// mistakes.
    pub(super) const DEPENDED_ON: [&str; 6] = ["name", "quota", "zone", "in-flight", "by", "reserve"];
}

/// Other quotas for some requests.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct TiersFields {
    /// The class of the registry that chooses a tier.
    pub(super) by: String,
    /// The quota of each tier; a number for requests in flight.
    pub(super) quotas: NamedValues<UnitsOr<Rate>>,
}

/// An algorithm. Its parameters are fields of their own.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum AlgorithmName {
    Gcra,
    LeakyBucket,
    FixedWindow,
    FixedWindowAligned,
    SlidingWindow,
    SlidingBuckets,
    SlidingLog,
}

/// Whether a rule refuses requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It only shows what it would refuse: [`Rule::shadow`](crate::Rule::shadow).
    Shadow,
}
