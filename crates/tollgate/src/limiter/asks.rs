//! What callers ask: by one key, by a key for each policy, or by the head of a request.

use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Quota, Store, Verdict};

use super::decider::Decider;
use super::question::Question;
use crate::decision::{Denial, Report};
use crate::errors::{Reason, SetupError};
use crate::extract::Head;
use crate::plan::{Ask, Asks, PolicyRef, RuleNumber, Switch};
use crate::rule::Limit;
use crate::store::NeverFails;

impl<S> Decider<S> {
    /// What a caller asks of all policies, with one key and cost.
    pub(crate) fn asks(&self, key: Option<&Key>, cost: u64) -> Result<Asks, Denial> {
        let plan = self.plan();
        if !self.asks_rules()? {
            return Ok(Asks::new());
        }
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            let first = plan.enforced().next();
            return first.map_or_else(|| Ok(Asks::new()), |first| Err(self.refused_by(first, Reason::NoKey)));
        };
        // One cost for all: a slot is one, whatever the work is in other units.
        let of = |rule| if plan.own(rule).is_in_flight() { cost.min(1) } else { cost };
        let ask = |rule: RuleNumber| Ask { policy: rule.into(), key: key.clone(), cost: of(rule) };
        Ok(plan.with_blocks(plan.enforced().map(ask).collect()))
    }

    /// Whether the rules are asked at all. If not, every request passes, or none.
    fn asks_rules(&self) -> Result<bool, Denial> {
        match self.plan().switch() {
            Switch::On => Ok(true),
            Switch::Off => Ok(false),
            Switch::Stopping => {
                let report = Report::new(self.plan(), [], Verdict::without_statuses(0));
                Err(Denial::new(Reason::Stopping, report))
            }
        }
    }

    /// The denial of a request by this rule, about which no store is asked.
    fn refused_by(&self, rule: RuleNumber, reason: Reason) -> Denial {
        Denial::new(reason, Report::new(self.plan(), [rule.into()], Verdict::without_statuses(0)))
    }
}

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// What a caller asks of each of the named policies.
    pub(super) fn asks_of_each(
        &self,
        questions: &[Question<'_>],
    ) -> Result<Result<Asks, Denial>, SetupError> {
        let plan = self.plan();
        let number = |question: &Question<'_>| plan.number_of(question.policy);
        let mut each = questions
            .iter()
            .map(|question| Ok((number(question)?, question)))
            .collect::<Result<SmallVec<[(RuleNumber, &Question<'_>); 4]>, SetupError>>()?;
        // In the order of the policies: equal sets wait in one queue.
        each.sort_unstable_by_key(|(rule, _)| *rule);
        if let Some(two) = each.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(SetupError::AskedTwice(two[0].1.policy.to_owned()));
        }
        match self.asks_rules() {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(Asks::new())),
            Err(denial) => return Ok(Err(denial)),
        }
        if let Some((rule, _)) = each.iter().find(|(_, question)| question.key.is_empty()) {
            return Ok(Err(self.refused_by(*rule, Reason::NoKey)));
        }
        let mut asks = Asks::new();
        for (rule, Question { key, cost, limit, .. }) in each {
            let policy = match *limit {
                Limit::Own => rule.into(),
                Limit::Unlimited => continue,
                Limit::Nothing => return Ok(Err(self.refused_by(rule, Reason::NothingAllowed))),
                Limit::Of(quota) => self.with_quota(rule, quota)?,
            };
            asks.push(Ask { policy, key: (*key).clone(), cost: *cost });
        }
        Ok(Ok(plan.with_blocks(asks)))
    }

    /// The policy by which units are charged or given back without a check. `None` if nothing is
    /// counted: of the empty key, and by a limit that counts nothing.
    pub(super) fn corrects(&self, question: &Question<'_>) -> Result<Option<PolicyRef>, SetupError> {
        let rule = self.plan().number_of(question.policy)?;
        let (policy, counts) = match question.limit {
            Limit::Own => (rule.into(), true),
            Limit::Unlimited | Limit::Nothing => (rule.into(), false),
            Limit::Of(quota) => (self.with_quota(rule, quota)?, true),
        };
        if self.plan().policy(&policy).numbers().with_debt().is_none() {
            return Err(SetupError::NoDebt(question.policy.to_owned()));
        }
        Ok((counts && !question.key.is_empty()).then_some(policy))
    }

    /// The policy of a rule with the quota of a question.
    fn with_quota(&self, rule: RuleNumber, quota: Quota) -> Result<PolicyRef, SetupError> {
        let made = self.plan().made(rule, quota, 0, |policy| self.supports(policy));
        made.ok_or_else(|| SetupError::QuotaNotAllowed(self.plan().own(rule).name().to_owned(), quota))
    }

    /// What a request asks of each rule that applies to it.
    pub(crate) fn asks_of(&self, head: &Head<'_>) -> Result<Asks, Denial> {
        if !self.asks_rules()? {
            return Ok(Asks::new());
        }
        let supports = |policy: &Policy| self.supports(policy);
        self.plan().ask(head, supports).map_err(|(rule, reason)| self.refused_by(rule, reason))
    }

    fn supports(&self, policy: &Policy) -> bool {
        self.engine.store.supports(policy).is_ok()
    }
}
