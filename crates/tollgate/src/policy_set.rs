//! A set of policies that are decided together, and what is asked of them.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Store};

use crate::interned::interned;
use crate::made_policies::{MadePolicies, WantedPolicy};
use crate::reason::{Reason, problem};
use crate::setup_error::SetupError;

/// Policies with different names, and the policies of tiers. Each has a number.
#[derive(Clone, Debug)]
pub(crate) struct PolicySet {
    /// The number of this set: 1, or one more than that of the set that it replaced.
    version: u64,
    /// Whether they are those of rules in shadow.
    is_shadow: bool,
    /// Those with a name of their own, followed by those of all tiers.
    policies: Box<[Policy]>,
    /// For each policy, the number of the one whose tier it is, or its own.
    named: Box<[usize]>,
    /// How many have a name of their own.
    own: usize,
    /// For each of these, the number of the policy that refuses its blocked keys.
    blocks: Box<[Option<usize>]>,
    /// For each policy, whether the fields of responses contain it.
    in_fields: Box<[bool]>,
    /// Whether a policy may delay requests.
    may_delay: bool,
    /// For each policy with a name of its own, the problem document of a request that only this
    /// policy refuses.
    quota_exceeded: Box<[Bytes]>,
    /// Those that requests bring. Their numbers follow.
    made: MadePolicies,
    /// The numbers of one policy for each scope: together they reach all states of a key.
    scopes: Box<[usize]>,
}

/// What a request asks of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The number of the policy.
    pub(crate) policy: usize,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// What a request asks of the policies that apply to it, in their order.
pub(crate) type Asks = SmallVec<[Ask; 4]>;

impl PolicySet {
    /// A set of policies, each with those of its tiers. It may be empty.
    pub(crate) fn try_new(with_tiers: Vec<(Policy, &[Policy])>) -> Result<PolicySet, SetupError> {
        let own = with_tiers.len();
        let mut names = HashSet::new();
        if let Some((twice, _)) = with_tiers.iter().find(|(policy, _)| !names.insert(policy.name())) {
            return Err(SetupError::PolicyTwice(twice.name().to_owned()));
        }
        let mut policies: Vec<Policy> = with_tiers.iter().map(|(policy, _)| policy.clone()).collect();
        let mut named: Vec<usize> = (0..own).collect();
        for (number, (_, tiers)) in with_tiers.iter().enumerate() {
            policies.extend_from_slice(tiers);
            named.resize(policies.len(), number);
        }
        let mut blocks = vec![None; own];
        for number in 0..own {
            if let Some(block) = policies[number].block() {
                blocks[number] = Some(policies.len());
                policies.push(block);
                named.push(number);
            }
        }
        // A document contains the policy's name, which is also that of its tiers.
        let documents: Box<[Bytes]> = policies[..own].iter().map(document).collect();
        let mut known = HashSet::new();
        let scopes = (0..policies.len()).filter(|number| known.insert(policies[*number].scope())).collect();
        Ok(PolicySet {
            quota_exceeded: documents,
            made: MadePolicies::new(false),
            may_delay: policies.iter().any(|policy| policy.longest_wait() > Duration::ZERO),
            in_fields: policies.iter().map(|policy| !policy.is_block()).collect(),
            version: 1,
            is_shadow: false,
            blocks: blocks.into(),
            policies: policies.into(),
            named: named.into(),
            own,
            scopes,
        })
    }

    /// The same set, where the fields of responses leave out some policies and their tiers. The
    /// closure sees the number of a policy with a name of its own.
    pub(crate) fn without_fields_of(self, is_left_out: impl Fn(usize) -> bool) -> PolicySet {
        let is_in = |(named, policy): (&usize, &Policy)| !policy.is_block() && !is_left_out(*named);
        PolicySet { in_fields: self.named.iter().zip(&self.policies).map(is_in).collect(), ..self }
    }

    /// The same set, of rules in shadow.
    pub(crate) fn in_shadow(self) -> PolicySet {
        PolicySet { is_shadow: true, ..self }
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.is_shadow
    }

    /// The same set for another store, which may support other policies.
    pub(crate) fn for_other_store(&self) -> PolicySet {
        PolicySet { made: MadePolicies::new(self.places() > 0), ..self.clone() }
    }

