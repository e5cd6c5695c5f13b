//! Rules that are decided together, and what a request asks of them.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;
use tollgate_core::{Algorithm, Key, Policy, PolicyError, Store};

use super::{MissingKey, Rule};
use crate::extract::Head;
use crate::interned::Text;
use crate::problem::{Reason, problem};

/// Rules whose policies have different names, decided together.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Box<[Rule]>,
    /// Each rule's own under the number of the rule, and behind them those of tiers.
    policies: Box<[Policy]>,
    /// For each rule, the number of the policy of its first tier.
    first_tiers: Box<[usize]>,
    /// Whether something is a function of the parts of a request, which it has to be taken apart for.
    need_parts: bool,
    /// Whether no rule has more than a key.
    only_keys: bool,
    /// Whether there is one rule, which is nothing but a key that needs no parts, and delays no
    /// request.
    is_lone_key: bool,
    /// Whether a policy is a leaky bucket that may delay requests.
    may_delay: bool,
    /// For each policy, the problem document of a request that it alone refuses.
    quota_exceeded: Box<[Bytes]>,
    /// The numbers of policies no two of which share a key's state.
    apart: Box<[usize]>,
}

/// What a request asks of one rule.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The number of the policy: that of the rule, unless the request is in a tier.
    pub(crate) policy: usize,
    pub(crate) key: Key,
    pub(crate) cost: u32,
}

/// What a request asks of the rules that apply to it, in their order.
pub(crate) type Asks = SmallVec<[Ask; 4]>;

/// The numbers of the policies that a request was asked of, in the order of their rules: what is left of [`Asks`] once a store
/// has them, and small to keep.
pub(crate) type Asked = SmallVec<[usize; 4]>;

#[inline]
pub(crate) fn asked(asks: &[Ask]) -> Asked {
    match asks {
        [ask] => SmallVec::from_buf_and_len([ask.policy, 0, 0, 0], 1),
        _ => asks.iter().map(|ask| ask.policy).collect(),
    }
}

/// What was asked of the [`Rules::lone`] rule.
#[inline]
pub(crate) fn asked_alone() -> Asked {
    SmallVec::from_buf_and_len([0; 4], 1)
}

impl Rules {
    pub(crate) fn try_new(rules: impl IntoIterator<Item = Rule>) -> Result<Rules, RulesError> {
        let rules: Box<[Rule]> = rules.into_iter().collect();
        if rules.is_empty() {
            return Err(RulesError::NoRules);
        }
        for (i, rule) in rules.iter().enumerate() {
            if rules[..i].iter().any(|other| other.policy.name() == rule.policy.name()) {
                return Err(RulesError::NameTwice(rule.policy.name().to_owned()));
            }
        }
        let mut policies: Vec<Policy> = rules.iter().map(|rule| rule.policy.clone()).collect();
        let mut quota_exceeded: Vec<Bytes> = rules.iter().map(|rule| document(&rule.policy)).collect();
        let mut first_tiers = Vec::with_capacity(rules.len());
        for (number, rule) in rules.iter().enumerate() {
            first_tiers.push(policies.len());
            policies.extend_from_slice(rule.tiers_policies());
            // It tells the policy's name, which the tiers share.
            quota_exceeded.resize(policies.len(), quota_exceeded[number].clone());
        }
        let mut scopes = HashSet::new();
        let apart = (0..policies.len()).filter(|number| scopes.insert(policies[*number].scope())).collect();
        let need_parts = rules.iter().any(Rule::needs_parts);
        let only_keys = rules.iter().all(Rule::is_only_a_key);
        let delays = |policy: &Policy| matches!(policy.algorithm(), Algorithm::LeakyBucket { max_wait } if !max_wait.is_zero());
        let may_delay = policies.iter().any(delays);
        Ok(Rules {
            is_lone_key: rules.len() == 1 && only_keys && !need_parts && !may_delay,
            may_delay,
            rules,
            first_tiers: first_tiers.into(),
            need_parts,
            only_keys,
            quota_exceeded: quota_exceeded.into(),
            apart,
            policies: policies.into(),
        })
    }

