//! What a request asks of the policies of a plan.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Check, Key, Policy, Quota};

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

/// What a request asks of the policies that apply to it. The statuses of a verdict are in the same
/// order. It is moved several times with each request that waits: with four in place, such a
/// request costs 1.17 × (`cargo bench --bench instructions`, later, wrapped store).
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
    /// without asking a store, and why. `supports` says whether the store can enforce a
    /// policy.
    pub(crate) fn ask(
        &self,
        head: &Head<'_>,
        supports: impl Fn(&Policy) -> bool,
    ) -> Result<Asks, (RuleNumber, Reason)> {
        // Few rules apply to one request, and most plans have one.
        let mut asks = Asks::with_capacity(self.enforced.min(4));
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

    /// What a request asks of the rule with this number, if the rule applies to it. Or why the rule
    /// refuses it.
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
        let made = match rule.limit_of(head, &key)? {
            Limit::Own => None,
            Limit::Of(quota) => {
                let made = self.made(number, quota, rule.class_units(head, &key), supports);
                Some(made.ok_or(Reason::InvalidLimit)?)
            }
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
        let wanted = WantedPolicy { quota, leaves, longest_wait: None };
        let find = || rule.with_quota(quota, leaves).filter(|policy| supports(policy));
        made.find(number, wanted, find).map(PolicyRef::Made)
    }

    /// Gives `ask` what is asked of the store, for a caller that waits until `deadline` at the
    /// longest.
    pub(crate) fn checks<T>(
        &self,
        asks: &[Ask],
        deadline: Option<Duration>,
        ask: impl FnOnce(&[Check<'_>]) -> T,
    ) -> T {
        let Some(deadline) = deadline else {
            let set: SmallVec<[Check<'_>; 4]> = asks.iter().map(|ask| self.check(ask)).collect();
            return ask(&set);
        };
        let policies: SmallVec<[Policy; 4]> =
            asks.iter().map(|ask| self.waiting_until(ask, deadline)).collect();
        let set: SmallVec<[Check<'_>; 4]> =
            asks.iter().zip(&policies).map(|(ask, policy)| Check::new(policy, &ask.key, ask.cost)).collect();
        ask(&set)
    }

    /// The policy of an ask, for a caller that waits until `deadline` at the longest. Of a deadline
    /// three digits count, so at most 1 % is lost: then the policies of most callers are the same.
    fn waiting_until(&self, ask: &Ask, deadline: Duration) -> Policy {
        let policy = self.policy(&ask.policy);
        if policy.longest_wait() <= deadline {
            return policy.clone();
        }
        let (rule, max_wait) = (self.rule_of(&ask.policy), three_digits(deadline));
        let (quota, leaves) = (policy.quota(), policy.numbers().headroom());
        let wanted = WantedPolicy { quota, leaves, longest_wait: Some(max_wait) };
        // Valid, since a longer wait is.
        let shorten = || policy.clone().try_with_algorithm(Algorithm::LeakyBucket { max_wait }).ok();
        let made = self.rules[rule.0].made.find(rule, wanted, shorten);
        made.map_or_else(|| policy.clone(), |made| made.policy.clone())
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

    /// Whether units are charged for it, which may come back. A slot comes back when it is
    /// released, and a block charges nothing.
    pub(crate) fn charges(&self, ask: &Ask) -> bool {
        !self.is_slot(ask) && !self.policy(&ask.policy).numbers().charges_nothing()
    }

    /// Whether it asks for a slot.
    #[inline]
    pub(crate) fn is_slot(&self, ask: &Ask) -> bool {
        self.policy(&ask.policy).is_in_flight()
    }
}

/// Rounds down to three digits of whole microseconds.
fn three_digits(time: Duration) -> Duration {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let step = 10_u64.pow(micros.checked_ilog10().unwrap_or_default().saturating_sub(2));
    Duration::from_micros(micros - micros % step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;

    #[test]
    fn three_digits_of_a_time_count() {
        let rounded = |micros| three_digits(Duration::from_micros(micros)).as_micros();
        let times = [0, 7, 999, 1_009, 1_000_000, 1_239_999, 250_000, u64::MAX];
        assert_eq!(
            times.map(rounded),
            [0, 7, 999, 1_000, 1_000_000, 1_230_000, 250_000, 18_400_000_000_000_000_000]
        );
        assert_eq!(three_digits(Duration::MAX).as_micros(), rounded(u64::MAX));
    }

    #[test]
    fn callers_with_similar_deadlines_have_one_policy() {
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(10) };
        let own = Policy::new("p", Quota::per_second(5)).with_algorithm(queue);
        let plan = Plan::try_new(own.clone().by(global())).unwrap();
        let ask = Ask { policy: RuleNumber(0).into(), key: Key::from("ada"), cost: 1 };
        let of = |millis| plan.waiting_until(&ask, Duration::from_millis(millis));
        assert_eq!((of(10_000), of(60_000)), (own.clone(), own.clone()));
        let (a, b) = (of(1_234), of(1_239));
        assert!(std::ptr::eq(a.numbers(), b.numbers()), "none is made for the second");
        assert_eq!(a.longest_wait(), Duration::from_millis(1_230));
        assert_eq!((a.scope(), a.quota()), (own.scope(), own.quota()));
        assert_eq!(of(0).longest_wait(), Duration::ZERO);
    }
}
