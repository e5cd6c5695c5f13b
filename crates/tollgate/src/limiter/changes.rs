//! What a replacement of rules changes.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tollgate_core::{Policy, Timestamp};

use super::next_window::{in_utc, running_end};
use crate::rule::Rule;
use crate::rule::variants::Variant;

/// What a [replacement](crate::RateLimitLayer::replace) of rules changed.
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

/// What became of a rule. Its own quota is compared with its own quota, and a tier with the tier of
/// that name. Closures and extractors of rules in code cannot be compared.
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
    /// Its policies stay, and something else changed: a cost, an exemption, a condition, another
    /// field of a file. Of a rule in code: whether it has such, or how many.
    Otherwise,
    /// A window or the algorithm changed, of the rule or of one of its tiers, or what a file says
    /// of its key. The new window counts from zero. After another key, a caller has what was used
    /// by a key of the same text. A tier that is added or removed starts again if its window is not
    /// that of the rule's own quota. A rule that enters or leaves its [shadow](crate::Rule::shadow)
    /// starts again, too.
    StartsAgain,
}

impl RuleChanges {
    pub(super) fn between<'a>(
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
    let block =
        |rule: &Rule| (rule.policy().numbers().block(), rule.policy().numbers().denials_until_block());
    let has_changed = was != is || block(earlier) != block(next);
    let end = running_end(earlier.policy(), next.policy(), now);
    if has_changed {
        return Some(end.map_or(RuleChange::Changed, RuleChange::NextWindow));
    }
    earlier.differs_otherwise(next).then_some(RuleChange::Otherwise)
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
            RuleChange::Otherwise => "changed, but for its policies",
            RuleChange::StartsAgain => "starts again",
        })
    }
}

/// In one line, for a log.
impl fmt::Display for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}: ", self.version)?;
        if self.changes.is_empty() {
            return f.write_str("no rule changed");
        }
        for (number, (name, change)) in self.changes.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name:?} {change}")?;
        }
        Ok(())
    }
}
