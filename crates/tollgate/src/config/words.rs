//! What the fields of a rule mean in words, and what only the application knows of it.

use std::fmt::Display;

use tollgate_core::{Algorithm, Policy, TimeSpan};

use super::exemption::ExemptionText;
use super::fields::{MissingKeyName, ModeName};
use super::key::{KeyExpression, KeyPart};
use super::rate::Rate;
use super::rule::RuleConfig;
use super::values::{AsText, UnitsOr};

impl RuleConfig {
    /// What only the application knows: the names that the file has for it, each with the method of
    /// a [`Registry`](super::Registry) that gives it (`key`, `cost`, `class`, `quota`, `count_if`,
    /// `cost_by`, `exempt`). Or it is `route`, with `path`: a router gives it.
    ///
    /// ```
    /// use tollgate::config::RuleFile;
    ///
    /// let text = "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"user | ip\"\ncost = \"kib\"";
    /// let file = RuleFile::from_toml(text)?;
    /// assert_eq!(file.rules()[0].application_names(), [("key", "user"), ("cost", "kib")]);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn application_names(&self) -> Vec<(&'static str, &str)> {
        let fields = &self.fields;
        let cost = fields.cost.as_ref().and_then(|cost| match cost {
            UnitsOr::Value(name) => Some(name),
            UnitsOr::Units(_) => None,
        });
        let closures = [
            ("cost", cost),
            ("cost", fields.reserve.as_ref()),
            ("class", fields.tiers.as_ref().map(|tiers| &tiers.by)),
            ("class", fields.leaving.as_ref().map(|leaving| &leaving.by)),
            ("quota", fields.quota_by.as_ref()),
            ("count_if", fields.count_if.as_ref()),
            ("cost_by", fields.cost_by.as_ref()),
        ];
        let closures = closures.into_iter().filter_map(|(kind, name)| Some((kind, name?.as_str())));
        let exemptions = fields.exempt.iter().flat_map(|all| &all.0).filter_map(|each| match each {
            ExemptionText::Named(name) => Some(("exempt", name.as_str())),
            _ => None,
        });
        fields.by.0.names().chain(closures).chain(exemptions).collect()
    }

    /// The rule in words, for logs: `5 per 10 seconds for each client address; at most 5 at once
    /// (gcra)`.
    pub fn in_words(&self) -> String {
        let (quota, capacity) = (self.policy().quota(), self.policy().capacity());
        let window = TimeSpan(quota.window()).in_words();
        let (rate, how) = match (self.fields.quota, self.policy().algorithm()) {
            (_, Algorithm::InFlight) => {
                let others = match self.fields.max_wait {
                    Some(AsText(wait)) => format!("wait for at most {}", wait.in_words()),
                    None => "are refused".to_owned(),
                };
                (format!("{capacity} in flight"), format!("others {others} (in-flight, lease of {window})"))
            }
            (Some(AsText(Rate::Calendar(limit, window))), algorithm) => {
                let zone = self.fields.zone.as_deref().unwrap_or_default();
                let from =
                    self.fields.anchor.map(|day| format!(" from its day {day} on")).unwrap_or_default();
                (format!("{limit} per {}{from} in {zone}", window.name()), algorithm.name().to_owned())
            }
            (_, algorithm) => {
                let how = match algorithm {
                    Algorithm::Gcra => format!("at most {capacity} at once (gcra)"),
                    Algorithm::LeakyBucket { max_wait } => format!(
                        "{capacity} at once, others delayed for at most {} (leaky-bucket)",
                        TimeSpan(max_wait).in_words()
                    ),
                    other => other.name().to_owned(),
                };
                (format!("{} per {}", quota.limit(), window.strip_prefix("1 ").unwrap_or(&window)), how)
            }
        };
        format!("{rate} for {}; {how}{}", self.fields.by.0.in_words(), self.options_in_words())
    }

    /// Completes [`RuleConfig::in_words`]: each part begins with "; ".
    fn options_in_words(&self) -> String {
        fn all<T: Display>(each: impl IntoIterator<Item = T>, joint: &str) -> String {
            each.into_iter().map(|each| each.to_string()).collect::<Vec<_>>().join(joint)
        }
        let fields = &self.fields;
        let said =
            |what: &str, name: &Option<String>| name.as_ref().map(|name| format!("{what} {name} says"));
        let tiers = fields.tiers.as_ref().map(|tiers| {
            let quotas = tiers.quotas.0.iter().map(|(tier, quota)| format!("{quota} for {tier}"));
            format!("by {}: {}", tiers.by, all(quotas, ", "))
        });
        let leaving = fields.leaving.as_ref().map(|leaving| {
            let units = leaving.units.0.iter().map(|(class, units)| format!("{class} leaves {}", units.0));
            format!("by {}: {}", leaving.by, all(units, ", "))
        });
        let parts = [
            fields.when.as_ref().map(|when| format!("only {}", when.in_words())),
            fields.exempt.as_ref().map(|exempt| format!("not for {}", all(&exempt.0, " or "))),
            fields.missing_key.map(|missing| match missing {
                MissingKeyName::Refuse => "requests without a key are refused".to_owned(),
                MissingKeyName::Skip => "not for requests without a key".to_owned(),
                MissingKeyName::OneKey => "requests without a key share one".to_owned(),
            }),
            fields.cost.as_ref().map(|cost| format!("a request costs {cost}")),
            said("a request reserves what", &fields.reserve),
            fields.reserve_at_most.as_ref().map(|share| format!("at most {} of the quota", share.0)),
            said("responses count by what", &fields.count_if),
            said("responses cost what", &fields.cost_by),
            said("or the quota that", &fields.quota_by),
            tiers,
            leaving,
            self.block_in_words(),
            (fields.mode == Some(ModeName::Shadow)).then(|| "in shadow: refuses nothing".to_owned()),
        ];
        parts.into_iter().flatten().map(|part| format!("; {part}")).collect()
    }

    fn block_in_words(&self) -> Option<String> {
        let (denials, block) = (self.policy().denials_until_block()?, self.policy().block()?);
        let denials = if denials == 1 { "1 denial".to_owned() } else { format!("{denials} denials") };
        let in_words = |policy: &Policy| TimeSpan(policy.quota().window()).in_words();
        let (window, time) = (in_words(self.policy()), in_words(&block));
        Some(format!("after {denials} within {window} blocked for {time}"))
    }
}

impl KeyExpression {
    /// Completes "10 per minute for …".
    pub(super) fn in_words(&self) -> String {
        let one =
            |parts: &Vec<KeyPart>| parts.iter().map(KeyPart::in_words).collect::<Vec<_>>().join(" and ");
        match self.0.as_slice() {
            [parts] if parts.as_slice() == [KeyPart::Global] => "all callers together".to_owned(),
            all => format!("each {}", all.iter().map(one).collect::<Vec<_>>().join(", else ")),
        }
    }
}

impl KeyPart {
    pub(super) fn in_words(&self) -> String {
        match self {
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
}
