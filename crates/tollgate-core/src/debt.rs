//! Units that were used beyond what was granted.

use smallvec::SmallVec;

use crate::check::{Check, Grant, Times};
use crate::exact::Exact;
use crate::policy::{Algorithm, Policy};
use crate::quota::{MAX_SPAN_US, Quota};
use crate::store::Store;
use crate::verdict::Status;

/// What became of units that were used: see [`Store::settle`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The units that are charged. More than were used if a store failed that should have given
    /// some back.
    pub charged: u64,
    /// How many of them exceed what was left of the quota. Later requests wait until they are paid.
    pub debt: u64,
    /// The units that no caller pays: those beyond the most debt, and those that a store failed to
    /// charge.
    pub forgiven: u64,
}

impl Settled {
    /// That of grants whose charge stays as it is, although `total` units were used.
    pub fn unchanged(grants: &[Grant<'_>], total: u64) -> Settled {
        let charged = granted(grants);
        Settled { charged, debt: 0, forgiven: total.saturating_sub(charged) }
    }
}

impl Policy {
    /// The same policy with twice the capacity: its quota, and as much debt. `None` for a leaky
    /// bucket, which has delayed later requests already, and for a bucket whose debt would take
    /// longer than 2^52 µs to pay.
    ///
    /// It has the [scope](Policy::scope) of this policy, so both use one state. A store that
    /// acquires under it charges units without a grant: [`settle`] does.
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
            Algorithm::LeakyBucket { .. } => return None,
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

/// [`Store::settle`] by [`Store::refund`] and [`Store::acquire`], for a store that decides by
/// itself.
///
/// # Errors
/// Those of these two. If more than `u32::MAX` units have to be charged, part of them may have
/// been.
pub async fn settle<S: Store>(store: &S, grants: &[Grant<'_>], total: u64) -> Result<Settled, S::Error> {
    let granted = granted(grants);
    if total > granted {
        return match grants.last() {
            Some(newest) => charge_beyond(store, newest, granted, total - granted).await,
            None => Ok(Settled::unchanged(grants, total)),
        };
    }
    let mut unused = granted - total;
    let newest_first = grants.iter().rev().map(|grant| {
        let units = grant.units.min(unused);
        unused -= units;
        Grant { units, ..*grant }
    });
    let refunds: SmallVec<[Grant<'_>; 1]> = newest_first.filter(|grant| grant.units > 0).collect();
    if !refunds.is_empty() {
        store.refund(&refunds).wait().await?;
    }
    Ok(Settled { charged: total, ..Settled::default() })
}

fn granted(grants: &[Grant<'_>]) -> u64 {
    grants.iter().fold(0, |sum, grant| sum.saturating_add(grant.units))
}

/// Charges `used` units more than were granted, by acquiring them under a policy with debt.
async fn charge_beyond<S: Store>(
    store: &S,
    newest: &Grant<'_>,
    granted: u64,
    used: u64,
) -> Result<Settled, S::Error> {
    let mut settled = Settled { charged: granted, debt: 0, forgiven: used };
    let Some(policy) = newest.policy.with_debt() else { return Ok(settled) };
    let mut left = used.min(policy.capacity());
    while left > 0 {
        // No store grants more units in one call. If there are more than times, several at a time.
        let most = left.min(Quota::MAX_UNITS);
        let cost = most.div_ceil(u32::MAX.into());
        let times = u32::try_from(most / cost).unwrap_or(u32::MAX);
        let asked = [Check::new(&policy, newest.key, cost)];
        let verdict = store.acquire(&asked, Times::up_to(times)).wait().await?;
        let charged = u64::from(verdict.times()) * cost;
        let remaining = verdict.each().first().map_or(0, Status::remaining);
        settled.charged += charged;
        settled.forgiven -= charged;
        settled.debt += charged.min(newest.policy.capacity().saturating_sub(remaining));
        left -= charged;
        if verdict.times() < times {
            // What is left of the debt is less than that cost.
            left = left.min(cost - 1);
        }
    }
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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

    #[test]
    fn debt_is_not_cut() {
        let policy = Policy::new("p", Quota::per_second(1).burst(2_000));
        let most = policy.with_debt().unwrap().horizon();
        assert!(policy.furthest() >= most && policy.with_debt().unwrap().furthest() >= most);
    }
}
