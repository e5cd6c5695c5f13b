//! Units that were used beyond what was granted.

use std::sync::Arc;

use crate::exact::{Exact, Interval};
use crate::policy::{Algorithm, Policy, PolicyNumbers};
use crate::quota::MAX_SPAN_US;

impl PolicyNumbers {
    /// The same policy with twice the capacity: its quota, and as much debt. `None` for a leaky
    /// bucket, which has delayed later requests already, and for a bucket whose debt would take
    /// longer than 2^52 µs to pay. `None` for requests in flight too, whose slots come back.
    ///
    /// Of a [class](Policy::leaving), and of a class of a class, it is that of the policy which
    /// leaves nothing to others. A class bounds what is granted, and not what was used. So what it
    /// uses beyond its grants may take the units that it leaves to others, and more: a class can
    /// bring others into debt.
    ///
    /// A [block](PolicyNumbers::block) starts by one unit of debt.
    ///
    /// It has the [scope](Policy::scope) of this policy, so both use one state. A store that
    /// acquires under it charges units without a grant: [`settle`](crate::settle) does.
    ///
    /// ```
    /// use tollgate_core::{Policy, Quota};
    ///
    /// let tokens = Policy::new("tokens", Quota::per_minute(1_000));
    /// let with_debt = tokens.numbers().with_debt().unwrap();
    /// assert_eq!((with_debt.capacity(), with_debt.scope()), (2_000, tokens.scope()));
    /// let batch = tokens.leaving(900).unwrap();
    /// assert_eq!((batch.capacity(), batch.numbers().with_debt()), (100, Some(with_debt)));
    /// ```
    #[must_use]
    pub fn with_debt(&self) -> Option<Policy> {
        let capacity = self.capacity + self.headroom;
        let mut with_debt = self.clone();
        match self.algorithm {
            Algorithm::LeakyBucket { .. } | Algorithm::InFlight => return None,
            Algorithm::Gcra => {
                with_debt.horizon = horizon_of_debt(self.interval, capacity)?;
                with_debt.tolerance = with_debt.horizon;
                with_debt.quota.burst = 2 * capacity;
            }
            _ => with_debt.quota.limit = 2 * capacity,
        }
        with_debt.capacity = 2 * capacity;
        with_debt.largest_cost = with_debt.capacity;
        (with_debt.headroom, with_debt.most_debt) = (0, capacity);
        Some(Policy(Arc::new(with_debt)))
    }

    /// The most units of debt that the policy makes, for stores: the capacity without debt if it is
    /// one [with debt](PolicyNumbers::with_debt), and otherwise 0.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::share::Share;
    use crate::quota::Quota;

    #[test]
    fn a_class_and_a_share_of_it_have_the_debt_of_their_base() {
        let tokens = Policy::new("p", Quota::per_minute(60).burst(11));
        let class = tokens.leaving(4).unwrap();
        for class in [class.leaving(5).unwrap(), class] {
            assert_eq!(class.numbers().with_debt(), tokens.numbers().with_debt());
            let [class, tokens] = [&class, &tokens].map(|policy| policy.share(Share::new(1, 2)));
            assert_eq!(
                class.map(|class| class.numbers().with_debt()),
                tokens.map(|tokens| tokens.numbers().with_debt())
            );
        }
        for algorithm in [Algorithm::FIXED_WINDOW, Algorithm::SlidingWindow, Algorithm::SLIDING_LOG] {
            let window = Policy::new("p", Quota::per_minute(11)).with_algorithm(algorithm);
            let class = window.leaving(4).unwrap().leaving(5).unwrap();
            assert_eq!(class.numbers().with_debt(), window.numbers().with_debt());
            let [class, window] = [class, window].map(|policy| policy.share(Share::new(1, 2)).unwrap());
            assert_eq!((class.capacity(), class.numbers().with_debt()), (1, window.numbers().with_debt()));
        }
    }

    #[test]
    fn a_policy_has_debt_up_to_one_more_capacity_if_it_can_be_paid() {
        let quota = Quota::per_minute(60);
        let with_debt = |policy: Policy| {
            policy.numbers().with_debt().map(|policy| (policy.capacity(), policy.numbers().horizon().0))
        };
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
