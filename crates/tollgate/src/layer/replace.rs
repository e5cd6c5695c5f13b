//! Rules that are replaced while services run.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Policy, Store};

use super::RateLimitLayer;
use super::decide::LayerShared;
use crate::limiter::NeverFails;
use crate::policy_set::PolicySet;
use crate::rule::IntoRules;
use crate::setup_error::SetupError;

/// What [`RateLimitLayer::replace`] changed.
///
/// ```
/// use tollgate::extract::PeerIp;
/// use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer, RuleChange};
///
/// let rule = |quota| Policy::new("api", quota).by(PeerIp::new());
/// let layer = RateLimitLayer::new(rule(Quota::per_minute(60)));
///
/// let changes = layer.replace(rule(Quota::per_minute(600)))?;
/// assert_eq!(changes.of("api"), Some(RuleChange::Changed));
/// let changes = layer.replace(rule(Quota::per_hour(600)))?;
/// assert_eq!(changes.to_string(), "version 3: \"api\" starts again");
/// # Ok::<(), tollgate::SetupError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChanges {
    version: u64,
    changes: Vec<(String, RuleChange)>,
}

/// What became of a rule, as far as its policies say it. A new extractor, cost or exemption is no
/// change here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RuleChange {
    /// No earlier rule has its name.
    Added,
    /// No rule has its name any more.
    Removed,
    /// Its quota, its tiers, its classes or its block changed, or whether it is in
    /// [shadow](crate::Rule::shadow). Keys keep what they have used.
    Changed,
    /// A window or the algorithm changed, of the rule or of one of its tiers. The new window counts
    /// from zero.
    StartsAgain,
}

impl<S> RateLimitLayer<S>
where
    S: Store,
    S::Error: NeverFails,
{
    /// Replaces the rules of this layer, of its clones, and of all services that they made, also of
    /// those that run. The next request is decided by the new rules.
    ///
    /// - A request is decided and finished by one set of rules: so are its charges and its slots.
    /// - Keys keep what they have used, in the store. Windows, rings and logs keep their units; a
    ///   bucket keeps the time until it is full, so a raised limit refills it faster. If its new
    ///   version is full sooner than that, it begins with a bucket used up, and no caller waits
    ///   longer than for that: see [`Policy::version_burst`](crate::Policy::version_burst). A leaky
    ///   bucket keeps its queue.
    /// - A new window or another algorithm counts from zero. The result says which rules do.
    /// - Another [time of blocks](crate::Rule::block_after) lifts the blocks that run.
    /// - [Leases](crate::StoreExt::leased) of an earlier quota are not spent any more.
    ///   [Denials](crate::StoreExt::deny_cache) of an earlier quota are forgotten.
    /// - Callers that wait for a slot, or in [`until_ready`], wait by the rules that they came
    ///   with.
    /// - All options of the layer stay: the store, the fields, the observers, the metrics.
    ///
    /// If two threads replace rules at once, the sets follow each other. A fleet replaces the rules
    /// of each process. Meanwhile a window admits at most the larger limit, and a bucket at most
    /// both bursts and what the faster one refills.
    ///
    /// # Errors
    /// The errors of [`RateLimitLayer::try_new`] and [`RateLimitLayer::try_store`]. The rules stay
    /// as they are then.
    ///
    /// [`until_ready`]: crate::RequestLimiter::until_ready
    pub fn replace(&self, rules: impl IntoRules) -> Result<RuleChanges, SetupError> {
        let rules: Vec<_> = rules.into_rules().collect();
        loop {
            let earlier = self.live.load_full();
            let next = earlier.replaced(rules.iter().cloned())?;
            let changes = RuleChanges::between(earlier.policy_sets(), next.policy_sets());
            let found = self.live.compare_and_swap(&earlier, next.into());
            if Arc::ptr_eq(&found, &earlier) {
                return Ok(changes);
            }
        }
    }

    /// Returns the version of the rules: 1 at first, and one more with each
    /// [replacement](RateLimitLayer::replace).
    pub fn version(&self) -> u64 {
        self.live.load().limiter.decider.policies.version()
    }
}

impl<S: Store<Error: NeverFails>> LayerShared<S> {
    /// The policies of the rules that are enforced, and of those in shadow.
    fn policy_sets(&self) -> [&PolicySet; 2] {
        [&self.limiter.decider.policies, &self.limiter.shadow.decider.policies]
    }

    /// The same options with other rules.
    fn replaced(&self, rules: impl IntoRules) -> Result<LayerShared<S>, SetupError> {
        let limiter = self.limiter.replaced(rules)?;
        let fields = self.fields.of(&limiter.decider.policies);
        Ok(LayerShared { limiter, fields, ..self.clone() })
    }
}

impl RuleChanges {
    fn between(earlier: [&PolicySet; 2], next: [&PolicySet; 2]) -> RuleChanges {
        let mut changes = Vec::new();
        for (set, number, policy) in rules_of(next) {
            let was = rules_of(earlier).find(|(_, _, other)| other.name() == policy.name());
            let change = match was {
                None => Some(RuleChange::Added),
                Some((was_in, was, _)) => {
                    let is_moved = was_in.is_shadow() != set.is_shadow();
                    let change = change(&was_in.of_rule(was), &set.of_rule(number));
                    change.or(is_moved.then_some(RuleChange::Changed))
                }
            };
            changes.extend(change.map(|change| (policy.name().to_owned(), change)));
        }
        let is_gone = |policy: &&Policy| rules_of(next).all(|(_, _, other)| other.name() != policy.name());
        let gone = rules_of(earlier).map(|(_, _, policy)| policy).filter(is_gone);
        changes.extend(gone.map(|policy| (policy.name().to_owned(), RuleChange::Removed)));
        RuleChanges { version: next[0].version(), changes }
    }

    /// Returns the version of the rules that apply now.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns what became of the rule with this name. `None` if nothing did.
    pub fn of(&self, rule: &str) -> Option<RuleChange> {
        self.iter().find(|(name, _)| *name == rule).map(|(_, change)| change)
    }

    /// Returns the name of each rule that changed, and how: first the new rules in their order,
    /// then those that were removed.
    pub fn iter(&self) -> impl Iterator<Item = (&str, RuleChange)> {
        self.changes.iter().map(|(name, change)| (name.as_str(), *change))
    }
}

/// The policy of each rule, with its number and its set.
fn rules_of(sets: [&PolicySet; 2]) -> impl Iterator<Item = (&PolicySet, usize, &Policy)> {
    sets.into_iter()
        .flat_map(|set| set.own().iter().enumerate().map(move |(number, policy)| (set, number, policy)))
}

/// How a rule with these policies became one with those.
fn change(earlier: &[&Policy], next: &[&Policy]) -> Option<RuleChange> {
    if earlier == next {
        return None;
    }
    // Blocks are states of their own.
    let is_kept =
        |policy: &&Policy| policy.is_block() || earlier.iter().any(|other| other.scope() == policy.scope());
    Some(if next.iter().all(is_kept) { RuleChange::Changed } else { RuleChange::StartsAgain })
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleChange::Added => "added",
            RuleChange::Removed => "removed",
            RuleChange::Changed => "changed",
            RuleChange::StartsAgain => "starts again",
        })
    }
}

/// In one line, for a log.
impl fmt::Display for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}: ", self.version)?;
        if self.changes.is_empty() {
            return f.write_str("no policy changed");
        }
        for (number, (name, change)) in self.changes.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name:?} {change}")?;
        }
        Ok(())
    }
}
