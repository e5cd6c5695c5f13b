//! What is probably not meant by a file without mistakes.

use std::collections::HashMap;

use tollgate::MissingKey;
use tollgate::config::{
    ConfigError, CostConfig, ExemptionText, KeyPart, LimitConfig, MethodName, Mode, PathPattern, RuleConfig,
    RuleFile, When,
};
use tollgate_core::Policy;

use super::words::key_part;

/// How many warnings are listed at most.
const MOST: usize = 1_000;

/// How many tiers and classes a warning names.
const MOST_NAMED: usize = 5;

/// A warning for each way around a rule: a key that callers invent, a header or a key that they
/// omit. There is none if another rule without such a way applies to the same requests, such as one
/// by address. And one for each rule with requests that never pass, since the quota of their tier
/// or their class is less than a request costs.
pub(super) fn warnings(file: &RuleFile) -> Vec<ConfigError> {
    let guards = Guards::new(file.rules());
    let warnings = file.rules().iter().enumerate().flat_map(|(at, rule)| {
        let ways = ways_around(rule).into_iter().flatten().filter(|_| !guards.cover(rule));
        let all: Vec<_> = ways.chain(never_passes(rule).map(|reason| ("cost", reason))).collect();
        all.into_iter().map(move |(field, reason)| (at, field, reason))
    });
    file.errors(warnings.take(MOST))
}

/// The rules of a file that limit the rate of all requests to which they apply.
struct Guards<'a> {
    /// Whether one applies to every request.
    all: bool,
    /// Those without a path.
    without_path: Vec<&'a When>,
    /// The others, by each of their paths.
    by_path: HashMap<&'a str, Vec<&'a When>>,
}

