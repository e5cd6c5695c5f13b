//! What the fields of a rule mean in words, and which closures they name.

use std::fmt::Display;

use super::exemption::ExemptionText;
use super::fields::MissingKeyName;
use super::rule::RuleConfig;
use super::values::{Units, UnitsOr};

impl RuleConfig {
    /// The names of closures of the application, each with the method of a
    /// [`Registry`](super::Registry) that gives it: `key`, `cost`, `class`, `quota`, `count_if`,
    /// `cost_by` or `exempt`.
    ///
    /// ```
    /// use tollgate::config::RuleFile;
    ///
    /// let text = "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"user | ip\"\ncost = \"kib\"";
    /// let file = RuleFile::from_toml(text)?;
    /// assert_eq!(file.rules()[0].registry_names(), [("key", "user"), ("cost", "kib")]);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn registry_names(&self) -> Vec<(&'static str, &str)> {
        let fields = &self.fields;
        let cost = match &fields.cost {
            Some(UnitsOr::Value(name)) => Some(name),
            _ => fields.reserve.as_ref(),
        };
        let closures = [
            ("cost", cost),
            ("class", fields.tiers.as_ref().map(|tiers| &tiers.by)),
            ("class", fields.leaving.as_ref().map(|leaving| &leaving.by)),
            ("quota", fields.quota_by.as_ref()),
            ("count_if", fields.count_if.as_ref()),
            ("cost_by", fields.cost_by.as_ref()),
        ];
        let exemptions = fields.exempt.iter().flat_map(|all| &all.0).filter_map(|each| match each {
            ExemptionText::Named(name) => Some(("exempt", name.as_str())),
            _ => None,
        });
        let keys = fields.by.0.names().map(|name| ("key", name));
        let closures = closures.into_iter().filter_map(|(kind, name)| Some((kind, name?.as_str())));
        keys.chain(closures).chain(exemptions).collect()
    }

    /// Whether the key contains `path`: the route that matched, which only a router knows.
    pub fn counts_by_route(&self) -> bool {
        self.fields.by.0.has_route()
    }

    /// Completes [`RuleConfig::in_words`]: each part begins with "; ".
    pub(super) fn options_in_words(&self) -> String {
        fn all<T: Display>(each: impl IntoIterator<Item = T>, joint: &str) -> String {
            each.into_iter().map(|each| each.to_string()).collect::<Vec<_>>().join(joint)
        }
        let fields = &self.fields;
        let in_flight = if fields.in_flight.is_some() { " in flight" } else { "" };
        let tiers = fields.tiers.as_ref().map(|tiers| {
            let quotas = tiers.quotas.0.iter().map(|(tier, quota)| match quota {
                UnitsOr::Units(Units(limit)) => format!("{limit}{in_flight} for {tier}"),
                UnitsOr::Value(quota) => format!("{quota} for {tier}"),
            });
            format!("by {}: {}", tiers.by, all(quotas, ", "))
        });
        let leaving = fields.leaving.as_ref().map(|leaving| {
            let units = leaving.units.0.iter().map(|(class, units)| format!("{class} leaves {}", units.0));
            format!("by {}: {}", leaving.by, all(units, ", "))
        });
        let block = fields
            .block
            .as_ref()
            .map(|block| format!("{} denials block a key for {}", block.after, block.time.0.in_words()));
        let missing = fields.missing_key.and_then(|missing| match missing {
            MissingKeyName::Refuse => None,
            MissingKeyName::Skip => Some("not for requests without a key".to_owned()),
            MissingKeyName::OneKey => Some("requests without a key share one".to_owned()),
        });
        let parts = [
            fields.when.as_ref().map(|when| format!("only {}", when.in_words())),
            fields.exempt.as_ref().map(|exempt| format!("not for {}", all(&exempt.0, " or "))),
            missing,
            fields.cost.as_ref().map(|cost| match cost {
                UnitsOr::Units(Units(units)) => format!("a request costs {units}"),
                UnitsOr::Value(name) => format!("a request costs what {name} says"),
            }),
            fields.reserve.as_ref().map(|name| format!("a request reserves what {name} says")),
            fields.reserve_at_most.as_ref().map(|share| format!("at most {} of the quota", share.0)),
            fields.count_if.as_ref().map(|name| format!("responses count if {name} says so")),
            fields.cost_by.as_ref().map(|name| format!("responses cost what {name} says")),
            fields.quota_by.as_ref().map(|name| format!("or the quota that {name} says")),
            tiers,
            leaving,
            block,
        ];
        parts.into_iter().flatten().map(|part| format!("; {part}")).collect()
    }
}
