//! The policies of a rule, by the tier and the class of requests.

use tollgate_core::Policy;

use super::Rule;
use crate::errors::SetupError;

/// A policy of a rule, and the requests that have it.
#[derive(PartialEq)]
pub(crate) struct Variant<'a> {
    pub(crate) tier: Option<&'a str>,
    pub(crate) class: Option<&'a str>,
    pub(crate) policy: Policy,
}

impl Rule {
    /// The rule's own policy and those that take its place for some requests: those of its tiers,
    /// followed for each class by those of the rule and of its tiers.
    pub(crate) fn try_variants(&self) -> Result<Vec<Variant<'_>>, SetupError> {
        let own = Variant { tier: None, class: None, policy: self.policy.clone() };
        let tiers = self.tiers.iter().flat_map(|tiers| tiers.named());
        let tiers =
            tiers.map(|(name, policy)| Variant { tier: Some(name), class: None, policy: policy.clone() });
        let mut variants: Vec<Variant<'_>> = std::iter::once(own).chain(tiers).collect();
        let without_class = variants.len();
        for (class, units) in self.classes.iter().flat_map(|classes| classes.named()) {
            for at in 0..without_class {
                let Variant { tier, policy, .. } = &variants[at];
                let leaving = policy.leaving(units);
                let policy = leaving.map_err(|error| SetupError::ClassQuota(class.to_owned(), error))?;
                variants.push(Variant { tier: *tier, class: Some(class), policy });
            }
        }
        Ok(variants)
    }

    /// The same, of a rule that was made.
    pub(crate) fn variants(&self) -> Vec<Variant<'_>> {
        // `try_tiers` and `try_leaving` refuse what would be an error.
        self.try_variants().unwrap_or_default()
    }
}