impl<'a> Guards<'a> {
    fn new(rules: &'a [RuleConfig]) -> Guards<'a> {
        let mut guards = Guards { all: false, without_path: Vec::new(), by_path: HashMap::new() };
        for rule in rules.iter().filter(|rule| is_firm(rule)) {
            match &rule.when {
                None => guards.all = true,
                Some(when) if when.path.is_empty() => guards.without_path.push(when),
                Some(when) => {
                    for path in &when.path {
                        guards.by_path.entry(path.as_str()).or_default().push(when);
                    }
                }
            }
        }
        guards
    }

    /// Whether one applies to all requests of a rule. It has the first path of the rule, or the
    /// beginning of that path before `*`.
    fn cover(&self, rule: &RuleConfig) -> bool {
        let when = rule.when.as_ref();
        let covers = |guard: &&When| includes(guard, when);
        let path = when.and_then(|when| when.path.first()).map(PathPattern::as_str).unwrap_or_default();
        let beginnings = path.char_indices().map(|(at, _)| format!("{}*", &path[..at]));
        let mut with_path = beginnings
            .chain([path.to_owned(), format!("{path}*")])
            .filter_map(|path| self.by_path.get(&*path));
        self.all || self.without_path.iter().any(covers) || with_path.any(|guards| guards.iter().any(covers))
    }
}

/// Whether each request that meets `when` meets `guard` too, if it has the header of that.
fn includes(guard: &When, when: Option<&When>) -> bool {
    fn all<T>(these: &[T], others: Option<&Vec<T>>, includes: impl Fn(&T, &T) -> bool) -> bool {
        let is_in = |other| these.iter().any(|each| includes(each, other));
        let others = others.filter(|others| !others.is_empty());
        these.is_empty() || others.is_some_and(|others| others.iter().all(is_in))
    }
    let path = |each: &PathPattern, other: &PathPattern| match each.as_str().strip_suffix('*') {
        Some(beginning) => other.as_str().trim_end_matches('*').starts_with(beginning),
        None => each == other,
    };
    let method = |MethodName(each): &MethodName, MethodName(other): &MethodName| {
        each == other || (each == "GET" && other == "HEAD")
    };
    all(&guard.path, when.map(|when| &when.path), path)
        && all(&guard.method, when.map(|when| &when.method), method)
}

/// Whether it limits the rate of all requests, not only in shadow, and callers cannot avoid it.
fn is_firm(rule: &RuleConfig) -> bool {
    let exempts = |each: &ExemptionText| matches!(each, ExemptionText::Network(all) if all.ends_with("/0"));
    let ignores = rule.correction.is_some() || rule.exempt.iter().any(exempts);
    let refuses = !matches!(rule.limit, LimitConfig::InFlight { .. }) && rule.mode == Mode::Enforce;
    refuses && !ignores && ways_around(rule).iter().all(Option::is_none)
}

/// The requests whose quota is less than they cost. One that brings a quota along may have more.
fn never_passes(rule: &RuleConfig) -> Option<String> {
    let Some(CostConfig::Units { cost }) = rule.cost else { return None };
    if rule.quota_by.is_some() || matches!(rule.limit, LimitConfig::InFlight { .. }) {
        return None;
    }
    let never = variants(rule)?.into_iter().filter(|(_, policy)| policy.largest_cost() < cost);
    let words =
        never.map(|(requests, policy)| format!("requests {requests} (at most {})", policy.largest_cost()));
    let words: Vec<String> = words.collect();
    let (named, others) = words.split_at(words.len().min(MOST_NAMED));
    let others = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
    (!named.is_empty()).then(|| format!("never passes for {}{others}", named.join(", ")))
}

/// The policies of a rule, with the requests that have them: its own and those of its tiers, then
/// the same for each class.
fn variants(rule: &RuleConfig) -> Option<Vec<(String, Policy)>> {
    let with_limit = |limit| RuleConfig { limit, ..rule.clone() }.policy().ok();
    let tiers: Vec<(&String, LimitConfig)> = match &rule.limit {
        LimitConfig::Rate { algorithm, tiers: Some(tiers), .. } => {
            let tier = |quota: &_| LimitConfig::Rate {
                quota: *quota,
                algorithm: *algorithm,
                unit: None,
                tiers: None,
            };
            tiers.quotas.iter().map(|(name, quota)| (name, tier(quota))).collect()
        }
        LimitConfig::Calendar { zone, tiers: Some(tiers), .. } => {
            let tier = |quota: &_| LimitConfig::Calendar {
                quota: *quota,
                zone: zone.clone(),
                anchor: None,
                unit: None,
                tiers: None,
            };
            tiers.quotas.iter().map(|(name, quota)| (name, tier(quota))).collect()
        }
        _ => Vec::new(),
    };
    let own = (String::new(), rule.policy().ok()?);
    let tiers =
        tiers.into_iter().map(|(name, limit)| Some((format!("of the tier {name:?}"), with_limit(limit)?)));
    let mut variants = std::iter::once(Some(own)).chain(tiers).collect::<Option<Vec<_>>>()?;
    let without_class = variants.len();
    for (class, units) in rule.leaving.iter().flat_map(|leaving| &leaving.units) {
        for at in 0..without_class {
            let (tier, policy) = &variants[at];
            let joint = if tier.is_empty() { "of" } else { " and" };
            let requests = format!("{tier}{joint} the class {class:?}");
            variants.push((requests, policy.leaving(*units).ok()?));
        }
    }
    "without a tier or a class".clone_into(&mut variants[0].0);
    Some(variants)
}

/// How callers avoid this rule: a field, and what to do.
fn ways_around(rule: &RuleConfig) -> [Option<(&'static str, String)>; 3] {
    let skips = rule.missing_key == MissingKey::Skip;
    let header = rule.when.as_ref().and_then(|when| when.header.as_ref());
    let invented = |part| {
        format!(
            "a caller that invents a new {part} for each request is not limited: add a rule by ip, unless an outer \
             layer checks it"
        )
    };
    let without =
        |what| format!("a caller without {what} is not limited: add a rule by ip for the same requests");
    [
        invented_part(rule).map(|part| ("by", invented(key_part(part)))),
        header.map(|name| ("when", without(format!("the header {name}")))),
        skips.then(|| ("missing-key", without("its key".to_owned()))),
    ]
}

/// The first part of the key that callers write, unless each request has an alternative before it.
fn invented_part(rule: &RuleConfig) -> Option<&KeyPart> {
    let always = |part: &KeyPart| matches!(part, KeyPart::Ip | KeyPart::Global | KeyPart::Method);
    let used = rule.by.0.iter().take_while(|parts| !parts.iter().all(always));
    used.flatten().find(|part| part.is_secret())
}
