//! The plan of a limiter: its rules and their policies. It never changes; a replacement of rules is
//! another plan.

mod asks;
pub(crate) mod interned;
mod item;
mod made_policies;
mod path_index;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use tollgate_core::{Policy, Store};

use crate::errors::{Reason, SetupError, problem};
use crate::plan::interned::{interned, printable};
use crate::rule::{IntoRules, Rule};

pub(crate) use asks::{Ask, Asks};
pub(crate) use item::{Item, SEPARATOR, join};
use made_policies::{MadePolicies, MadePolicy};
use path_index::PathIndex;

/// The rules of a limiter and all of their policies. Requests, charges and slots keep the plan by
/// which they were decided.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// 1, or one more than that of the plan that it replaced.
    version: u64,
    switch: Switch,
    /// Those that are enforced, followed by those in shadow.
    rules: Box<[PlannedRule]>,
    enforced: usize,
    /// The own policies of all rules in their order, followed by those of tiers and classes, and by
    /// those that refuse blocked keys.
    policies: Box<[PlannedPolicy]>,
    by_name: HashMap<Box<str>, RuleNumber>,
    /// `None` if all rules are for every path.
    by_path: Option<PathIndex>,
    /// The value of `RateLimit-Policy` if all enforced rules apply with their own policies.
    own_items: HeaderValue,
    /// The rules that correct their charges.
    correcting: Box<[RuleNumber]>,
    needs: Needs,
}

/// Whether the rules of a plan are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    /// All requests pass.
    Off,
    /// All requests are refused, since the process stops.
    Stopping,
}

#[derive(Clone, Debug)]
struct PlannedRule {
    rule: Rule,
    /// The index of the first policy of its tiers and classes.
    first_variant: usize,
    block: Option<PolicyNumber>,
    /// The problem document of a request that only this rule refuses.
    quota_exceeded: Bytes,
    /// The policies of quotas that requests and questions bring.
    made: MadePolicies,
}

#[derive(Clone, Debug)]
struct PlannedPolicy {
    policy: Policy,
    rule: RuleNumber,
    /// Its number among the policies of its rule.
    variant: usize,
    /// `None` if the fields of responses leave it out.
    item: Option<Item>,
}

/// What the enforced rules of a plan need apart from a decision. Without a need, a request costs
/// nothing for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Some policies are for requests in flight.
    pub(crate) slots: bool,
    /// Something may follow a grant: a delay, what ends with the request, or rules in shadow.
    pub(crate) follow_ups: bool,
    /// Some policies may let requests wait.
    pub(crate) waits: bool,
    /// Some policies are written into the fields of responses.
    pub(crate) fields: bool,
    /// Some keys may be blocked, also by a rule in shadow.
    pub(crate) blocks: bool,
    /// There is one rule, and it is only a key.
    lone_key: bool,
}

/// The number of a rule in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleNumber(usize);

/// The number of a policy in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicyNumber(usize);

/// One of the policies of a plan.
#[derive(Clone, Debug)]
pub(crate) enum PolicyRef {
    /// That with this number.
    Numbered(PolicyNumber),
    /// One that a request brings.
    Made(Arc<MadePolicy>),
}

