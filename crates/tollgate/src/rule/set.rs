//! A set of rules that are decided together.

use tollgate_core::Policy;

use super::{IntoRules, MissingKey, Rule};
use crate::extract::Head;
use crate::policy_set::{Ask, Asks, PolicySet};
use crate::reason::Reason;
use crate::setup_error::SetupError;

/// Rules that are decided together. A rule has the number of its policy.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Box<[Rule]>,
    /// For each rule, the number of its first tier's policy.
    first_tiers: Box<[usize]>,
    /// Whether there is one rule, and it is only a key.
    is_lone_key: bool,
}

impl RuleSet {
    /// A set of rules, and that of their policies.
    pub(crate) fn try_new(rules: impl IntoRules) -> Result<(RuleSet, PolicySet), SetupError> {
        let rules: Box<[Rule]> = rules.into_rules().collect();
        let with_tiers: Vec<(Policy, &[Policy])> =
            rules.iter().map(|rule| (rule.policy().clone(), rule.tiers_policies())).collect();
        let policies = PolicySet::try_new(with_tiers)?;
        let mut next = rules.len();
        let first_tiers = rules.iter().map(|rule| {
            let first = next;
            next += rule.tiers_policies().len();
            first
        });
        let first_tiers = first_tiers.collect();
        let is_lone_key = matches!(&*rules, [rule] if rule.is_only_a_key());
        Ok((RuleSet { rules, first_tiers, is_lone_key }, policies))
    }

    /// What a request asks of the only rule, if that rule is only a key and finds one. Through
    /// [`RuleSet::ask`], a request costs 1.16 × with fields and 1.6 × without (peers, allowed,
    /// hot).
    #[inline]
    pub(crate) fn lone(&self, head: &Head<'_>) -> Option<Ask> {
        match &*self.rules {
            [rule] if self.is_lone_key => {
                let key = rule.find(head)?;
                (!key.is_empty()).then_some(Ask { policy: 0, key, cost: 1 })
            }
            _ => None,
        }
    }

    /// What a request asks of each rule. Or the number of the first rule that refuses it because it
    /// has no key, and why it has none.
    pub(crate) fn ask(&self, head: &Head<'_>) -> Result<Asks, (usize, Reason)> {
        let mut asks = Asks::new();
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.is_exempt(head) {
                continue;
            }
            let key = match rule.key_or_else(rule.find(head)) {
                Ok(key) => key,
                Err(MissingKey::Skip) => continue,
                Err(_) => return Err((number, rule.why_missing(head))),
            };
            let tier = rule.tier(head, &key).map(|tier| self.first_tiers[number] + tier);
            asks.push(Ask { policy: tier.unwrap_or(number), key, cost: rule.cost_of(head) });
        }
        Ok(asks)
    }
}
