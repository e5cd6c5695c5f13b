//! A set of rules that are decided together.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::Policy;

use super::path_index::{PathIndex, RuleNumbers, received};
use super::{IntoRules, MissingKey, Rule};
use crate::charge::{ByResponse, Charge, GrantStamp, Settler};
use crate::extract::Head;
use crate::in_flight::Slot;
use crate::made_policies::WantedPolicy;
use crate::policy_set::{Ask, Asks, PolicyRef, PolicySet};
use crate::reason::Reason;
use crate::setup_error::SetupError;

/// Rules that are decided together. A rule has the number of its policy.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Box<[Rule]>,
    /// `None` if all rules are for every path.
    by_path: Option<PathIndex>,
    /// For each rule, the number of the first policy of its tiers and classes.
    first_variants: Box<[usize]>,
    /// Whether there is one rule, and it is only a key.
    is_lone_key: bool,
    /// The numbers of the rules that correct their charges.
    correcting: Box<[usize]>,
}

/// The charges of a request that are corrected later.
pub(crate) struct Corrected {
    /// Those of handlers.
    pub(crate) reserved: Vec<Charge>,
    pub(crate) by_response: ByResponse,
}

impl Rule {
    /// Checks whether its settings fit together, which no set changes.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.check_shadow()?;
        self.check_settling()?;
        self.check_slots()
    }
}

impl RuleSet {
    /// A set of rules, and that of their policies.
    pub(crate) fn try_new(rules: impl IntoRules) -> Result<(RuleSet, PolicySet), SetupError> {
        let rules: Box<[Rule]> = rules.into_rules().collect();
        rules.iter().try_for_each(Rule::check)?;
        let variants = |rule: &Rule| {
            // Without its own policy.
            let variants = rule.try_variants()?.into_iter().skip(1);
            Ok(variants.map(|variant| variant.policy).collect::<Vec<Policy>>())
        };
        let variants = rules.iter().map(variants).collect::<Result<Box<[Vec<Policy>]>, SetupError>>()?;
        let with_variants =
            rules.iter().zip(&variants).map(|(rule, variants)| (rule.policy().clone(), &**variants));
        let policies = PolicySet::try_new(with_variants.collect())?;
        let policies = policies.without_fields_of(|number| rules[number].is_without_fields());
        let policies = policies.with_quotas_for(|number| rules[number].has_quota_of_request());
        let mut next = rules.len();
        let first_variants = variants.iter().map(|variants| {
            let first = next;
            next += variants.len();
            first
        });
        let first_variants = first_variants.collect();
        let is_lone_key = matches!(&*rules, [rule] if rule.is_only_a_key());
        let is_reserved = |number: &usize| rules[*number].policy().is_reserved();
        let correcting = (0..rules.len()).filter(is_reserved).collect();
        let by_path = PathIndex::new(&rules);
        Ok((RuleSet { rules, by_path, first_variants, is_lone_key, correcting }, policies))
    }

    /// The rules that are enforced, and those in shadow.
    pub(crate) fn try_both(rules: impl IntoRules) -> Result<[(RuleSet, PolicySet); 2], SetupError> {
        let (in_shadow, enforced): (Vec<Rule>, Vec<Rule>) = rules.into_rules().partition(Rule::is_shadow);
        if enforced.is_empty() && in_shadow.is_empty() {
            return Err(SetupError::NoRules);
        }
        let ((enforced, policies), (in_shadow, of_shadow)) =
            (RuleSet::try_new(enforced)?, RuleSet::try_new(in_shadow)?);
        let is_twice = |policy: &&Policy| policies.number(policy.name()).is_some();
        if let Some(twice) = of_shadow.own().iter().find(is_twice) {
            return Err(SetupError::PolicyTwice(twice.name().to_owned()));
        }
        Ok([(enforced, policies), (in_shadow, of_shadow.in_shadow())])
    }

    /// What a request asks of the only rule, if that rule is only a key and finds one. Through
    /// [`RuleSet::ask`], a request costs 1.16 × with fields and 1.6 × without (peers, allowed,
    /// hot).
    #[inline]
    pub(crate) fn lone(&self, head: &Head<'_>) -> Option<Ask> {
        match &*self.rules {
            [rule] if self.is_lone_key => {
                let key = rule.find(head)?;
                (!key.is_empty()).then_some(Ask { policy: PolicyRef::Numbered(0), key, cost: 1 })
            }
            _ => None,
        }
    }

