//! Units that were used beyond what was granted.

use crate::check::Grant;
use crate::error::StoreError;
use crate::exact::{Exact, Interval};
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
    /// Of a [class](Policy::leaving), and of a class of a class, it is that of the policy which
    /// leaves nothing to others. A class bounds what is granted, and not what was used. So what it
    /// uses beyond its grants may take the units that it leaves to others, and more: a class can
    /// bring others into debt.
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
    /// let batch = tokens.leaving(900).unwrap();
    /// assert_eq!((batch.capacity(), batch.with_debt()), (100, Some(with_debt)));
    /// ```
    #[must_use]
    pub fn with_debt(&self) -> Option<Policy> {
        let capacity = self.capacity + self.headroom;
        let mut policy = self.clone();
        match self.algorithm() {
            Algorithm::LeakyBucket { .. } | Algorithm::InFlight => return None,
            Algorithm::Gcra => {
                policy.horizon = horizon_of_debt(self.interval, capacity)?;
                policy.tolerance = policy.horizon;
                policy.quota.burst = 2 * capacity;
            }
            _ => policy.quota.limit = 2 * capacity,
        }
        policy.capacity = 2 * capacity;
        policy.largest_cost = policy.capacity;
        (policy.headroom, policy.most_debt) = (0, capacity);
        Some(policy)
    }

    /// The most units of debt that the policy makes, for stores: the capacity without debt if it is
    /// one [with debt](Policy::with_debt), and otherwise 0.
    #[inline]
    pub fn most_debt(&self) -> u64 {
        self.most_debt
    }
}

/// How far TAT lies ahead of now at the most debt of a bucket.
fn horizon_of_debt(interval: Interval, capacity: u64) -> Option<Exact> {
    let full = interval.times(capacity);
    let most = interval.add(full, full);
    (most.ceil() <= MAX_SPAN_US).then_some(most)
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
    use crate::share::Share;

    #[test]
    fn a_class_and_a_share_of_it_have_the_debt_of_their_base() {
        let tokens = Policy::new("p", Quota::per_minute(60).burst(11));
        let class = tokens.leaving(4).unwrap();
        for class in [class.leaving(5).unwrap(), class] {
            assert_eq!(class.with_debt(), tokens.with_debt());
            let [class, tokens] = [&class, &tokens].map(|policy| policy.share(Share::new(1, 2)));
            assert_eq!(class.map(|class| class.with_debt()), tokens.map(|tokens| tokens.with_debt()));
        }
        for algorithm in [Algorithm::FIXED_WINDOW, Algorithm::SlidingWindow, Algorithm::SLIDING_LOG] {
            let window = Policy::new("p", Quota::per_minute(11)).with_algorithm(algorithm);
            let class = window.leaving(4).unwrap().leaving(5).unwrap();
            assert_eq!(class.with_debt(), window.with_debt());
            let [class, window] = [class, window].map(|policy| policy.share(Share::new(1, 2)).unwrap());
            assert_eq!((class.capacity(), class.with_debt()), (1, window.with_debt()));
        }
    }

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
