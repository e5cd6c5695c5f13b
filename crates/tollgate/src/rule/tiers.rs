//! Quotas for some callers, routes or methods in the place of a rule's own.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tollgate_core::{Key, Policy, PolicyError, Quota};

type Choose = dyn Fn(&Parts, &Key) -> Option<usize> + Send + Sync;

/// Named quotas, and the closure that chooses one.
#[derive(Clone)]
pub(super) struct Tiers {
    /// Sorted by the names of their tiers. All have the name of the rule's policy.
    policies: Arc<[Policy]>,
    choose: Arc<Choose>,
}

impl Tiers {
    pub(super) fn try_new<N: AsRef<str>, T: AsRef<str>>(
        policy: &Policy,
        quotas: impl IntoIterator<Item = (N, Quota)>,
        tier: impl Fn(&Parts, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Tiers, TiersError> {
        let mut tiers = Vec::new();
        for (name, quota) in quotas {
            let name = name.as_ref();
            if name.is_empty() {
                return Err(TiersError::EmptyName);
            }
            let policy = Policy::try_new(policy.name(), quota, policy.algorithm())
                .map(|tier| tier.tracking_usage_as(policy));
            let policy = policy.map_err(|error| TiersError::Quota(name.to_owned(), error))?;
            tiers.push((Box::<str>::from(name), policy));
        }
        if tiers.is_empty() {
            return Err(TiersError::NoTiers);
        }
        tiers.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(two) = tiers.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(TiersError::NameTwice(two[0].0.to_string()));
        }
        let (names, policies): (Vec<Box<str>>, Vec<Policy>) = tiers.into_iter().unzip();
        // A search in a sorted list has no hash to be attacked, and takes 14 comparisons for 10,000
        // tiers.
        let choose = move |parts: &Parts, key: &Key| {
            let name = tier(parts, key)?;
            names.binary_search_by(|other| (**other).cmp(name.as_ref())).ok()
        };
        Ok(Tiers { policies: policies.into(), choose: Arc::new(choose) })
    }

    pub(super) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The index of a request's tier among the policies, if it has one.
    pub(super) fn choose(&self, parts: &Parts, key: &Key) -> Option<usize> {
        (self.choose)(parts, key)
    }
}

/// Reasons why the tiers of a rule are refused: see [`Rule::try_tiers`](crate::Rule::try_tiers).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TiersError {
    /// There are no tiers.
    NoTiers,
    /// A tier's name is empty.
    EmptyName,
    /// Two tiers have this name.
    NameTwice(String),
    /// The algorithm of the rule's policy does not allow the quota of the tier with this name.
    Quota(String, PolicyError),
}

impl fmt::Display for TiersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TiersError::NoTiers => f.write_str("no tiers: all callers would have the rule's own quota"),
            TiersError::EmptyName => f.write_str("a tier has no name"),
            TiersError::NameTwice(name) => write!(f, "two tiers have the name {name:?}"),
            TiersError::Quota(name, error) => write!(f, "tier {name:?}: {error}"),
        }
    }
}

impl std::error::Error for TiersError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TiersError::Quota(_, error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;
    use tollgate_core::Algorithm;

    fn tiers(algorithm: Algorithm, quotas: &[(&str, Quota)]) -> Result<(), TiersError> {
        let rule = Policy::new("p", Quota::per_minute(1)).with_algorithm(algorithm).by(global());
        rule.try_tiers(quotas.iter().copied(), |_: &Parts, _: &Key| None::<&str>).map(drop)
    }

    #[test]
    fn invalid_tiers_are_refused_at_construction() {
        let quota = Quota::per_minute(5);
        assert_eq!(tiers(Algorithm::Gcra, &[("a", quota), ("b", quota.burst(9))]), Ok(()));
        assert_eq!(tiers(Algorithm::Gcra, &[]), Err(TiersError::NoTiers));
        assert_eq!(tiers(Algorithm::Gcra, &[("a", quota), ("", quota)]), Err(TiersError::EmptyName));
        let twice = [("a", quota), ("b", quota), ("a", Quota::per_day(1))];
        assert_eq!(tiers(Algorithm::Gcra, &twice), Err(TiersError::NameTwice("a".to_owned())));
        let burst = [("a", quota), ("b", quota.burst(9))];
        let error = TiersError::Quota("b".to_owned(), PolicyError::BurstOnWindow);
        assert_eq!(tiers(Algorithm::SlidingWindow, &burst), Err(error));
    }

    /// Otherwise a debt that only the replaced tiers allow would not be forgiven.
    #[test]
    fn replaced_tiers_do_not_change_the_policy() {
        let no_tier = |_: &Parts, _: &Key| None::<&str>;
        let quota = Quota::per_minute(600);
        let rule = || Policy::new("p", Quota::per_minute(60)).by(global());
        let once = rule().tiers([("b", quota)], no_tier);
        let twice = rule()
            .tiers([("a", Quota::per_minute(1).burst(1_000_000))], no_tier)
            .tiers([("b", quota)], no_tier);
        assert_eq!(twice.policy, once.policy);
        assert_eq!(twice.tiers.unwrap().policies(), once.tiers.unwrap().policies());
    }

    #[test]
    #[should_panic(expected = "policy \"p\": two tiers have the name \"a\"")]
    fn a_duplicate_tier_panics_with_its_name() {
        let quota = Quota::per_minute(5);
        let rule = Policy::new("p", quota).by(global());
        let _ = rule.tiers([("a", quota), ("a", quota)], |_: &Parts, _: &Key| Some("a"));
    }
}
