//! Makes a rule of its fields.

use std::sync::Arc;

use tollgate_core::Key;

use super::cost::{CorrectionConfig, CostConfig};
use super::error::{Mistake, refuse};
use super::exemption::ExemptionText;
use super::leaving::LeavingConfig;
use super::registry::Registry;
use super::rule::RuleConfig;
use super::rule_fields::Mode;
use super::tiers::TiersConfig;
use super::when::PathPattern;
use crate::charge::ResponseHead;
use crate::errors::SetupError;
use crate::extract::{Head, PeerIp};
use crate::rule::exempt::{cors_preflight, try_from_networks};
use crate::rule::{Limit, PolicyExt, Rule};

/// Refuses a cost that no policy of a rule lets pass. The warnings name those that do not.
fn refuse_cost_beyond_all(rule: &Rule, config: &RuleConfig) -> Result<(), Mistake> {
    let Some(CostConfig::Units { cost }) = config.cost else { return Ok(()) };
    let most = rule.variants().iter().map(|variant| variant.policy.largest_cost()).max().unwrap_or(0);
    let never = format!("no request would pass: at most {most}");
    refuse(cost > most && config.quota_by.is_none(), "cost", never)
}

/// The field that corrects charges, of which a rule has one if an error says so.
fn correcting(config: &RuleConfig) -> &'static str {
    match (&config.cost, &config.correction) {
        (Some(CostConfig::Reserved { .. }), _) => "reserve",
        (_, Some(CorrectionConfig::CountIf(_))) => "count-if",
        _ => "cost-by",
    }
}

impl Registry {
    pub(super) fn build(&self, config: &RuleConfig) -> Result<Rule, Mistake> {
        #[cfg(test)]
        count::build();
        let policy = config.try_policy()?;
        let by = config.by.extractor(self).map_err(|reason| Mistake { field: "by", reason })?;
        // A struct of texts and numbers has a form in JSON.
        let fields = serde_json::to_string(config).unwrap_or_default();
        let mut rule = policy.by(by).with_text(config.by.to_string(), fields);
        rule = rule.on_missing_key(config.missing_key);
        rule = self.with_costs(rule, config)?;
        rule = self.with_choices(rule, config)?;
        refuse_cost_beyond_all(&rule, config)?;
        rule = self.with_exemptions(rule, config)?;
        rule = config.limit.with_slots(rule)?;
        if config.without_fields {
            rule = rule.without_fields();
        }
        if config.mode == Mode::Shadow {
            rule = rule.shadow();
        }
        // What a layer would refuse.
        match rule.check() {
            Ok(()) => Ok(rule),
            Err(SetupError::NotInShadow(_)) => Err(Mistake::new(
                "mode",
                "a rule of requests in flight, or with reserve, count-if or cost-by, cannot be in shadow",
            )),
            Err(SetupError::NoDebt(_)) => Err(Mistake::new(
                correcting(config),
                "the charges of leaky-bucket, of in-flight, or of a bucket that takes 71 years to fill cannot be \
                 corrected: remove it, or choose another algorithm",
            )),
            Err(error) => Err(Mistake::new(correcting(config), error)),
        }
    }

    fn with_costs(&self, mut rule: Rule, config: &RuleConfig) -> Result<Rule, Mistake> {
        let cost = |field, name: &str| {
            let any = Arc::new(|_: &Head<'_>| 1);
            self.find(&self.costs, field, "a cost", name, any)
        };
        match &config.cost {
            None => {}
            Some(CostConfig::Units { cost: units }) => {
                let units = *units;
                refuse(units == 0, "cost", "nothing would be limited: at least 1")?;
                rule = rule.cost(move |_| units);
            }
            Some(CostConfig::Named { cost: name }) => {
                let is_number = name.bytes().all(|sign| sign.is_ascii_digit());
                refuse(is_number, "cost", "a number has no quotes, and the name of a cost has letters")?;
                let cost = cost("cost", name)?;
                rule = rule.cost(move |head| cost(head));
            }
            Some(CostConfig::Reserved { reserve, reserve_at_most }) => {
                let estimate = cost("reserve", reserve)?;
                rule = rule.reserve(move |head| estimate(head));
                if let Some(share) = *reserve_at_most {
                    rule = rule.reserve_at_most(share);
                }
            }
        }
        match &config.correction {
            None => {}
            Some(CorrectionConfig::CountIf(name)) => {
                let any = Arc::new(|_: &ResponseHead<'_>| true);
                let counts = self.find(&self.conditions, "count-if", "a condition", name, any)?;
                rule = rule.count_if(move |response| counts(response));
            }
            Some(CorrectionConfig::CostBy(name)) => {
                let any = Arc::new(|_: &ResponseHead<'_>| 1);
                let cost = self.find(&self.response_costs, "cost-by", "a response cost", name, any)?;
                rule = rule.cost_by(move |response| cost(response));
            }
        }
        Ok(rule)
    }

    fn with_choices(&self, mut rule: Rule, config: &RuleConfig) -> Result<Rule, Mistake> {
        let class = |field, name: &str| {
            let any = Arc::new(|_: &Head<'_>, _: &Key| None);
            self.find(&self.classes, field, "a class", name, any)
        };
        if let Some(TiersConfig { by, quotas }) = config.limit.tiers(rule.policy().quota().window())? {
            let class = class("tiers", &by)?;
            let tiered = rule.try_tiers(quotas, move |head, key| class(head, key));
            rule = tiered.map_err(|error| Mistake::new("tiers", error))?;
        }
        if let Some(name) = &config.quota_by {
            let any = Arc::new(|_: &Head<'_>, _: &Key| Ok(Limit::Own));
            let quota = self.find(&self.quotas, "quota-by", "a quota", name, any)?;
            rule = rule.quota(move |head, key| quota(head, key));
        }
        if let Some(LeavingConfig { by, units }) = &config.leaving {
            let class = class("leaving", by)?;
            let units = units.iter().map(|(name, units)| (name, *units));
            let with_classes = rule.try_leaving(units, move |head, key| class(head, key));
            rule = with_classes.map_err(|error| Mistake::new("leaving", error))?;
        }
        Ok(rule)
    }

    fn with_exemptions(&self, mut rule: Rule, config: &RuleConfig) -> Result<Rule, Mistake> {
        if let Some(when) = config.when.clone() {
            if !when.path.is_empty() {
                rule = rule.only_on(when.path.iter().map(PathPattern::as_str));
            }
            rule = rule.exempt(move |head: &Head<'_>| !when.is_met_by(head));
        }
        for exemption in &config.exempt {
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

/// Counts the rules that a thread has built.
#[cfg(test)]
pub(crate) mod count {
    use std::cell::Cell;

    thread_local! {
        static BUILT: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn build() {
        BUILT.set(BUILT.get() + 1);
    }

    /// The rules that were built since the last call.
    pub(crate) fn built() -> usize {
        BUILT.take()
    }
}
