//! What a rule limits, and the fields that belong to it.

use std::time::Duration;

use serde::Serialize;
use tollgate_core::{Algorithm, Policy, PolicyError, Quota, TimeSpan};

use super::error::{Mistake, refuse};
use super::rate::{CalendarQuota, Rate};
use super::rule_fields::{AlgorithmName, RuleFields};
use super::tiers::{TiersConfig, read_tiers, write_tiers};
use super::values::{AsText, Units, UnitsOr, text, text_if_any};
use crate::rule::Rule;

/// What a rule limits. Each kind has the fields of a file that belong to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "kebab-case")]
pub enum LimitConfig {
    /// A quota for each span of time.
    Rate {
        /// Such as `5/10s burst 20`.
        #[serde(with = "text")]
        quota: Quota,
        /// The algorithm, and what only this one takes.
        #[serde(flatten)]
        algorithm: AlgorithmConfig,
        /// What the policy counts, if that is not requests.
        #[serde(skip_serializing_if = "Option::is_none")]
        unit: Option<String>,
        /// Other quotas for some requests.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_tiers")]
        tiers: Option<TiersConfig<Quota>>,
    },
    /// A quota for each day, week or month of a time zone (feature `calendar`).
    Calendar {
        /// Such as `10000/month`.
        #[serde(with = "text")]
        quota: CalendarQuota,
        /// The time zone, such as `Europe/Berlin`.
        zone: String,
        /// The first day of the window: 1 to 31 of a month, 1 (Monday) to 7 of a week.
        #[serde(skip_serializing_if = "Option::is_none")]
        anchor: Option<u8>,
        /// What the policy counts, if that is not requests.
        #[serde(skip_serializing_if = "Option::is_none")]
        unit: Option<String>,
        /// Other quotas for some requests, in the same window.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_tiers")]
        tiers: Option<TiersConfig<CalendarQuota>>,
    },
    /// Requests in flight: [`Policy::in_flight`](crate::Policy::in_flight).
    InFlight {
        /// How many run at once.
        in_flight: u64,
        /// How long the slots of a killed process stay taken; [`Quota::DEFAULT_TTL`] if this is
        /// `None`.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_if_any")]
        ttl: Option<TimeSpan>,
        /// How long a request waits for a slot; not at all if this is `None`.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_if_any")]
        max_wait: Option<TimeSpan>,
        /// How long a request holds its slot at most.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_if_any")]
        held_at_most: Option<TimeSpan>,
        /// Other numbers for some requests.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_tiers")]
        tiers: Option<TiersConfig<u64>>,
    },
}

/// An [algorithm](crate::algorithm) and its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum AlgorithmConfig {
    /// [`Algorithm::Gcra`].
    #[default]
    Gcra,
    /// [`Algorithm::LeakyBucket`].
    LeakyBucket {
        /// The longest delay of a request; the window if this is `None`.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_if_any")]
        max_wait: Option<TimeSpan>,
    },
    /// [`Algorithm::FIXED_WINDOW`].
    FixedWindow,
    /// [`Algorithm::FIXED_WINDOW_ALIGNED`].
    FixedWindowAligned,
    /// [`Algorithm::SlidingWindow`].
    SlidingWindow,
    /// [`Algorithm::SlidingBuckets`].
    SlidingBuckets {
        /// The number of sub-windows.
        buckets: u32,
    },
    /// [`Algorithm::SlidingLog`].
    SlidingLog {
        /// The largest limit.
        max_limit: u32,
    },
}

