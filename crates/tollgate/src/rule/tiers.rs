//! Quotas for some callers, routes or methods in the place of a rule's own.

use std::sync::Arc;

use tollgate_core::{Algorithm, Key, Policy, PolicyError, Quota};

use super::choice::{Choice, ChoiceError};
use crate::errors::SetupError;
use crate::extract::Head;

/// Named quotas, and the closure that chooses one.
#[derive(Clone)]
pub(super) struct Tiers {
    /// Sorted by the names of their tiers. All have the name of the rule's policy.
    policies: Arc<[Policy]>,
    names: Arc<[Box<str>]>,
    choice: Choice,
}

impl Tiers {
    /// The same, whose charges are corrected after the work.
    pub(super) fn reserved(self) -> Tiers {
        Tiers { policies: self.policies.iter().cloned().map(Policy::reserved).collect(), ..self }
    }

    pub(super) fn try_new<N: AsRef<str>, T: AsRef<str>>(
        policy: &Policy,
        quotas: impl IntoIterator<Item = (N, Quota)>,
        tier: impl Fn(&Head<'_>, &Key) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Tiers, SetupError> {
        let (quotas, choice) = Choice::try_new(quotas, tier).map_err(|error| match error {
            ChoiceError::Empty => SetupError::NoTiers,
            ChoiceError::Unnamed => SetupError::UnnamedTier,
            ChoiceError::Twice(name) => SetupError::TierTwice(name),
        })?;
        let tier = |(name, quota): (Box<str>, Quota)| {
            // The time to live is that of the policy. A burst is an error.
            let quota = match policy.ttl() {
                Some(ttl) if quota.given_burst().is_none() => Quota::new(quota.limit(), ttl),
                _ => quota,
            };
            let is_calendar = matches!(policy.algorithm(), Algorithm::CalendarWindow { .. });
            if is_calendar && quota.window() != policy.quota().window() {
                return Err(SetupError::TierQuota(name.into(), PolicyError::OtherWindow));
            }
            policy.try_with_quota(quota).map_err(|error| SetupError::TierQuota(name.into(), error))
        };
        let names = quotas.iter().map(|(name, _)| name.clone()).collect();
        let policies: Result<Arc<[Policy]>, SetupError> = quotas.into_iter().map(tier).collect();
        Ok(Tiers { policies: policies?, names, choice })
    }

    pub(super) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The policies by the names of their tiers.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.names.iter().map(|name| &**name).zip(&*self.policies)
    }

    /// The index of a request's tier among the policies, if it has one.
    pub(super) fn choose(&self, head: &Head<'_>, key: &Key) -> Option<usize> {
        self.choice.of(head, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;
    use tollgate_core::Boundaries;

    fn tiers(algorithm: Algorithm, quotas: &[(&str, Quota)]) -> Result<(), SetupError> {
        let rule = Policy::new("p", Quota::per_minute(1)).with_algorithm(algorithm).by(global());
        rule.try_tiers(quotas.iter().copied(), |_: &Head<'_>, _: &Key| None::<&str>).map(drop)
    }

    #[test]
    fn invalid_tiers_are_refused_at_construction() {
        let quota = Quota::per_minute(5);
        assert_eq!(tiers(Algorithm::Gcra, &[("a", quota), ("b", quota.burst(9))]), Ok(()));
        assert_eq!(tiers(Algorithm::Gcra, &[]), Err(SetupError::NoTiers));
        assert_eq!(tiers(Algorithm::Gcra, &[("a", quota), ("", quota)]), Err(SetupError::UnnamedTier));
        let twice = [("a", quota), ("b", quota), ("a", Quota::per_day(1))];
        assert_eq!(tiers(Algorithm::Gcra, &twice), Err(SetupError::TierTwice("a".to_owned())));
        let burst = [("a", quota), ("b", quota.burst(9))];
        let error = SetupError::TierQuota("b".to_owned(), PolicyError::BurstOnWindow);
        assert_eq!(tiers(Algorithm::SlidingWindow, &burst), Err(error));
        let calendar = Algorithm::CalendarWindow { boundaries: Boundaries::NONE };
        let other = [("a", quota), ("b", Quota::per_day(9))];
        assert_eq!(tiers(calendar, &other[..1]), Ok(()));
        let error = SetupError::TierQuota("b".to_owned(), PolicyError::OtherWindow);
        assert_eq!(tiers(calendar, &other), Err(error));
    }

    /// Otherwise a debt that only the replaced tiers allow would not be forgiven.
    #[test]
    fn replaced_tiers_do_not_change_the_policy() {
        let no_tier = |_: &Head<'_>, _: &Key| None::<&str>;
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
    fn tiers_of_requests_in_flight_have_the_time_to_live_of_the_policy() {
        let policy = Policy::in_flight("exports", 2).with_ttl(std::time::Duration::from_secs(3));
        let rule = policy.clone().by(global());
        let rule = rule.tiers([("pro", Quota::in_flight(50))], |_: &Head<'_>, _: &Key| Some("pro"));
        let [tier] = rule.tiers_policies() else { panic!("one tier") };
        assert_eq!((tier.scope(), tier.capacity()), (policy.scope(), 50));
        let burst = SetupError::TierQuota("a".to_owned(), PolicyError::BurstOnWindow);
        assert_eq!(tiers(Algorithm::InFlight, &[("a", Quota::in_flight(2).burst(3))]), Err(burst));
    }

    #[test]
    fn tiers_keep_the_options_of_the_policy() {
        let policy = Policy::new("p", Quota::per_minute(60)).unit("tokens").track_usage();
        let rule =
            policy.by(global()).tiers([("a", Quota::per_minute(600))], |_: &Head<'_>, _: &Key| Some("a"));
        let [tier] = rule.tiers_policies() else { panic!("one tier") };
        assert_eq!((tier.unit_name(), tier.numbers().tracks_usage()), (Some("tokens"), true));
    }

    #[test]
    #[should_panic(expected = "policy \"p\": two tiers have the name \"a\"")]
    fn a_duplicate_tier_panics_with_its_name() {
        let quota = Quota::per_minute(5);
        let rule = Policy::new("p", quota).by(global());
        let _ = rule.tiers([("a", quota), ("a", quota)], |_: &Head<'_>, _: &Key| Some("a"));
    }
}
