//! How charges reach the store that granted them.

use std::sync::Arc;

use tollgate_core::Store;

use super::decider::Decider;
use super::permit::Permit;
use crate::charge::Charge;
use crate::cold::Cold;
use crate::never_fails::NeverFails;
use crate::observe::Observers;
use crate::plan::Ask;
use crate::setup_error::SetupError;

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// What settles a permit: by the plan that granted it, which another may have replaced.
    pub(super) fn cold_of(&self, permit: &Permit) -> Cold {
        let (cold, plan) = (self.cold(), permit.report.plan());
        if Arc::ptr_eq(plan, &cold.plan) {
            return cold;
        }
        // The observers of these rules would take its numbers for theirs.
        Cold { plan: Arc::clone(plan), observers: Observers::default(), ..cold }
    }

    /// Takes what one policy charged a permit, in any of its tiers, out of the permit.
    pub(super) fn charge_of(&self, permit: &mut Permit, policy: &str) -> Result<Charge, SetupError> {
        let cold = self.cold_of(permit);
        let plan = &cold.plan;
        let rule = plan.number_of(policy)?;
        Ok(match permit.take(|policy| plan.rule_of(policy) == rule) {
            // A slot comes back with its permit.
            Some((Ask { policy, key, cost }, granted)) if !plan.policy(&policy).is_in_flight() => {
                Charge::new(&cold, policy, Some(key), cost, granted)
            }
            _ => Charge::new(&cold, rule.into(), None, 0, None),
        })
    }
}
