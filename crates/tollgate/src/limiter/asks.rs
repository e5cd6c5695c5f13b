//! What callers ask: by one key, by a key for each policy, or by the head of a request.

use tollgate_core::{Key, Policy, Store, Verdict};

use super::decider::Decider;
use crate::decision::Denial;
use crate::decision::Report;
use crate::errors::Reason;
use crate::errors::SetupError;
use crate::extract::Head;
use crate::plan::{Ask, Asks, RuleNumber};
use crate::store::NeverFails;

impl<S> Decider<S> {
    /// What a caller asks of all policies, with one key and cost.
    pub(crate) fn asks(&self, key: Option<&Key>, cost: u64) -> Result<Asks, Denial> {
        let plan = self.plan();
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            let first = plan.enforced().next();
            return first.map_or_else(|| Ok(Asks::new()), |first| Err(self.no_key(first, Reason::NoKey)));
        };
        // One cost for all: a slot is one, whatever the work is in other units.
        let of = |rule| if plan.own(rule).is_in_flight() { cost.min(1) } else { cost };
        let ask = |rule: RuleNumber| Ask { policy: rule.into(), key: key.clone(), cost: of(rule) };
        Ok(plan.with_blocks(plan.enforced().map(ask).collect()))
    }

    /// What a caller asks of each of the named policies.
    pub(super) fn asks_of_each(
        &self,
        each: &[(&str, &Key, u64)],
    ) -> Result<Result<Asks, Denial>, SetupError> {
        let plan = self.plan();
        let ask = |(name, key, cost): &(&str, &Key, u64)| {
            Ok(Ask { policy: plan.number_of(name)?.into(), key: (*key).clone(), cost: *cost })
        };
        let mut asks = each.iter().map(ask).collect::<Result<Asks, SetupError>>()?;
        // In the order of the policies: equal sets wait in one queue.
        let number = |ask: &Ask| plan.rule_of(&ask.policy);
        asks.sort_unstable_by_key(number);
        if let Some(two) = asks.windows(2).find(|two| number(&two[0]) == number(&two[1])) {
            return Err(SetupError::AskedTwice(plan.policy(&two[0].policy).name().to_owned()));
        }
        Ok(match asks.iter().find(|ask| ask.key.is_empty()) {
            Some(ask) => Err(self.no_key(number(ask), Reason::NoKey)),
            None => Ok(plan.with_blocks(asks)),
        })
    }

    /// The denial of a request without a key that this policy needs, for that reason.
    fn no_key(&self, rule: RuleNumber, reason: Reason) -> Denial {
        Denial::new(reason, Report::new(self.plan(), [rule.into()], Verdict::without_statuses(0)))
    }
}

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// What a request asks of each rule that applies to it.
    pub(crate) fn asks_of(&self, head: &Head<'_>) -> Result<Asks, Denial> {
        let supports = |policy: &Policy| self.engine.store.supports(policy).is_ok();
        self.plan().ask(head, supports).map_err(|(rule, reason)| self.no_key(rule, reason))
    }
}
