//! Makes a rule of its fields.

use std::sync::Arc;

use tollgate_core::{Algorithm, Key, Policy, PolicyError, Quota};

use super::error::Mistake;
use super::exemption::ExemptionText;
use super::fields::{AlgorithmName, ModeName, RuleFields};
use super::rate::Rate;
use super::registry::Registry;
use super::values::{AsText, Units, UnitsOr};
use crate::charge::ResponseHead;
use crate::extract::{Head, PeerIp};
use crate::rule::exempt::{cors_preflight, try_from_networks};
use crate::rule::set::RuleSet;
use crate::rule::{PolicyExt, Rule};
use crate::setup_error::SetupError;

impl RuleFields {
    fn policy(&self) -> Result<Policy, Mistake> {
        let policy = match (&self.quota, self.in_flight) {
            (Some(AsText(Rate::Span(quota))), None) => self.rate(*quota),
            (Some(AsText(Rate::Calendar(limit, window))), None) => self.in_calendar(*limit, *window),
            (None, Some(Units(limit))) => self.slots(limit),
            (None, None) => {
                Err(Mistake::new("quota", "missing: write quota = \"100/min\", or in-flight = 20"))
            }
            (Some(_), Some(_)) => {
                Err(Mistake::new("in-flight", "a rule has a quota or requests in flight: make two rules"))
            }
        }?;
        let policy = match &self.unit {
            Some(unit) => policy.try_unit(unit).map_err(|error| Mistake::new("unit", error))?,
            None => policy,
        };
        let policy = match &self.block {
            Some(block) => policy.try_block_after(block.after, block.time.0.0),
            None => Ok(policy),
        };
        let policy = policy.map_err(|error| Mistake::new("block", error))?;
        Ok(if self.track_usage { policy.track_usage() } else { policy })
    }

    fn rate(&self, quota: Quota) -> Result<Policy, Mistake> {
        self.refuse_options_of_slots()?;
        self.refuse_options_of_calendars("only a quota per day, week or month takes it, such as 100/day")?;
        let name = self.algorithm.unwrap_or(AlgorithmName::Gcra);
        let max_wait = self.max_wait.map(|wait| wait.0.0);
        let algorithm = match name {
            AlgorithmName::Gcra => Algorithm::Gcra,
            AlgorithmName::LeakyBucket => {
                Algorithm::LeakyBucket { max_wait: max_wait.unwrap_or(quota.window()) }
            }
            AlgorithmName::FixedWindow => Algorithm::FIXED_WINDOW,
            AlgorithmName::FixedWindowAligned => Algorithm::FIXED_WINDOW_ALIGNED,
            AlgorithmName::SlidingWindow => Algorithm::SlidingWindow,
            AlgorithmName::SlidingBuckets => self
                .buckets
                .map_or(Algorithm::SLIDING_BUCKETS, |buckets| Algorithm::SlidingBuckets { buckets }),
            AlgorithmName::SlidingLog => {
                self.max_limit.map_or(Algorithm::SLIDING_LOG, |max_limit| Algorithm::SlidingLog { max_limit })
            }
        };
        let is_not_of = |of: &str| format!("only {of}, and the algorithm is {}", algorithm.name());
        let waits = name == AlgorithmName::LeakyBucket;
        refuse(max_wait.is_some() && !waits, "max-wait", is_not_of("leaky-bucket and in-flight take it"))?;
        let has_buckets = name == AlgorithmName::SlidingBuckets;
        refuse(self.buckets.is_some() && !has_buckets, "buckets", is_not_of("sliding-buckets takes it"))?;
        let is_log = name == AlgorithmName::SlidingLog;
        refuse(self.max_limit.is_some() && !is_log, "max-limit", is_not_of("sliding-log takes it"))?;
        Policy::try_from_parts(&self.name, quota, algorithm).map_err(|error| match error {
            PolicyError::InvalidName => Mistake::new("name", error),
            PolicyError::BucketsOutOfRange => Mistake::new("buckets", error),
            PolicyError::WaitTooLong if max_wait.is_some() => Mistake::new("max-wait", error),
            PolicyError::LogTooLong => {
                let most = self.max_limit.unwrap_or(100_000);
                Mistake::new(
                    "quota",
                    format!("sliding-log takes limits up to {most}: max-limit sets another"),
                )
            }
            error => Mistake::new("quota", error),
        })
    }

    pub(super) fn refuse_options_of_slots(&self) -> Result<(), Mistake> {
        let is_of_slots = "only a rule with in-flight takes it";
        refuse(self.lease.is_some(), "lease", is_of_slots)?;
        refuse(self.held_at_most.is_some(), "held-at-most", is_of_slots)
    }

    fn refuse_options_of_calendars(&self, reason: &str) -> Result<(), Mistake> {
        refuse(self.zone.is_some(), "zone", reason)?;
        refuse(self.anchor.is_some(), "anchor", reason)
    }