impl LimitConfig {
    pub(super) fn of(fields: &RuleFields) -> Result<LimitConfig, Mistake> {
        let Some(AsText(rate)) = fields.quota else { return LimitConfig::of_slots(fields) };
        let both = "a rule has a quota or requests in flight: make two rules";
        refuse(fields.in_flight.is_some(), "in-flight", both)?;
        let is_of_slots = "only a rule with in-flight takes it";
        refuse(fields.ttl.is_some(), "ttl", is_of_slots)?;
        refuse(fields.held_at_most.is_some(), "held-at-most", is_of_slots)?;
        match rate {
            Rate::Span(quota) => {
                fields.refuse_zone("only a quota per day, week or month takes it, such as 100/day")?;
                let algorithm = AlgorithmConfig::of(fields)?;
                let tiers = read_tiers(fields, "a quota such as \"100/min\"", |tier| match tier {
                    UnitsOr::Value(Rate::Span(quota)) => Some(quota),
                    _ => None,
                })?;
                Ok(LimitConfig::Rate { quota, algorithm, unit: fields.unit.clone(), tiers })
            }
            Rate::Calendar(quota) => {
                let is_of_spans = "a quota per day, week or month has an algorithm of its own: remove it";
                fields.refuse_algorithm(is_of_spans)?;
                refuse(fields.max_wait.is_some(), "max-wait", is_of_spans)?;
                let needs_zone =
                    "a quota per day, week or month needs zone, such as zone = \"Europe/Berlin\"";
                let zone = fields.zone.clone().ok_or_else(|| Mistake::new("quota", needs_zone))?;
                let tiers = read_tiers(fields, &quota.window.tier(), |tier| match tier {
                    UnitsOr::Value(Rate::Calendar(tier)) if tier.window == quota.window => Some(tier),
                    _ => None,
                })?;
                let (anchor, unit) = (fields.anchor, fields.unit.clone());
                Ok(LimitConfig::Calendar { quota, zone, anchor, unit, tiers })
            }
        }
    }

    fn of_slots(fields: &RuleFields) -> Result<LimitConfig, Mistake> {
        let nothing = "missing: write quota = \"100/min\", or in-flight = 20";
        let Units(in_flight) = fields.in_flight.ok_or_else(|| Mistake::new("quota", nothing))?;
        let is_of_rates = "only a rule with a quota takes it, and this one has in-flight";
        fields.refuse_zone(is_of_rates)?;
        refuse(fields.unit.is_some(), "unit", is_of_rates)?;
        fields.refuse_algorithm(is_of_rates)?;
        let tiers = read_tiers(fields, "a number of requests, at least 1", |tier| match tier {
            UnitsOr::Units(Units(limit @ 1..)) => Some(limit),
            _ => None,
        })?;
        let time = |time: Option<AsText<TimeSpan>>| time.map(|time| time.0);
        Ok(LimitConfig::InFlight {
            in_flight,
            ttl: time(fields.ttl),
            max_wait: time(fields.max_wait),
            held_at_most: time(fields.held_at_most),
            tiers,
        })
    }

    pub(super) fn policy(&self, name: &str) -> Result<Policy, Mistake> {
        let (policy, unit) = match self {
            LimitConfig::Rate { quota, algorithm, unit, .. } => (algorithm.policy(name, *quota)?, unit),
            LimitConfig::Calendar { quota, zone, anchor, unit, .. } => {
                (quota.policy(name, zone, *anchor)?, unit)
            }
            LimitConfig::InFlight { in_flight, ttl, .. } => {
                let ttl = ttl.map_or(Quota::DEFAULT_TTL, |ttl| ttl.0);
                let quota = Quota::try_new((*in_flight).max(1), ttl);
                let quota = quota.map_err(|error| Mistake::new("ttl", error))?;
                refuse(*in_flight == 0, "in-flight", "at least 1 request must be allowed")?;
                let policy = Policy::try_from_parts(name, quota, Algorithm::InFlight);
                return policy.map_err(|error| Mistake::of_policy("in-flight", error));
            }
        };
        match unit {
            Some(unit) => policy.try_unit(unit).map_err(|error| Mistake::new("unit", error)),
            None => Ok(policy),
        }
    }

    /// Adds to a rule what is said of its slots.
    pub(super) fn with_slots(&self, mut rule: Rule) -> Result<Rule, Mistake> {
        let LimitConfig::InFlight { max_wait, held_at_most, .. } = self else { return Ok(rule) };
        if let Some(TimeSpan(wait)) = *max_wait {
            rule = rule.wait_at_most(wait);
        }
        if let Some(TimeSpan(time)) = *held_at_most {
            refuse(time.is_zero(), "held-at-most", "nothing would be limited: at least 1 ms")?;
            rule = rule.held_at_most(time);
        }
        Ok(rule)
    }
}

impl LimitConfig {
    /// The tiers of a rule with this window, as quotas.
    pub(super) fn tiers(&self, window: Duration) -> Result<Option<TiersConfig<Quota>>, Mistake> {
        let quota =
            |limit, window| Quota::try_new(limit, window).map_err(|error| format!("is not valid: {error}"));
        match self {
            LimitConfig::Rate { tiers, .. } => Ok(tiers.clone()),
            LimitConfig::Calendar { quota: own, tiers, .. } => {
                let tier = |tier: CalendarQuota| match tier.window == own.window {
                    true => quota(tier.limit, window),
                    false => Err(format!("needs {}", own.window.tier())),
                };
                tiers.as_ref().map(|tiers| tiers.try_map(tier)).transpose()
            }
            LimitConfig::InFlight { tiers, .. } => {
                let tier = |limit| quota(limit, Quota::DEFAULT_TTL);
                tiers.as_ref().map(|tiers| tiers.try_map(tier)).transpose()
            }
        }
    }
}

