//! What a rule of a file means in words.

use std::fmt::Display;

use tollgate::config::{
    AlgorithmConfig, BlockConfig, CorrectionConfig, CostConfig, KeyExpression, KeyPart, LimitConfig, Mode,
    RuleConfig, TiersConfig, When,
};
use tollgate::time::TimeSpan;
use tollgate::{MissingKey, Quota};

/// The rule in words: `5 per 10 seconds for each client address; at most 5 at once (gcra)`.
pub(crate) fn in_words(rule: &RuleConfig) -> String {
    let (rate, how) = match &rule.limit {
        LimitConfig::Rate { quota, algorithm, .. } => {
            let window = TimeSpan(quota.window()).in_words();
            let burst = |default| quota.given_burst().unwrap_or(default);
            let how = match algorithm {
                AlgorithmConfig::Gcra => format!("at most {} at once (gcra)", burst(quota.limit())),
                AlgorithmConfig::LeakyBucket { max_wait } => format!(
                    "{} at once, others delayed for at most {} (leaky-bucket)",
                    burst(1),
                    max_wait.unwrap_or(TimeSpan(quota.window())).in_words()
                ),
                other => other.name().to_owned(),
            };
            (format!("{} per {}", quota.limit(), window.strip_prefix("1 ").unwrap_or(&window)), how)
        }
        LimitConfig::Calendar { quota, zone, anchor, .. } => {
            let from = anchor.map(|day| format!(" from its day {day} on")).unwrap_or_default();
            let rate = format!("{} per {}{from} in {zone}", quota.limit, quota.window.name());
            (rate, "calendar-window".to_owned())
        }
        LimitConfig::InFlight { in_flight, ttl, max_wait, .. } => {
            let others = match max_wait {
                Some(wait) => format!("wait for at most {}", wait.in_words()),
                None => "are refused".to_owned(),
            };
            let ttl = ttl.unwrap_or(TimeSpan(Quota::DEFAULT_TTL)).in_words();
            (format!("{in_flight} in flight"), format!("others {others} (in-flight, time to live of {ttl})"))
        }
    };
    format!("{rate} for {}; {how}{}", key(&rule.by), options(rule))
}

/// Completes "10 per minute for …".
fn key(by: &KeyExpression) -> String {
    let one = |parts: &Vec<KeyPart>| all(parts.iter().map(key_part), " and ");
    match by.0.as_slice() {
        [parts] if parts.as_slice() == [KeyPart::Global] => "all callers together".to_owned(),
        alternatives => format!("each {}", all(alternatives.iter().map(one), ", else ")),
    }
}

/// A part of a key, such as "value of the header x-api-key".
pub(crate) fn key_part(part: &KeyPart) -> String {
    match part {
        KeyPart::Ip => "client address".to_owned(),
        KeyPart::Bearer => "bearer token".to_owned(),
        KeyPart::BasicUser => "user of basic credentials".to_owned(),
        KeyPart::Header(name) => format!("value of the header {name}"),
        KeyPart::Cookie(name) => format!("value of the cookie {name}"),
        KeyPart::Global => "all callers".to_owned(),
        KeyPart::Path => "route".to_owned(),
        KeyPart::Method => "method".to_owned(),
        KeyPart::Named(name) => name.clone(),
    }
}

fn all<T: Display>(each: impl IntoIterator<Item = T>, joint: &str) -> String {
    each.into_iter().map(|each| each.to_string()).collect::<Vec<_>>().join(joint)
}

/// Each part begins with "; ".
fn options(rule: &RuleConfig) -> String {
    let [cost, estimate_at_most] = match &rule.cost {
        None => [None, None],
        Some(CostConfig::Units { cost }) => [Some(format!("a request costs {cost}")), None],
        Some(CostConfig::Named { cost }) => [Some(format!("a request costs {cost}")), None],
        Some(CostConfig::Reserved { reserve, reserve_at_most }) => [
            Some(format!("a request reserves what {reserve} says")),
            reserve_at_most.map(|share| format!("at most {share} of the quota")),
        ],
    };
    let parts = [
        rule.when.as_ref().map(|when| format!("only {}", conditions(when))),
        (!rule.exempt.is_empty()).then(|| format!("not for {}", all(&rule.exempt, " or "))),
        match rule.missing_key {
            MissingKey::Skip => Some("not for requests without a key".to_owned()),
            MissingKey::OneKey => Some("requests without a key share one".to_owned()),
            // The default.
            _ => None,
        },
        cost,
        estimate_at_most,
        rule.correction.as_ref().map(|correction| match correction {
            CorrectionConfig::CountIf(name) => format!("responses count by what {name} says"),
            CorrectionConfig::CostBy(name) => format!("responses cost what {name} says"),
        }),
        rule.quota_by.as_ref().map(|name| format!("or the quota that {name} says")),
        match &rule.limit {
            LimitConfig::Rate { tiers, .. } => tiers.as_ref().map(of_tiers),
            LimitConfig::Calendar { tiers, .. } => tiers.as_ref().map(of_tiers),
            LimitConfig::InFlight { tiers, .. } => tiers.as_ref().map(of_tiers),
        },
        rule.leaving.as_ref().map(|leaving| {
            let units = leaving.units.iter().map(|(class, units)| format!("{class} leaves {units}"));
            format!("by {}: {}", leaving.by, all(units, ", "))
        }),
        rule.block.as_ref().map(|block| of_block(block, &rule.limit)),
        (rule.mode == Mode::Shadow).then(|| "in shadow: refuses nothing".to_owned()),
    ];
    parts.into_iter().flatten().map(|part| format!("; {part}")).collect()
}

fn conditions(when: &When) -> String {
    let path = (!when.path.is_empty()).then(|| format!("of {}", all(&when.path, " or ")));
    let method = (!when.method.is_empty()).then(|| format!("by {}", all(&when.method, " or ")));
    let header = when.header.as_ref().map(|name| format!("with the header {name}"));
    all([path, method, header].into_iter().flatten(), " ")
}

fn of_tiers<Q: Display>(tiers: &TiersConfig<Q>) -> String {
    let quotas = tiers.quotas.iter().map(|(tier, quota)| format!("{quota} for {tier}"));
    format!("by {}: {}", tiers.by, all(quotas, ", "))
}

fn of_block(block: &BlockConfig, limit: &LimitConfig) -> String {
    let denials = if block.after == 1 { "1 denial".to_owned() } else { format!("{} denials", block.after) };
    let window = match limit {
        LimitConfig::Rate { quota, .. } => TimeSpan(quota.window()).in_words(),
        LimitConfig::Calendar { quota, .. } => format!("1 {}", quota.window.name()),
        LimitConfig::InFlight { ttl, .. } => ttl.unwrap_or(TimeSpan(Quota::DEFAULT_TTL)).in_words(),
    };
    format!("after {denials} within {window} blocked for {}", block.time.in_words())
}