    /// What a request asks of each rule. Or the number of the first rule that refuses it because it
    /// has no key, and why it has none. `supports` says whether the store can enforce a policy.
    pub(crate) fn ask(
        &self,
        head: &Head<'_>,
        policies: &PolicySet,
        supports: impl Fn(&Policy) -> bool,
    ) -> Result<Asks, (usize, Reason)> {
        let mut asks = Asks::new();
        let mut ask = |number| {
            let ask = self.ask_of(number, head, policies, &supports);
            asks.extend(ask.map_err(|reason| (number, reason))?);
            Ok(())
        };
        match self.that_may_apply(head) {
            None => (0..self.rules.len()).try_for_each(ask)?,
            Some(rules) => rules.into_iter().try_for_each(&mut ask)?,
        }
        Ok(asks)
    }

    /// The rules that may apply to a request. `None` if all may.
    pub(crate) fn that_may_apply(&self, head: &Head<'_>) -> Option<RuleNumbers> {
        self.by_path.as_ref().map(|index| index.find(received(head).path()))
    }

    /// What a request asks of the rule with this number, if the rule applies to it. Or why it has
    /// no key.
    #[inline]
    pub(crate) fn ask_of(
        &self,
        number: usize,
        head: &Head<'_>,
        policies: &PolicySet,
        supports: impl Fn(&Policy) -> bool,
    ) -> Result<Option<Ask>, Reason> {
        let rule = &self.rules[number];
        if rule.is_exempt(head) {
            return Ok(None);
        }
        let key = match rule.key_or_else(rule.find(head)) {
            Ok(key) => key,
            Err(MissingKey::Skip) => return Ok(None),
            Err(_) => return Err(rule.why_missing(head)),
        };
        let made = rule.quota_of(head, &key).and_then(|(quota, leaves)| {
            let wanted = WantedPolicy { quota, leaves };
            policies.made(number, wanted, || rule.with_quota(quota, leaves).filter(&supports))
        });
        let policy = made.unwrap_or_else(|| match rule.variant(head, &key) {
            Some(variant) => (self.first_variants[number] + variant).into(),
            None => number.into(),
        });
        let cost = rule.cost_of(head, policies.policy(&policy));
        Ok(Some(Ask { policy, key, cost }))
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// How long each ask may wait for its slot, if any may. `deadline` is that of the caller.
    pub(crate) fn waits(
        &self,
        policies: &PolicySet,
        asks: &[Ask],
        deadline: Option<Duration>,
    ) -> Option<SmallVec<[Duration; 4]>> {
        let deadline = deadline.unwrap_or(Duration::MAX);
        let wait = |ask: &Ask| match policies.policy(&ask.policy).is_in_flight() {
            true => self.rules[policies.named(&ask.policy)].wait().min(deadline),
            false => Duration::ZERO,
        };
        let waits: SmallVec<[Duration; 4]> = asks.iter().map(wait).collect();
        waits.iter().any(|wait| !wait.is_zero()).then_some(waits)
    }

    /// Ends slots that their rules do not let a request hold for longer.
    pub(crate) fn hold_at_most(&self, slot: &Slot) {
        slot.end_after(|rule, policy| {
            // A permit may be of a set that these rules replaced.
            let rule = self.rules.get(rule).filter(|rule| rule.policy().name() == policy.name());
            rule.and_then(Rule::held)
        });
    }

    /// Whether a rule corrects its charges.
    #[inline]
    pub(crate) fn corrects(&self) -> bool {
        !self.correcting.is_empty()
    }

    /// The charges of a request that passes, for each rule that corrects them. `granted` is what a
    /// store granted for the ask at a place.
    pub(crate) fn charges(
        &self,
        settler: &Arc<dyn Settler>,
        policies: &PolicySet,
        asks: &[Ask],
        granted: impl Fn(usize) -> Option<GrantStamp>,
    ) -> Corrected {
        let mut corrected = Corrected { reserved: Vec::new(), by_response: ByResponse::default() };
        for rule in self.correcting.iter().map(|number| &self.rules[*number]) {
            // A permit may be of a set that these rules replaced.
            let Some(number) = policies.number(rule.policy().name()) else { continue };
            let at = asks.iter().position(|ask| policies.named(&ask.policy) == number);
            let charge = match at {
                Some(at) => {
                    let Ask { policy, key, cost } = &asks[at];
                    Charge::new(settler, policy.clone(), Some(key.clone()), *cost, granted(at))
                }
                None => Charge::new(settler, number.into(), None, 0, None),
            };
            if let Some(of_response) = rule.of_response() {
                corrected.by_response.add(charge.clone(), of_response);
            }
            if rule.reserves() {
                corrected.reserved.push(charge);
            }
        }
        corrected
    }
}