    fn slots(&self, limit: u64) -> Result<Policy, Mistake> {
        let is_of_rates = "only a rule with a quota takes it, and this one has in-flight";
        self.refuse_options_of_calendars(is_of_rates)?;
        refuse(self.unit.is_some(), "unit", is_of_rates)?;
        refuse(self.algorithm.is_some(), "algorithm", is_of_rates)?;
        refuse(self.buckets.is_some(), "buckets", is_of_rates)?;
        refuse(self.max_limit.is_some(), "max-limit", is_of_rates)?;
        let lease = self.lease.map_or(Quota::DEFAULT_LEASE, |lease| lease.0.0);
        let quota = Quota::try_new(limit.max(1), lease).map_err(|error| Mistake::new("lease", error))?;
        refuse(limit == 0, "in-flight", "at least 1 request must be allowed")?;
        Policy::try_in_flight(&self.name, quota).map_err(|error| match error {
            PolicyError::InvalidName => Mistake::new("name", error),
            error => Mistake::new("in-flight", error),
        })
    }

    /// The field that corrects charges, of which a rule has one at least if an error says so.
    fn correcting(&self) -> &'static str {
        match (&self.reserve, &self.count_if) {
            (Some(_), _) => "reserve",
            (_, Some(_)) => "count-if",
            _ => "cost-by",
        }
    }
}

pub(super) fn refuse(
    is_wrong: bool,
    field: &'static str,
    reason: impl std::fmt::Display,
) -> Result<(), Mistake> {
    if is_wrong { Err(Mistake::new(field, reason)) } else { Ok(()) }
}

/// Refuses a cost that no policy of a rule lets pass. The warnings name those that do not.
fn refuse_cost_beyond_all(rule: &Rule, fields: &RuleFields) -> Result<(), Mistake> {
    let Some(UnitsOr::Units(Units(cost))) = fields.cost else { return Ok(()) };
    let most = rule.variants().iter().map(|variant| variant.policy.largest_cost()).max().unwrap_or(0);
    let never = format!("no request would pass: at most {most}");
    refuse(cost > most && fields.quota_by.is_none(), "cost", never)
}

impl Registry {
    pub(super) fn build(&self, fields: &RuleFields) -> Result<Rule, Mistake> {
        let of = |field| move |reason| Mistake { field, reason };
        let policy = fields.policy()?;
        let rule = policy.by(fields.by.0.extractor(self).map_err(of("by"))?);
        let mut rule = rule.with_key_text(&fields.by.0.to_string());
        if let Some(missing_key) = fields.missing_key {
            rule = rule.on_missing_key(missing_key.into());
        }
        rule = self.with_costs(rule, fields)?;
        rule = self.with_choices(rule, fields)?;
        refuse_cost_beyond_all(&rule, fields)?;
        rule = self.with_exemptions(rule, fields)?;
        if let Some(wait) = fields.max_wait.filter(|_| rule.policy().is_in_flight()) {
            rule = rule.wait_at_most(wait.0.0);
        }
        if let Some(time) = fields.held_at_most {
            refuse(time.0.0.is_zero(), "held-at-most", "nothing would be limited: at least 1 ms")?;
            rule = rule.held_at_most(time.0.0);
        }
        if fields.without_fields {
            rule = rule.without_fields();
        }
        if fields.mode == Some(ModeName::Shadow) {
            rule = rule.shadow();
        }
        // What a layer would refuse.
        match RuleSet::try_both(rule.clone()) {
            Ok(_) => Ok(rule),
            Err(SetupError::NothingReserved(_)) => {
                let reason = "it bounds the estimate of reserve, which is missing: name a cost of the registry there, or \
                              remove this";
                Err(Mistake::new("reserve-at-most", reason))
            }
            Err(SetupError::NotInShadow(_)) => Err(Mistake::new(
                "mode",
                "a rule of requests in flight, or with reserve, count-if or cost-by, cannot be in shadow",
            )),
            Err(SetupError::NoDebt(_)) => Err(Mistake::new(
                fields.correcting(),
                "the charges of leaky-bucket, of in-flight, or of a bucket that takes 71 years to fill cannot be \
                 corrected: remove it, or choose another algorithm",
            )),
            Err(error) => Err(Mistake::new(fields.correcting(), error)),
        }
    }

