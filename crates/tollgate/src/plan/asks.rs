//! What a request asks of the policies of a plan.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Check, Key, Policy, Quota};

use super::made_policies::WantedPolicy;
use super::path_index::RuleNumbers;
use super::{Plan, PlannedRule, PolicyNumber, PolicyRef, RuleNumber};
use crate::errors::Reason;
use crate::extract::{Head, received};
use crate::rule::{Limit, MissingKey};

/// What a request asks of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) policy: PolicyRef,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// What a request asks of the policies that apply to it, in their order. It is moved several times
/// with each request that waits: with four in place, such a request costs 1.17 × (`cargo bench
/// --bench instructions`, later, wrapped store).
pub(crate) type Asks = SmallVec<[Ask; 1]>;

impl Plan {
    /// What a request asks of the only enforced rule, if that rule is only a key and finds one.
    /// Through [`Plan::ask`], a request costs 1.16 × with fields and 1.6 × without (peers, allowed,
    /// hot).
    #[inline]
    pub(crate) fn lone(&self, head: &Head<'_>) -> Option<Ask> {
        if !self.needs.lone_key {
            return None;
        }
        let key = self.rules[0].rule.find(head)?;
        (!key.is_empty()).then_some(Ask { policy: RuleNumber(0).into(), key, cost: 1 })
    }

    /// What a request asks of each enforced rule. Or the number of the first rule that refuses it
    /// because it has no key, and why it has none. `supports` says whether the store can enforce a
    /// policy.
    pub(crate) fn ask(
        &self,
        head: &Head<'_>,
        supports: impl Fn(&Policy) -> bool,
    ) -> Result<Asks, (RuleNumber, Reason)> {
        // Few rules apply to one request, and most plans have one.
        let mut asks = Asks::with_capacity(self.enforced.min(4));
        if self.is_off() {
            return Ok(asks);
        }
        let ask = |rule| {
            if let Some(ask) = self.ask_of(rule, head, &supports).map_err(|reason| (rule, reason))? {
                asks.push(ask);
            }
            Ok(())
        };
        match self.that_may_apply(head) {
            None => self.enforced().try_for_each(ask)?,
            Some(rules) => rules.into_iter().take_while(|rule| !self.is_shadow(*rule)).try_for_each(ask)?,
        }
        Ok(self.with_blocks(asks))
    }

    /// The rules in shadow that may apply to a request.
    pub(crate) fn in_shadow(&self, head: &Head<'_>) -> RuleNumbers {
        match self.that_may_apply(head) {
            None => (self.enforced..self.rules.len()).map(RuleNumber).collect(),
            Some(rules) => rules.into_iter().filter(|rule| self.is_shadow(*rule)).collect(),
        }
    }

    /// The rules that may apply to a request. `None` if all may.
    fn that_may_apply(&self, head: &Head<'_>) -> Option<RuleNumbers> {
        self.by_path.as_ref().map(|index| index.find(received(head).path()))
    }

    /// What a request asks of the rule with this number, if the rule applies to it. Or why it has
    /// no key.
    #[inline]
    pub(crate) fn ask_of(
        &self,
        number: RuleNumber,
        head: &Head<'_>,
        supports: impl Fn(&Policy) -> bool,
    ) -> Result<Option<Ask>, Reason> {
        let planned = &self.rules[number.0];
        let rule = &planned.rule;
        if rule.is_exempt(head) {
            return Ok(None);
        }
        let key = match rule.key_or_else(rule.find(head)) {
            Ok(key) => key,
            Err(MissingKey::Skip) => return Ok(None),
            Err(_) => return Err(rule.why_missing(head)),
        };
        let made = match rule.limit_of(head, &key) {
            Limit::Own => None,
            Limit::Of(quota) => self.made(number, quota, rule.class_units(head, &key), supports),
            Limit::Unlimited => return Ok(None),
            Limit::Nothing => return Err(Reason::NothingAllowed),
        };
        let policy = match (made, rule.variant(head, &key)) {
            (Some(made), _) => made,
            (None, Some(variant)) => PolicyRef::Numbered(PolicyNumber(planned.first_variant + variant)),
            (None, None) => number.into(),
        };
        let cost = rule.cost_of(head, self.policy(&policy));
        Ok(Some(Ask { policy, key, cost }))
    }

    /// The policy of a rule with this quota, which leaves so many units to others. `None` if the
    /// rule or the store does not allow it.
    pub(crate) fn made(
        &self,
        number: RuleNumber,
        quota: Quota,
        leaves: u64,
        supports: impl Fn(&Policy) -> bool,
    ) -> Option<PolicyRef> {
        let PlannedRule { rule, made, .. } = &self.rules[number.0];
        let wanted = WantedPolicy { quota, leaves };
        let find = || rule.with_quota(quota, leaves).filter(|policy| supports(policy));
        made.find(number, wanted, find).map(PolicyRef::Made)
    }

    /// Adds what is asked of blocks, behind all others: observers and charges find a rule by the
    /// first ask that is of it.
    pub(crate) fn with_blocks(&self, mut asks: Asks) -> Asks {
        if !self.needs.blocks {
            return asks;
        }
        let block = |ask: &Ask| {
            let block = self.rules[self.rule_of(&ask.policy).0].block.filter(|_| ask.cost > 0)?;
            Some(Ask { policy: PolicyRef::Numbered(block), key: ask.key.clone(), cost: 1 })
        };
        let blocks: Asks = asks.iter().filter_map(block).collect();
        asks.extend(blocks);
        asks
    }

    /// What is asked of the store.
    #[inline]
    pub(crate) fn check<'a>(&'a self, ask: &'a Ask) -> Check<'a> {
        Check::new(self.policy(&ask.policy), &ask.key, ask.cost)
    }

    /// Whether it asks for a slot.
    #[inline]
    pub(crate) fn is_slot(&self, ask: &Ask) -> bool {
        self.policy(&ask.policy).is_in_flight()
    }

    /// How long each ask may wait for its slot, if any may. `deadline` is that of the caller.
    pub(crate) fn waits(&self, asks: &[Ask], deadline: Option<Duration>) -> Option<SmallVec<[Duration; 4]>> {
        if !self.needs().slots {
            return None;
        }
        let deadline = deadline.unwrap_or(Duration::MAX);
        let wait = |ask: &Ask| match self.is_slot(ask) {
            true => self.rule(self.rule_of(&ask.policy)).wait().min(deadline),
            false => Duration::ZERO,
        };
        let waits: SmallVec<[Duration; 4]> = asks.iter().map(wait).collect();
        waits.iter().any(|wait| !wait.is_zero()).then_some(waits)
    }
}
