//! Rules that are replaced while services run.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tollgate_core::{Clock, Policy, Store, Timestamp};

use super::RateLimitLayer;
use super::next_window::{in_utc, running_end};
use super::shared::LayerShared;
use crate::never_fails::NeverFails;
use crate::rule::variants::Variant;
use crate::rule::{IntoRules, Rule};
use crate::setup_error::SetupError;

/// What [`RateLimitLayer::replace`] changed.
///
/// ```
/// use tollgate::extract::PeerIp;
/// use tollgate::layer::RuleChange;
/// use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
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

/// What became of a rule, as far as its policies say it. Its own quota is compared with its own
/// quota, and a tier with the tier of that name. A new cost or exemption is no change here, and
/// neither is a new extractor, but for the field `by` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RuleChange {
    /// No earlier rule has its name.
    Added,
    /// No rule has its name any more.
    Removed,
    /// Its quota, its tiers, its classes or its block changed. Keys keep what they have used.
    Changed,
    /// Its windows of a [calendar](crate::Algorithm::CalendarWindow) begin at other times, which
    /// apply when the running window of a key ends: at this time, unless an earlier edit of the
    /// same rule has not taken effect for that key. Until then keys keep what they have used. Other
    /// changes of the rule, such as that of its limit, apply at once.
    NextWindow(Timestamp),
    /// A window or the algorithm changed, of the rule or of one of its tiers, or what a file says
    /// of its key. The new window counts from zero. A tier that is added or removed starts again if
    /// its window is not that of the rule's own quota. A rule that enters or leaves its
    /// [shadow](crate::Rule::shadow) starts again, too.
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
    ///   longer than for that: see
    ///   [`PolicyNumbers::version_burst`](tollgate_core::PolicyNumbers::version_burst). A leaky
    ///   bucket keeps its queue.
    /// - A new window or another algorithm counts from zero. The result says which rules do.
    /// - Another zone or anchor of a calendar applies when the running windows end. The result says
    ///   when that is.
    /// - Another [time of blocks](crate::Rule::block_after), or another [time to
    ///   live](crate::Policy::with_ttl), is for new blocks and slots. Those that run end when they
    ///   would have.
    /// - [Leases](crate::StoreExt::leased) of an earlier quota are not spent any more.
    ///   [Denials](crate::StoreExt::deny_cache) of an earlier quota are forgotten.
    /// - Callers that wait for a slot, or in [`until_ready`], ask again at once by the new rules.
    ///   They keep their order, and what they have waited counts.
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
        let (rules, now): (Vec<_>, _) = (rules.into_rules().collect(), Clock::system().now());
        loop {
            let earlier = self.live.load_full();
            let next = earlier.replaced(rules.iter().cloned())?;
            let changes = RuleChanges::between(next.version(), earlier.rules(), next.rules(), now);
            if self.live.replace(&earlier, next) {
                return Ok(changes);
            }
        }
    }

    /// Returns the version of the rules: 1 at first, and one more with each
    /// [replacement](RateLimitLayer::replace).
    pub fn version(&self) -> u64 {
        self.live.load().version()
    }
}

impl<S: Store<Error: NeverFails>> LayerShared<S> {
    /// The rules that are enforced, followed by those in shadow.
    fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.limiter.decider.plan.rules()
    }

    /// The same options with other rules.
    fn replaced(&self, rules: impl IntoRules) -> Result<LayerShared<S>, SetupError> {
        Ok(LayerShared { limiter: self.limiter.replaced(rules)?, ..self.clone() })
    }
}

impl RuleChanges {
    fn between<'a>(
        version: u64,
        earlier: impl Iterator<Item = &'a Rule> + Clone,
        next: impl Iterator<Item = &'a Rule>,
        now: Timestamp,
    ) -> RuleChanges {
        let by_name: HashMap<&str, &Rule> =
            earlier.clone().map(|rule| (rule.policy().name(), rule)).collect();
        let (mut changes, mut names) = (Vec::new(), HashSet::new());
        for rule in next {
            let name = rule.policy().name();
            let change = match by_name.get(name) {
                None => Some(RuleChange::Added),
                Some(was) => change(was, rule, now),
            };
            names.insert(name);
            changes.extend(change.map(|change| (name.to_owned(), change)));
        }
        let gone = earlier.map(|rule| rule.policy().name()).filter(|name| !names.contains(name));
        changes.extend(gone.map(|name| (name.to_owned(), RuleChange::Removed)));
        RuleChanges { version, changes }
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

/// How a rule became another one of its name.
fn change(earlier: &Rule, next: &Rule, now: Timestamp) -> Option<RuleChange> {
    let reads_another_key = match (earlier.key_text(), next.key_text()) {
        (Some(was), Some(is)) => was != is,
        _ => false,
    };
    let (was, is) = (earlier.variants(), next.variants());
    let is_moved = earlier.is_shadow() != next.is_shadow();
    if is_moved || reads_another_key || !keeps_states(&was, &is) {
        return Some(RuleChange::StartsAgain);
    }
    let block = |rule: &Rule| (rule.policy().block(), rule.policy().denials_until_block());
    let has_changed = was != is || block(earlier) != block(next);
    let end = running_end(earlier.policy(), next.policy(), now);
    has_changed.then_some(end.map_or(RuleChange::Changed, RuleChange::NextWindow))
}

/// Whether each tier has the state that its callers had. A caller whose tier is unknown has the
/// rule's own quota.
fn keeps_states(earlier: &[Variant<'_>], next: &[Variant<'_>]) -> bool {
    type ByTier<'a> = HashMap<Option<&'a str>, &'a Policy>;
    fn by_tier<'a>(variants: &'a [Variant<'a>]) -> ByTier<'a> {
        let without_class = variants.iter().filter(|variant| variant.class.is_none());
        without_class.map(|variant| (variant.tier, &variant.policy)).collect()
    }
    fn scope<'a>(policies: &ByTier<'a>, tier: Option<&'a str>) -> Option<&'a str> {
        policies.get(&tier).or_else(|| policies.get(&None)).map(|policy| policy.scope())
    }
    let [was, is] = [earlier, next].map(by_tier);
    was.keys().chain(is.keys()).all(|tier| scope(&was, *tier) == scope(&is, *tier))
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleChange::Added => "added",
            RuleChange::Removed => "removed",
            RuleChange::Changed => "changed",
            RuleChange::NextWindow(end) => {
                return write!(f, "changed, with other windows from {} UTC on", in_utc(*end));
            }
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
