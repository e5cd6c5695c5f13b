//! A policy, whose key it counts by, and what a request costs there.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::{Key, Policy, PolicyError, Store};

use crate::extract::{Head, KeyExtractor};
use crate::interned::Text;
use crate::problem::{Reason, problem};

/// Makes a [`Policy`] a [`Rule`].
pub trait PolicyExt {
    /// Divides the quota by the key that `extractor` finds in each request: one of [`extract`](crate::extract), or a
    /// closure `Fn(&Parts) -> Option<Key>`.
    fn by(self, extractor: impl KeyExtractor) -> Rule;
}

impl PolicyExt for Policy {
    fn by(self, extractor: impl KeyExtractor) -> Rule {
        Rule { policy: self, extractor: Arc::new(extractor), cost: None, missing_key: MissingKey::default() }
    }
}

type Cost = dyn Fn(&Parts) -> u32 + Send + Sync;

/// A [`Policy`] with a key extractor and a cost: what a layer or a [`Limiter`](crate::Limiter) enforces.
///
/// ```
/// use http::{Method, request::Parts};
/// use tollgate::extract::header;
/// use tollgate::{MissingKey, Policy, PolicyExt, Quota};
///
/// let rule = Policy::new("daily", Quota::per_day(5_000))
///     .by(header("x-api-key"))
///     .cost(|parts: &Parts| if parts.method == Method::POST { 5 } else { 1 })
///     .on_missing_key(MissingKey::Share);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    policy: Policy,
    extractor: Arc<dyn KeyExtractor>,
    cost: Option<Arc<Cost>>,
    missing_key: MissingKey,
}

/// What happens to a request in which a rule finds no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissingKey {
    /// It is refused, before anything is charged. The default, since leaving out a header must not lift a limit.
    #[default]
    Refuse,
    /// This rule does not apply to it; the other rules do.
    Skip,
    /// All such requests share one key.
    Share,
}

impl Rule {
    /// The units that a request costs, instead of 1. A cost of 0 passes always and shows the state; one above
    /// [`Policy::largest_cost`] is refused as never possible.
    ///
    /// The closure runs for every request that reaches the rule, before anything is charged.
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Rule {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// What happens to a request in which no key is found; [`MissingKey::Refuse`] by default.
    pub fn on_missing_key(mut self, missing_key: MissingKey) -> Rule {
        self.missing_key = missing_key;
        self
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The key of this request, or what happens without one.
    #[inline]
    fn key(&self, head: &Head<'_>) -> Result<Key, MissingKey> {
        self.key_or_else(self.extractor.extract_from(head))
    }

    #[inline]
    pub(crate) fn key_or_else(&self, key: Option<Key>) -> Result<Key, MissingKey> {
        match key {
            Some(key) if !key.is_empty() => Ok(key),
            _ if self.missing_key == MissingKey::Share => Ok(Key::global()),
            _ => Err(self.missing_key),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("policy", &self.policy)
            .field("missing_key", &self.missing_key)
            .finish_non_exhaustive()
    }
}

/// Rules whose policies have different names, decided together.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Box<[Rule]>,
    /// Whether a key or a cost is a function of the parts of a request, which it has to be taken apart for.
    need_parts: bool,
    /// For each rule, the problem document of a request that it alone refuses.
    quota_exceeded: Box<[Bytes]>,
}

/// What a request asks of one rule.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The number of the rule.
    pub(crate) rule: usize,
    pub(crate) key: Key,
    pub(crate) cost: u32,
}

/// What a request asks of the rules that apply to it, in their order.
pub(crate) type Asks = SmallVec<[Ask; 4]>;

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
        let names = rules.iter().map(|rule| rule.policy.name());
        let problems = names.map(|name| problem(Reason::QuotaExceeded, [name].into_iter()));
        let quota_exceeded = problems.map(|problem| Text::interned(problem).bytes()).collect();
        let need_parts = rules.iter().any(|rule| rule.cost.is_some() || rule.extractor.needs_parts());
        Ok(Rules { rules, need_parts, quota_exceeded })
    }

    /// Whether a store can enforce all policies.
    pub(crate) fn supported_by(&self, store: &impl Store) -> Result<(), RulesError> {
        self.iter().map(Rule::policy).try_for_each(|policy| {
            let unsupported = |error| RulesError::Unsupported(policy.name().to_owned(), error);
            store.supports(policy).map_err(unsupported)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    #[inline]
    pub(crate) fn policy(&self, rule: usize) -> &Policy {
        &self.rules[rule].policy
    }

    pub(crate) fn quota_exceeded(&self, rule: usize) -> &Bytes {
        &self.quota_exceeded[rule]
    }

    #[inline]
    pub(crate) fn need_parts(&self) -> bool {
        self.need_parts
    }

    /// Adds the keys and costs of a request to `asks`; or tells the number of the first rule that refuses it for want of
    /// a key. The head has parts where they are needed.
    #[inline]
    pub(crate) fn ask(&self, head: &Head<'_>, asks: &mut Asks) -> Result<(), usize> {
        for (number, rule) in self.rules.iter().enumerate() {
            match rule.key(head) {
                Ok(key) => {
                    let cost = rule.cost.as_ref().zip(head.parts).map_or(1, |(cost, parts)| cost(parts));
                    asks.push(Ask { rule: number, key, cost });
                }
                Err(MissingKey::Skip) => {}
                Err(_) => return Err(number),
            }
        }
        Ok(())
    }
}

/// Why rules cannot stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesError {
    /// There are none: nothing would be limited.
    NoRules,
    /// Two policies have this name, which responses and stored states tell them apart by.
    NameTwice(String),
    /// The store cannot enforce the policy of this name.
    Unsupported(String, PolicyError),
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::NoRules => f.write_str("no rules: nothing would be limited"),
            RulesError::NameTwice(name) => write!(f, "two rules have the name {name:?}"),
            RulesError::Unsupported(name, error) => {
                write!(f, "the store cannot enforce the policy {name:?}: {error}")
            }
        }
    }
}

impl std::error::Error for RulesError {}