impl RuleNumber {
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// The own policy of a rule.
impl From<RuleNumber> for PolicyRef {
    fn from(rule: RuleNumber) -> PolicyRef {
        PolicyRef::Numbered(PolicyNumber(rule.0))
    }
}

impl Plan {
    /// The plan of some rules.
    pub(crate) fn try_new(rules: impl IntoRules) -> Result<Plan, SetupError> {
        let may_be_none = rules.may_be_none();
        let (in_shadow, mut rules): (Vec<Rule>, Vec<Rule>) = rules.into_rules().partition(Rule::is_shadow);
        let enforced = rules.len();
        rules.extend(in_shadow);
        if rules.is_empty() && !may_be_none {
            return Err(SetupError::NoRules);
        }
        let mut by_name = HashMap::with_capacity(rules.len());
        for (number, rule) in rules.iter().enumerate() {
            rule.check()?;
            let name = rule.policy().name();
            if by_name.insert(Box::from(name), RuleNumber(number)).is_some() {
                return Err(SetupError::PolicyTwice(name.to_owned()));
            }
        }
        let own = |(number, rule): (usize, &Rule)| PlannedPolicy::new(rule, number, 1, rule.policy().clone());
        let mut policies: Vec<PlannedPolicy> = rules.iter().enumerate().map(own).collect();
        let mut first_variants = Vec::with_capacity(rules.len());
        for (number, rule) in rules.iter().enumerate() {
            first_variants.push(policies.len());
            let variants = rule.try_variants()?.into_iter().enumerate().skip(1);
            policies.extend(
                variants.map(|(at, variant)| PlannedPolicy::new(rule, number, at + 1, variant.policy)),
            );
        }
        let needs = Needs::of(&rules[..enforced], &policies);
        let own_items = join(policies[..enforced].iter().filter_map(|policy| policy.item.as_ref()));
        let is_reserved = |number: &RuleNumber| rules[number.0].policy().numbers().is_reserved();
        let correcting: Vec<RuleNumber> = (0..enforced).map(RuleNumber).filter(is_reserved).collect();
        let by_path = PathIndex::new(&rules);
        let mut planned = Vec::with_capacity(rules.len());
        for ((number, rule), first_variant) in rules.into_iter().enumerate().zip(first_variants) {
            let block = rule.policy().numbers().block().map(|block| {
                policies.push(PlannedPolicy {
                    policy: block,
                    rule: RuleNumber(number),
                    variant: 0,
                    item: None,
                });
                PolicyNumber(policies.len() - 1)
            });
            let document = problem(Reason::QuotaExceeded, [rule.policy().name()].into_iter());
            let quota_exceeded = interned(document);
            planned.push(PlannedRule {
                rule,
                first_variant,
                block,
                quota_exceeded,
                made: MadePolicies::new(),
            });
        }
        Ok(Plan {
            version: 1,
            switch: Switch::On,
            rules: planned.into(),
            enforced,
            policies: policies.into(),
            by_name,
            by_path,
            own_items: printable(interned(own_items)),
            correcting: correcting.into(),
            needs,
        })
    }

    /// The plan that replaces an earlier one.
    pub(crate) fn after(self, earlier: &Plan) -> Plan {
        Plan { version: earlier.version + 1, ..self }.by(earlier.switch)
    }

    /// The same plan, switched otherwise.
    pub(crate) fn switched(&self, switch: Switch) -> Plan {
        Plan { version: self.version + 1, ..self.clone() }.by(switch)
    }

    fn by(self, switch: Switch) -> Plan {
        // `lone` does not refuse, so every request has to make its asks.
        let lone_key = self.needs.lone_key && switch != Switch::Stopping;
        Plan { switch, needs: Needs { lone_key, ..self.needs }, ..self }
    }

    #[inline]
    pub(crate) fn switch(&self) -> Switch {
        self.switch
    }

    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.switch == Switch::Off
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The same plan for another store, which may support other policies.
    pub(crate) fn for_other_store(&self) -> Arc<Plan> {
        // A clone has made none of the policies that requests and questions bring.
        Arc::new(self.clone())
    }

    /// Checks whether stores can enforce all policies: `store` is that of rules in shadow, or of
    /// the others.
    pub(crate) fn supported_by<'a, S: Store>(&self, store: impl Fn(bool) -> &'a S) -> Result<(), SetupError> {
        self.policies.iter().try_for_each(|PlannedPolicy { policy, rule, .. }| {
            store(self.is_shadow(*rule))
                .supports(policy)
                .map_err(|error| SetupError::Unsupported(policy.clone(), error))
        })
    }

