//! A set of policies that are decided together, and what is asked of them.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Store};

use crate::interned::interned;
use crate::made_policies::{MadePolicies, MadePolicy, WantedPolicy};
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
    /// For each policy, its number among those of its rule.
    variants: Box<[usize]>,
    /// How many have a name of their own.
    own: usize,
    /// The numbers of these, by their names.
    numbers: HashMap<Box<str>, usize>,
    /// For each of these, the number of the policy that refuses its blocked keys.
    blocks: Box<[Option<usize>]>,
    has_blocks: bool,
    /// For each policy, whether the fields of responses contain it.
    in_fields: Box<[bool]>,
    /// Whether a policy may delay requests.
    may_delay: bool,
    /// For each policy with a name of its own, the problem document of a request that only this
    /// policy refuses.
    quota_exceeded: Box<[Bytes]>,
    /// Those that requests bring, for each rule that takes them.
    made: Box<[Option<MadePolicies>]>,
    /// The numbers of one policy for each scope: together they reach all states of a key.
    scopes: Box<[usize]>,
}

/// One of the policies of a set.
#[derive(Clone, Debug)]
pub(crate) enum PolicyRef {
    /// That with this number.
    Numbered(usize),
    /// One that a request brings.
    Made(Arc<MadePolicy>),
}

impl From<usize> for PolicyRef {
    fn from(number: usize) -> PolicyRef {
        PolicyRef::Numbered(number)
    }
}

/// What a request asks of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) policy: PolicyRef,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// What a request asks of the policies that apply to it, in their order.
pub(crate) type Asks = SmallVec<[Ask; 4]>;

impl PolicySet {
    /// A set of policies, each with those of its tiers. It may be empty.
    pub(crate) fn try_new(with_tiers: Vec<(Policy, &[Policy])>) -> Result<PolicySet, SetupError> {
        let own = with_tiers.len();
        let mut numbers = HashMap::with_capacity(own);
        for (number, (policy, _)) in with_tiers.iter().enumerate() {
            if numbers.insert(Box::from(policy.name()), number).is_some() {
                return Err(SetupError::PolicyTwice(policy.name().to_owned()));
            }
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
        let mut counts = vec![0; own];
        let variants = named.iter().map(|rule| {
            counts[*rule] += 1;
            counts[*rule]
        });
        let variants = variants.collect();
        // A document contains the policy's name, which is also that of its tiers.
        let documents: Box<[Bytes]> = policies[..own].iter().map(document).collect();
        let mut known = HashSet::new();
        let scopes = (0..policies.len()).filter(|number| known.insert(policies[*number].scope())).collect();
        Ok(PolicySet {
            quota_exceeded: documents,
            made: Box::default(),
            may_delay: policies.iter().any(|policy| policy.longest_wait() > Duration::ZERO),
            in_fields: policies.iter().map(|policy| !policy.is_block()).collect(),
            version: 1,
            is_shadow: false,
            has_blocks: blocks.iter().any(Option::is_some),
            blocks: blocks.into(),
            numbers,
            policies: policies.into(),
            named: named.into(),
            variants,
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
    pub(crate) fn for_other_store(self: &Arc<Self>) -> Arc<PolicySet> {
        // A clone has made none of the policies.
        if self.made.is_empty() { Arc::clone(self) } else { Arc::new(PolicySet::clone(self)) }
    }

    /// The same set, with policies that requests bring for some rules.
    pub(crate) fn with_quotas_for(self, takes_quotas: impl Fn(usize) -> bool) -> PolicySet {
        let made: Box<[_]> = (0..self.own).map(|rule| takes_quotas(rule).then(MadePolicies::new)).collect();
        PolicySet { made: if made.iter().any(Option::is_some) { made } else { Box::default() }, ..self }
    }

    /// The policy that a request brings for a rule: see [`MadePolicies::find`].
    pub(crate) fn made(
        &self,
        rule: usize,
        wanted: WantedPolicy,
        make: impl FnOnce() -> Option<Policy>,
    ) -> Option<PolicyRef> {
        self.made.get(rule)?.as_ref()?.find(rule, wanted, make).map(PolicyRef::Made)
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
            let unsupported = |error| SetupError::Unsupported(policy.clone(), error);
            store.supports(policy).map_err(unsupported)
        })
    }

    /// The policies by their numbers.
    pub(crate) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Those with a name of their own.
    pub(crate) fn own(&self) -> &[Policy] {
        &self.policies[..self.own]
    }

    #[inline]
    pub(crate) fn policy<'a>(&'a self, policy: &'a PolicyRef) -> &'a Policy {
        match policy {
            PolicyRef::Numbered(number) => &self.policies[*number],
            PolicyRef::Made(made) => &made.policy,
        }
    }

    #[inline]
    pub(crate) fn numbered(&self, number: usize) -> &Policy {
        &self.policies[number]
    }

    /// The number of the policy with this name, if there is one.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// [`PolicySet::number`], or the error of a program that names a policy which is not there.
    pub(crate) fn number_of(&self, name: &str) -> Result<usize, SetupError> {
        self.number(name).ok_or_else(|| {
            let names = self.own().iter().map(|policy| policy.name().to_owned());
            SetupError::UnknownPolicy(name.to_owned(), names.collect())
        })
    }

    /// The number of the rule whose tier, class or quota this is.
    #[inline]
    pub(crate) fn named(&self, policy: &PolicyRef) -> usize {
        match policy {
            PolicyRef::Numbered(number) => self.named[*number],
            PolicyRef::Made(made) => made.rule,
        }
    }

    /// Tells apart what callers of one key wait for. A replaced rule keeps its number, also with
    /// another quota.
    pub(crate) fn queue_of(&self, ask: &Ask) -> usize {
        let mut hasher = DefaultHasher::new();
        self.numbered(self.named(&ask.policy)).name().hash(&mut hasher);
        match &ask.policy {
            PolicyRef::Numbered(number) => self.variants[*number].hash(&mut hasher),
            PolicyRef::Made(made) => {
                (made.policy.quota(), made.policy.numbers().headroom()).hash(&mut hasher);
            }
        }
        // Enough to tell rules apart, also on 32 bits.
        (hasher.finish() >> 32) as usize
    }

    /// Adds what is asked of blocks, behind all others: observers and charges find a rule by the
    /// first ask that is of it.
    pub(crate) fn with_blocks(&self, mut asks: Asks) -> Asks {
        if !self.has_blocks() {
            return asks;
        }
        let block = |ask: &Ask| {
            let policy = self.blocks[self.named(&ask.policy)].filter(|_| ask.cost > 0)?;
            Some(Ask { policy: policy.into(), key: ask.key.clone(), cost: 1 })
        };
        let blocks: Asks = asks.iter().filter_map(block).collect();
        asks.extend(blocks);
        asks
    }

    /// The policy that refuses blocked keys of the policy with this number.
    pub(crate) fn block_of(&self, policy: usize) -> Option<&Policy> {
        self.blocks[policy].map(|block| self.numbered(block))
    }

    /// Whether a policy blocks keys.
    pub(crate) fn has_blocks(&self) -> bool {
        self.has_blocks
    }

    /// Whether the fields of responses contain it.
    pub(crate) fn is_in_fields(&self, policy: usize) -> bool {
        self.in_fields[policy]
    }

    /// The policies that together reach all states of a key.
    pub(crate) fn with_states(&self) -> impl Iterator<Item = &Policy> {
        self.scopes.iter().map(|number| &self.policies[*number])
    }

    pub(crate) fn quota_exceeded(&self, policy: &PolicyRef) -> &Bytes {
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
