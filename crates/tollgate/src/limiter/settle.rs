//! How charges reach the store that granted them.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Key, Policy, Settled, Store};

use super::decider::Decider;
use super::permit::Permit;
use crate::charge::{Charge, GrantStamp, Reservation, Settler, SettlerFuture};
use crate::denial::Denial;
use crate::never_fails::NeverFails;
use crate::observe::Observers;
use crate::plan::{Ask, PolicyRef};
use crate::setup_error::SetupError;

impl<S: Store<Error: NeverFails>> Settler for Decider<S> {
    fn policy<'a>(&'a self, policy: &'a PolicyRef) -> &'a Policy {
        self.plan.policy(policy)
    }

    fn extend<'a>(
        &'a self,
        policy: &'a PolicyRef,
        key: &'a Key,
        units: u64,
    ) -> SettlerFuture<'a, Result<Option<GrantStamp>, Denial>> {
        let ask = Ask { policy: policy.clone(), key: key.clone(), cost: units };
        Box::pin(async move { Ok(self.charge_more(ask).await?.granted(0)) })
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn settle(
        &self,
        policy: &PolicyRef,
        key: &Key,
        reservation: &Reservation,
        total: u64,
    ) -> SettlerFuture<'static, Settled> {
        let (grants, rest) = reservation.correction(self.plan.policy(policy), key, total);
        if grants.is_empty() {
            return Box::pin(ready(Settled::default()));
        }
        let granted = grants.iter().fold(0_u64, |sum, grant| sum.saturating_add(grant.units));
        let settled = if rest > granted {
            // No request waits for it, and what a stall makes late would be forgiven.
            self.store.with_deadline(None).settle(&grants, rest)
        } else {
            self.store.settle(&grants, rest)
        };
        Box::pin(async move { settled.await.unwrap_or_else(NeverFails::never) })
    }

    fn show(&self, policy: &PolicyRef, settled: Settled) {
        self.show_settled(policy, settled);
    }
}

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// What settles a permit: by the policies that granted it, which others may have replaced.
    pub(super) fn of_permit(&self, permit: &Permit) -> Decider<S> {
        let plan = permit.report.plan();
        if Arc::ptr_eq(plan, &self.plan) {
            return self.clone();
        }
        // The observers of these rules would take its numbers for theirs.
        Decider { plan: Arc::clone(plan), observers: Observers::default(), ..self.clone() }
    }

    /// Takes what one policy charged a permit, in any of its tiers, out of the permit.
    pub(super) fn charge_of(&self, permit: &mut Permit, policy: &str) -> Result<Charge, SetupError> {
        let decider = Arc::new(self.of_permit(permit));
        let plan = &decider.plan;
        let rule = plan.number_of(policy)?;
        let settler: Arc<dyn Settler> = decider.clone();
        Ok(match permit.take(|policy| plan.rule_of(policy) == rule) {
            // A slot comes back with its permit.
            Some((ask, _)) if plan.policy(&ask.policy).is_in_flight() => {
                Charge::new(&settler, rule.into(), None, 0, None)
            }
            Some((Ask { policy, key, cost }, granted)) => {
                Charge::new(&settler, policy, Some(key), cost, granted)
            }
            None => Charge::new(&settler, rule.into(), None, 0, None),
        })
    }
}