impl RuleFields {
    fn refuse_zone(&self, reason: &str) -> Result<(), Mistake> {
        refuse(self.zone.is_some(), "zone", reason)?;
        refuse(self.anchor.is_some(), "anchor", reason)
    }

    fn refuse_algorithm(&self, reason: &str) -> Result<(), Mistake> {
        refuse(self.algorithm.is_some(), "algorithm", reason)?;
        refuse(self.buckets.is_some(), "buckets", reason)?;
        refuse(self.max_limit.is_some(), "max-limit", reason)
    }
}

impl AlgorithmConfig {
    fn of(fields: &RuleFields) -> Result<AlgorithmConfig, Mistake> {
        let (mut max_wait, mut buckets, mut max_limit) = (fields.max_wait, fields.buckets, fields.max_limit);
        let algorithm = match fields.algorithm.unwrap_or(AlgorithmName::Gcra) {
            AlgorithmName::Gcra => AlgorithmConfig::Gcra,
            AlgorithmName::LeakyBucket => {
                AlgorithmConfig::LeakyBucket { max_wait: max_wait.take().map(|wait| wait.0) }
            }
            AlgorithmName::FixedWindow => AlgorithmConfig::FixedWindow,
            AlgorithmName::FixedWindowAligned => AlgorithmConfig::FixedWindowAligned,
            AlgorithmName::SlidingWindow => AlgorithmConfig::SlidingWindow,
            AlgorithmName::SlidingBuckets => {
                AlgorithmConfig::SlidingBuckets { buckets: buckets.take().unwrap_or(10) }
            }
            AlgorithmName::SlidingLog => {
                AlgorithmConfig::SlidingLog { max_limit: max_limit.take().unwrap_or(100_000) }
            }
        };
        let is_not_of = |of: &str| format!("only {of}, and the algorithm is {}", algorithm.name());
        refuse(max_wait.is_some(), "max-wait", is_not_of("leaky-bucket and in-flight take it"))?;
        refuse(buckets.is_some(), "buckets", is_not_of("sliding-buckets takes it"))?;
        refuse(max_limit.is_some(), "max-limit", is_not_of("sliding-log takes it"))?;
        Ok(algorithm)
    }

    /// Returns its name in a file.
    pub fn name(self) -> &'static str {
        self.of_window(Duration::ZERO).name()
    }

    fn of_window(self, window: Duration) -> Algorithm {
        match self {
            AlgorithmConfig::Gcra => Algorithm::Gcra,
            AlgorithmConfig::LeakyBucket { max_wait } => {
                Algorithm::LeakyBucket { max_wait: max_wait.map_or(window, |wait| wait.0) }
            }
            AlgorithmConfig::FixedWindow => Algorithm::FIXED_WINDOW,
            AlgorithmConfig::FixedWindowAligned => Algorithm::FIXED_WINDOW_ALIGNED,
            AlgorithmConfig::SlidingWindow => Algorithm::SlidingWindow,
            AlgorithmConfig::SlidingBuckets { buckets } => Algorithm::SlidingBuckets { buckets },
            AlgorithmConfig::SlidingLog { max_limit } => Algorithm::SlidingLog { max_limit },
        }
    }

    fn policy(self, name: &str, quota: Quota) -> Result<Policy, Mistake> {
        let policy = Policy::try_from_parts(name, quota, self.of_window(quota.window()));
        policy.map_err(|error| match (error, self) {
            (PolicyError::BucketsOutOfRange, _) => Mistake::new("buckets", error),
            (PolicyError::WaitTooLong, AlgorithmConfig::LeakyBucket { max_wait: Some(_) }) => {
                Mistake::new("max-wait", error)
            }
            (PolicyError::LogTooLong, AlgorithmConfig::SlidingLog { max_limit }) => {
                let most = format!("sliding-log takes limits up to {max_limit}: max-limit sets another");
                Mistake::new("quota", most)
            }
            (error, _) => Mistake::of_policy("quota", error),
        })
    }
}