    fn with_costs(&self, mut rule: Rule, fields: &RuleFields) -> Result<Rule, Mistake> {
        let cost = |field, name: &str| {
            let any = Arc::new(|_: &Head<'_>| 1);
            self.find(&self.costs, field, "a cost", name, any)
        };
        match &fields.cost {
            None => {}
            Some(UnitsOr::Units(Units(units))) => {
                let units = *units;
                refuse(units == 0, "cost", "nothing would be limited: at least 1")?;
                rule = rule.cost(move |_| units);
            }
            Some(UnitsOr::Value(name)) => {
                let is_number = name.bytes().all(|sign| sign.is_ascii_digit());
                refuse(is_number, "cost", "a number has no quotes, and the name of a cost has letters")?;
                let cost = cost("cost", name)?;
                rule = rule.cost(move |head| cost(head));
            }
        }
        if let Some(name) = &fields.reserve {
            refuse(fields.cost.is_some(), "reserve", "it takes the place of cost: remove one of them")?;
            let estimate = cost("reserve", name)?;
            rule = rule.reserve(move |head| estimate(head));
        }
        if let Some(share) = fields.reserve_at_most {
            rule = rule.reserve_at_most(share.0);
        }
        if let Some(name) = &fields.count_if {
            let any = Arc::new(|_: &ResponseHead<'_>| true);
            let counts = self.find(&self.conditions, "count-if", "a condition", name, any)?;
            rule = rule.count_if(move |response| counts(response));
        }
        if let Some(name) = &fields.cost_by {
            refuse(
                fields.count_if.is_some(),
                "cost-by",
                "it takes the place of count-if: remove one of them",
            )?;
            let any = Arc::new(|_: &ResponseHead<'_>| 1);
            let cost = self.find(&self.response_costs, "cost-by", "a response cost", name, any)?;
            rule = rule.cost_by(move |response| cost(response));
        }
        Ok(rule)
    }

    fn with_choices(&self, mut rule: Rule, fields: &RuleFields) -> Result<Rule, Mistake> {
        let class = |field, name: &str| {
            let any = Arc::new(|_: &Head<'_>, _: &Key| None);
            self.find(&self.classes, field, "a class", name, any)
        };
        if let Some(tiers) = &fields.tiers {
            let own = fields.quota.as_ref().map(|quota| quota.0);
            let window = rule.policy().quota().window();
            let quota = |(name, tier): &(String, UnitsOr<Rate>)| match (own, tier) {
                (Some(Rate::Span(_)), UnitsOr::Value(Rate::Span(quota))) => Ok((name.clone(), *quota)),
                (Some(Rate::Calendar(_, own)), UnitsOr::Value(Rate::Calendar(limit, window_name)))
                    if own == *window_name =>
                {
                    Ok((name.clone(), Quota::new(*limit, window)))
                }
                (None, UnitsOr::Units(Units(limit @ 1..))) => Ok((name.clone(), Quota::in_flight(*limit))),
                (Some(Rate::Span(_)), _) => Err(format!("tier {name:?} needs a quota such as \"100/min\"")),
                (Some(Rate::Calendar(_, own)), _) => {
                    Err(format!("tier {name:?} needs a quota such as \"100/{}\"", own.name()))
                }
                (None, _) => Err(format!("tier {name:?} needs a number of requests, at least 1")),
            };
            let quotas = tiers.quotas.0.iter().map(quota).collect::<Result<Vec<_>, String>>();
            let quotas = quotas.map_err(|reason| Mistake { field: "tiers", reason })?;
            let class = class("tiers", &tiers.by)?;
            let tiered = rule.try_tiers(quotas, move |head, key| class(head, key));
            rule = tiered.map_err(|error| Mistake::new("tiers", error))?;
        }
        if let Some(name) = &fields.quota_by {
            let any = Arc::new(|_: &Head<'_>, _: &Key| None);
            let quota = self.find(&self.quotas, "quota-by", "a quota", name, any)?;
            rule = rule.quota(move |head, key| quota(head, key));
        }
        if let Some(leaving) = &fields.leaving {
            let units = leaving.units.0.iter().map(|(name, units)| (name.clone(), units.0));
            let class = class("leaving", &leaving.by)?;
            let with_classes = rule.try_leaving(units, move |head, key| class(head, key));
            rule = with_classes.map_err(|error| Mistake::new("leaving", error))?;
        }
        Ok(rule)
    }

    fn with_exemptions(&self, mut rule: Rule, fields: &RuleFields) -> Result<Rule, Mistake> {
        if let Some(when) = fields.when.clone() {
            if let Some(paths) = when.paths() {
                rule = rule.only_on(paths);
            }
            rule = rule.exempt(move |head: &Head<'_>| !when.is_met_by(head));
        }
        for exemption in fields.exempt.iter().flat_map(|exempt| &exempt.0) {
            let not_a_network = |error: SetupError| Mistake::new("exempt", error);
            rule = match (exemption, self.address()) {
                (ExemptionText::CorsPreflight, _) => rule.exempt(cors_preflight()),
                (ExemptionText::Network(network), None) => {
                    rule.exempt(try_from_networks(PeerIp::new(), [network]).map_err(not_a_network)?)
                }
                (ExemptionText::Network(network), Some(client_ip)) => {
                    rule.exempt(try_from_networks(client_ip.clone(), [network]).map_err(not_a_network)?)
                }
                (ExemptionText::Named(name), _) => {
                    let any = Arc::new(|_: &Head<'_>| false);
                    let kind = "a network, an address, cors-preflight or an exemption";
                    let exemption = self.find(&self.exemptions, "exempt", kind, name, any)?;
                    rule.exempt(move |head: &Head<'_>| exemption.exempts(head))
                }
            };
        }
        Ok(rule)
    }
}
