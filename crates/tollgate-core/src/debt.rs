//! Units that were used beyond what was granted.

use crate::check::Grant;
use crate::error::StoreError;
use crate::exact::Exact;
use crate::policy::{Algorithm, Policy};
use crate::quota::MAX_SPAN_US;

/// What became of units that were used: see [`Store::settle`](crate::Store::settle).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The units that are charged. More than were used if a store failed that should have given
    /// some back, or if grants were taken for used up before.
    pub charged: u64,
    /// How many of them exceed what was left of the quota. Later requests wait until they are paid.
    pub debt: u64,
    /// The units that no caller pays: those beyond the most debt, and those that no store was asked
    /// to charge.
    pub forgiven: u64,
    /// The units of a correction that was sent and not answered. Either they are charged now, or
    /// they are not: units that were used beyond the grant, or units of the grant that were not
    /// used.
    pub unknown: u64,
}

impl Settled {
    /// That of grants whose charge stays as it is, although `total` units were used.
    pub fn unchanged(grants: &[Grant<'_>], total: u64) -> Settled {
        let charged = granted(grants);
        Settled { charged, forgiven: total.saturating_sub(charged), ..Settled::default() }
    }

    /// That of grants whose correction to `total` may have been executed, but was not answered.
    pub fn unanswered(grants: &[Grant<'_>], total: u64) -> Settled {
        let granted = granted(grants);
        Settled { charged: granted.min(total), unknown: granted.abs_diff(total), ..Settled::default() }
    }

    /// That of grants whose correction to `total` failed: [unchanged](Settled::unchanged) if the
    /// store certainly executed nothing, otherwise [unanswered](Settled::unanswered).
    pub fn after_failure(error: &dyn StoreError, grants: &[Grant<'_>], total: u64) -> Settled {
        if error.executed_nothing() {
            Settled::unchanged(grants, total)
        } else {
            Settled::unanswered(grants, total)
        }
    }
}

impl Policy {
    /// The same policy with twice the capacity: its quota, and as much debt. `None` for a leaky
    /// bucket, which has delayed later requests already, and for a bucket whose debt would take
    /// longer than 2^52 µs to pay. `None` for requests in flight too, whose slots come back.
    ///
    /// A [block](Policy::block) starts by one unit of debt.
    ///
    /// It has the [scope](Policy::scope) of this policy, so both use one state. A store that
    /// acquires under it charges units without a grant: [`settle`](crate::settle) does.
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let tokens = Policy::new("tokens", Quota::per_minute(1_000));
    /// let with_debt = tokens.with_debt().unwrap();
    /// assert_eq!((with_debt.capacity(), with_debt.scope()), (2_000, tokens.scope()));
    /// ```
    #[must_use]
    pub fn with_debt(&self) -> Option<Policy> {
        let mut policy = self.clone();
        match self.algorithm() {
            Algorithm::LeakyBucket { .. } | Algorithm::InFlight => return None,
            Algorithm::Gcra => {
                policy.horizon = self.horizon_of_debt()?;
                policy.tolerance = policy.horizon;
                policy.quota.burst = 2 * self.capacity;
            }
            _ => policy.quota.limit = 2 * self.capacity,
        }
        policy.capacity = 2 * self.capacity;
        policy.largest_cost = policy.capacity;
        Some(policy)
    }

    /// How far TAT lies ahead of now at the most debt.
    pub(crate) fn horizon_of_debt(&self) -> Option<Exact> {
        let most = self.interval.add(self.tolerance, self.tolerance);
        (most.ceil() <= MAX_SPAN_US).then_some(most)
    }
}

/// The sum of the units.
pub(crate) fn granted(grants: &[Grant<'_>]) -> u64 {
    grants.iter().fold(0, |sum, grant| sum.saturating_add(grant.units))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;

    #[test]
    fn a_policy_has_debt_up_to_one_more_capacity_if_it_can_be_paid() {
        let quota = Quota::per_minute(60);
        let with_debt =
            |policy: Policy| policy.with_debt().map(|policy| (policy.capacity(), policy.horizon().0));
        assert_eq!(with_debt(Policy::new("p", quota.burst(10))), Some((20, 20_000_000)));
        assert_eq!(
            with_debt(Policy::new("p", quota).with_algorithm(Algorithm::SlidingWindow)),
            Some((120, 0))
        );
        let leaky = Algorithm::LeakyBucket { max_wait: Duration::ZERO };
        assert_eq!(with_debt(Policy::new("p", quota).with_algorithm(leaky)), None);
        let day = Duration::from_secs(86_400);
        let slow = |burst| Policy::new("p", Quota::new(1, 366 * day).burst(burst));
        assert_eq!(with_debt(slow(71)), Some((142, 142 * 366 * 86_400_000_000)));
        assert_eq!(with_debt(slow(72)), None, "144 windows of 366 days exceed 2^52 µs");
    }
}