    #[inline]
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    /// The rules that are enforced, followed by those in shadow.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.rules.iter().map(|planned| &planned.rule)
    }

    pub(crate) fn rule(&self, number: RuleNumber) -> &Rule {
        &self.rules[number.0].rule
    }

    /// The rules that correct their charges after the work.
    #[inline]
    pub(crate) fn correcting(&self) -> &[RuleNumber] {
        &self.correcting
    }

    /// The numbers of the rules that are enforced.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = RuleNumber> {
        (0..self.enforced).map(RuleNumber)
    }

    /// Whether there are rules in shadow.
    #[inline]
    pub(crate) fn has_shadow(&self) -> bool {
        self.enforced < self.rules.len() && !self.is_off()
    }

    #[inline]
    pub(crate) fn is_shadow(&self, rule: RuleNumber) -> bool {
        rule.0 >= self.enforced
    }

    /// The number of the rule whose policy has this name, if there is one.
    pub(crate) fn number(&self, name: &str) -> Option<RuleNumber> {
        self.by_name.get(name).copied()
    }

    /// [`Plan::number`], or the error of a program that names a policy which is not there.
    pub(crate) fn number_of(&self, name: &str) -> Result<RuleNumber, SetupError> {
        self.number(name).ok_or_else(|| {
            let names = self.rules().map(|rule| rule.policy().name().to_owned());
            SetupError::UnknownPolicy(name.to_owned(), names.collect())
        })
    }

    #[inline]
    pub(crate) fn policy<'a>(&'a self, policy: &'a PolicyRef) -> &'a Policy {
        match policy {
            PolicyRef::Numbered(number) => &self.policies[number.0].policy,
            PolicyRef::Made(made) => &made.policy,
        }
    }

    /// The own policy of a rule, without its tiers and classes.
    #[inline]
    pub(crate) fn own(&self, rule: RuleNumber) -> &Policy {
        &self.policies[rule.0].policy
    }

    /// The rule whose own policy, tier, class, block or quota this is.
    #[inline]
    pub(crate) fn rule_of(&self, policy: &PolicyRef) -> RuleNumber {
        match policy {
            PolicyRef::Numbered(number) => self.policies[number.0].rule,
            PolicyRef::Made(made) => made.rule,
        }
    }

    /// The policy that refuses blocked keys of a rule.
    pub(crate) fn block_of(&self, rule: RuleNumber) -> Option<&Policy> {
        self.rules[rule.0].block.map(|block| &self.policies[block.0].policy)
    }

    /// The policies that together reach all states of a key, of rules in shadow or of the others.
    pub(crate) fn with_states(&self, in_shadow: bool) -> impl Iterator<Item = &Policy> {
        let of_these = move |planned: &&PlannedPolicy| self.is_shadow(planned.rule) == in_shadow;
        let mut known = HashSet::new();
        let policies = self.policies.iter().filter(of_these).map(|planned| &planned.policy);
        policies.filter(move |policy| known.insert(policy.scope()))
    }

    /// Tells apart what callers of one key wait for. A replaced rule keeps its number, also with
    /// another quota.
    pub(crate) fn queue_of(&self, ask: &Ask) -> usize {
        let mut hasher = DefaultHasher::new();
        self.own(self.rule_of(&ask.policy)).name().hash(&mut hasher);
        match &ask.policy {
            PolicyRef::Numbered(number) => self.policies[number.0].variant.hash(&mut hasher),
            PolicyRef::Made(made) => {
                (made.policy.quota(), made.policy.numbers().headroom()).hash(&mut hasher);
            }
        }
        // Enough to tell rules apart, also on 32 bits.
        (hasher.finish() >> 32) as usize
    }

    /// What a field says of a policy. `None` if fields leave it out.
    #[inline]
    pub(crate) fn item<'a>(&'a self, policy: &'a PolicyRef) -> Option<&'a Item> {
        match policy {
            PolicyRef::Numbered(number) => self.policies[number.0].item.as_ref(),
            PolicyRef::Made(made) => self.policies[made.rule.0].item.as_ref().map(|_| made.item()),
        }
    }

    /// The value of `RateLimit-Policy` for these asks, if they are of all enforced rules, with
    /// their own policies.
    pub(crate) fn own_items(&self, asks: &[Ask]) -> Option<&HeaderValue> {
        // The numbers are ascending and distinct, so these are the policies of all rules.
        let is_own =
            |ask: &Ask| matches!(ask.policy, PolicyRef::Numbered(policy) if policy.0 < self.enforced);
        (asks.len() == self.enforced && asks.iter().all(is_own)).then_some(&self.own_items)
    }

    /// The problem document of a request that only this policy refuses. It contains the policy's
    /// name, which is also that of its tiers.
    pub(crate) fn quota_exceeded(&self, policy: &PolicyRef) -> &Bytes {
        &self.rules[self.rule_of(policy).0].quota_exceeded
    }
}

impl PlannedPolicy {
    fn new(rule: &Rule, number: usize, variant: usize, policy: Policy) -> PlannedPolicy {
        let has_item = !rule.is_without_fields() && !rule.is_shadow();
        let item = has_item.then(|| Item::new(&policy, interned));
        PlannedPolicy { policy, rule: RuleNumber(number), variant, item }
    }
}

impl Needs {
    /// Those of enforced rules, and of the policies of all rules.
    fn of(rules: &[Rule], policies: &[PlannedPolicy]) -> Needs {
        let mut enforced = policies.iter().filter(|planned| planned.rule.0 < rules.len());
        let slots = rules.iter().any(|rule| rule.policy().is_in_flight());
        let waits = slots || enforced.clone().any(|planned| !planned.policy.longest_wait().is_zero());
        let shadow = policies.iter().any(|planned| planned.rule.0 >= rules.len());
        Needs {
            slots,
            follow_ups: waits || shadow || rules.iter().any(|rule| rule.policy().numbers().is_reserved()),
            waits,
            fields: enforced.any(|planned| planned.item.is_some()),
            blocks: policies.iter().any(|planned| planned.policy.numbers().denials_until_block().is_some()),
            lone_key: matches!(rules, [rule] if rule.is_only_a_key()),
        }
    }
}
