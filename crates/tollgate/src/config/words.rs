//! What the fields of a rule mean in words, and what only the application knows of it.

use std::fmt::Display;

use tollgate_core::{Policy, TimeSpan};

use super::exemption::ExemptionText;
use super::fields::{MissingKeyName, ModeName};
use super::rule::RuleConfig;
use super::values::UnitsOr;

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

    /// Completes [`RuleConfig::in_words`]: each part begins with "; ".
    pub(super) fn options_in_words(&self) -> String {
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
