//! The charges of a request that are corrected later.

use std::sync::Arc;

use super::{ByResponse, Charge};
use crate::decision::{GrantStamp, InForce};
use crate::plan::Ask;

/// The charges of a request that passes, of each rule that corrects them.
pub(crate) struct Corrected {
    /// Those of handlers.
    pub(crate) reserved: Vec<Charge>,
    pub(crate) by_response: ByResponse,
}

impl Corrected {
    /// Opens them. `granted` is what a store granted for the ask at a place.
    pub(crate) fn open(
        in_force: &Arc<InForce>,
        asks: &[Ask],
        granted: impl Fn(usize) -> Option<GrantStamp>,
    ) -> Corrected {
        let plan = &*in_force.plan;
        let mut corrected = Corrected { reserved: Vec::new(), by_response: ByResponse::default() };
        for number in plan.correcting() {
            let charge = match asks.iter().position(|ask| plan.rule_of(&ask.policy) == *number) {
                Some(at) => Charge::new(in_force, asks[at].clone(), granted(at)),
                None => Charge::without_key(in_force, *number),
            };
            let rule = plan.rule(*number);
            if let Some(of_response) = rule.of_response() {
                corrected.by_response.add(charge.clone(), of_response);
            }
            if rule.reserves() {
                corrected.reserved.push(charge);
            }
        }
        corrected
    }
}