    /// The same set, with places for the policies that requests bring.
    pub(crate) fn with_places(self) -> PolicySet {
        PolicySet { made: MadePolicies::new(true), ..self }
    }

    /// The number of a policy that a request brings: see [`MadePolicies::place`].
    pub(crate) fn made(&self, wanted: WantedPolicy, make: impl FnOnce() -> Option<Policy>) -> Option<usize> {
        self.made.place(wanted, make).map(|place| self.policies.len() + place)
    }

    /// How many policies requests may bring. Their numbers follow those of the others.
    pub(crate) fn places(&self) -> usize {
        self.made.places()
    }

    /// The set that replaces an earlier one.
    pub(crate) fn after(self, earlier: &PolicySet) -> PolicySet {
        PolicySet { version: earlier.version + 1, ..self }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Checks whether a store can enforce all policies, including those of tiers.
    pub(crate) fn supported_by(&self, store: &impl Store) -> Result<(), SetupError> {
        self.policies.iter().try_for_each(|policy| {
            let unsupported = |error| SetupError::Unsupported(Box::new(policy.clone()), error);
            store.supports(policy).map_err(unsupported)
        })
    }

    /// The policies by their numbers, without those that requests bring.
    pub(crate) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Those with a name of their own.
    pub(crate) fn own(&self) -> &[Policy] {
        &self.policies[..self.own]
    }

    #[inline]
    pub(crate) fn policy(&self, number: usize) -> &Policy {
        match self.policies.get(number) {
            Some(policy) => policy,
            None => self.made.at(number - self.policies.len()).1,
        }
    }

    /// The number of the policy with this name.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn number_of(&self, name: &str) -> usize {
        let number = self.own().iter().position(|policy| policy.name() == name);
        number.unwrap_or_else(|| {
            let names: Vec<&str> = self.own().iter().map(Policy::name).collect();
            panic!("the limiter has no policy {name:?}: its policies are {names:?}")
        })
    }

    /// The number of the policy with this name, which is `likely` unless the set is another one.
    pub(crate) fn number_near(&self, likely: usize, name: &str) -> Option<usize> {
        let is_it = |policy: &Policy| policy.name() == name;
        if self.own().get(likely).is_some_and(is_it) {
            return Some(likely);
        }
        self.own().iter().position(is_it)
    }

    /// The number of the policy whose tier this is, or its own.
    pub(crate) fn named(&self, policy: usize) -> usize {
        match self.named.get(policy) {
            Some(named) => *named,
            None => self.made.at(policy - self.named.len()).0,
        }
    }

    /// Adds what is asked of blocks, behind all others: observers and charges find a rule by the
    /// first ask that is of it.
    pub(crate) fn with_blocks(&self, mut asks: Asks) -> Asks {
        if !self.has_blocks() {
            return asks;
        }
        let block = |ask: &Ask| {
            let policy = self.blocks[self.named(ask.policy)].filter(|_| ask.cost > 0)?;
            Some(Ask { policy, key: ask.key.clone(), cost: 1 })
        };
        let blocks: Asks = asks.iter().filter_map(block).collect();
        asks.extend(blocks);
        asks
    }

    /// The policy that refuses blocked keys of the policy with this number.
    pub(crate) fn block_of(&self, policy: usize) -> Option<&Policy> {
        self.blocks[policy].map(|block| self.policy(block))
    }

    /// Whether a policy blocks keys.
    pub(crate) fn has_blocks(&self) -> bool {
        self.blocks.iter().any(Option::is_some)
    }

    /// Whether the fields of responses contain it.
    pub(crate) fn is_in_fields(&self, policy: usize) -> bool {
        self.in_fields[policy]
    }

    /// The policies that together reach all states of a key.
    pub(crate) fn with_states(&self) -> impl Iterator<Item = &Policy> {
        self.scopes.iter().map(|number| &self.policies[*number])
    }

    pub(crate) fn quota_exceeded(&self, policy: usize) -> &Bytes {
        &self.quota_exceeded[self.named(policy)]
    }

    pub(crate) fn may_delay(&self) -> bool {
        self.may_delay
    }
}

/// The problem document of a request that only this policy refuses.
fn document(policy: &Policy) -> Bytes {
    interned(problem(Reason::QuotaExceeded, [policy.name()].into_iter()))
}