    /// Whether a store can enforce all policies, those of tiers included.
    pub(crate) fn supported_by(&self, store: &impl Store) -> Result<(), RulesError> {
        self.policies.iter().try_for_each(|policy| {
            let unsupported = |error| RulesError::Unsupported(Box::new(policy.clone()), error);
            store.supports(policy).map_err(unsupported)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// By their numbers: a policy for each rule, and behind them those of tiers.
    pub(crate) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    #[inline]
    pub(crate) fn policy(&self, number: usize) -> &Policy {
        &self.policies[number]
    }

    /// Policies under which all is found that a key has used.
    pub(crate) fn policies_with_states(&self) -> impl Iterator<Item = &Policy> {
        self.apart.iter().map(|number| &self.policies[*number])
    }

    pub(crate) fn quota_exceeded(&self, policy: usize) -> &Bytes {
        &self.quota_exceeded[policy]
    }

    #[inline]
    pub(crate) fn need_parts(&self) -> bool {
        self.need_parts
    }

    #[inline]
    pub(crate) fn may_delay(&self) -> bool {
        self.may_delay
    }

    /// The rule of most layers: there is no other, and it asks a unit for the key that it finds in a request in one piece.
    #[inline]
    pub(crate) fn lone(&self) -> Option<&Rule> {
        if self.is_lone_key { self.rules.first() } else { None }
    }

    /// Adds the keys and costs of a request to `asks`; or tells the number of the first rule that refuses it for want of
    /// a key. The head has parts where they are needed.
    #[inline]
    pub(crate) fn ask(&self, head: &Head<'_>, asks: &mut Asks) -> Result<(), usize> {
        if !self.only_keys {
            return self.ask_each(head, asks);
        }
        for (number, rule) in self.rules.iter().enumerate() {
            match rule.find(head) {
                Some(key) if !key.is_empty() => asks.push(Ask { policy: number, key, cost: 1 }),
                _ => self.ask_without_key(number, asks)?,
            }
        }
        Ok(())
    }

    /// Why that rule finds no key in a request that it refuses.
    pub(crate) fn why_missing(&self, number: usize, head: &Head<'_>) -> Reason {
        self.rules[number].why_missing(head)
    }

    #[inline(never)]
    fn ask_without_key(&self, number: usize, asks: &mut Asks) -> Result<(), usize> {
        match self.rules[number].missing_key {
            MissingKey::Share => asks.push(Ask { policy: number, key: Key::global(), cost: 1 }),
            MissingKey::Skip => {}
            MissingKey::Refuse => return Err(number),
        }
        Ok(())
    }

    /// The same with exemptions, tiers and costs. Out of line, to keep the way of requests without them short.
    #[inline(never)]
    fn ask_each(&self, head: &Head<'_>, asks: &mut Asks) -> Result<(), usize> {
        for (number, rule) in self.rules.iter().enumerate() {
            if rule.is_exempt(head) {
                continue;
            }
            match rule.key(head) {
                Ok(key) => {
                    // Without parts, no rule has a cost or a tier that is a function of them.
                    let (policy, cost) = head.parts.map_or((number, 1), |parts| {
                        let tier = rule.tier(parts, &key).map(|tier| self.first_tiers[number] + tier);
                        (tier.unwrap_or(number), rule.cost_of(parts))
                    });
                    asks.push(Ask { policy, key, cost });
                }
                Err(MissingKey::Skip) => {}
                Err(_) => return Err(number),
            }
        }
        Ok(())
    }
}

/// The problem document of a request that this policy alone refuses.
fn document(policy: &Policy) -> Bytes {
    Text::interned(problem(Reason::QuotaExceeded, [policy.name()].into_iter())).bytes()
}

/// Why rules cannot stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesError {
    /// There are none: nothing would be limited.
    NoRules,
    /// Two policies have this name, which responses and stored states tell them apart by.
    NameTwice(String),
    /// The store cannot enforce this policy. That of a tier has the name of its rule, and the quota of the tier.
    Unsupported(Box<Policy>, PolicyError),
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::NoRules => f.write_str("no rules: nothing would be limited"),
            RulesError::NameTwice(name) => write!(f, "two rules have the name {name:?}"),
            RulesError::Unsupported(policy, error) => {
                let (name, quota) = (policy.name(), policy.quota());
                let (limit, window) = (quota.limit(), quota.window());
                write!(f, "the store cannot enforce the policy {name:?} of {limit} in {window:?}: {error}")
            }
        }
    }
}

impl std::error::Error for RulesError {}
