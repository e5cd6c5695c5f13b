//! Blocks of keys: after many denials, and by operators.

mod counts;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BlockStart, Check, Key, Policy, Share, Store, Times, Wait};

use crate::decision::{Denial, InForce};
use crate::errors::{Reason, SetupError};
use crate::plan::{Ask, RuleNumber};
use crate::time::ending::Home;

pub(crate) use counts::DenialCounts;

impl DenialCounts {
    /// Counts a denial that a caller gets, and blocks the key if it was one too many: in the store
    /// that denied. No caller waits for it.
    pub(crate) fn note(&self, in_force: impl Fn() -> Arc<InForce>, denial: &Denial, asks: &[Ask]) {
        // A block that goes on is no new denial.
        if denial.reason() != Reason::QuotaExceeded {
            return;
        }
        let (report, share) = (denial.report(), denial.report().share());
        for policy in denial.violated_at().filter_map(|at| report.asked(at)) {
            let rule = report.plan().rule_of(policy);
            // The report of a denial from a queue is on a part of what was asked.
            let of_rule = |ask: &&Ask| report.plan().rule_of(&ask.policy) == rule;
            let Some(ask) = asks.iter().find(of_rule) else { continue };
            if self.count(report.plan().own(rule), &ask.key) {
                let (in_force, key, started) = (in_force(), ask.key.clone(), Arc::clone(&self.started));
                Home::here().end(|| async move {
                    if in_force.start_block(rule, &key, share).await == BlockStart::Started {
                        started.add(in_force.plan.own(rule).name());
                    }
                });
            }
        }
    }
}

impl InForce {
    /// Starts a block by a rule, which must block keys. Observers see whether it did, unless one
    /// goes on.
    async fn start_block(&self, rule: RuleNumber, key: &Key, share: Option<Share>) -> BlockStart {
        let Some(block) = self.plan.block_of(rule) else { return BlockStart::Dropped };
        let Ok(start) = self.store.block(block, key, share).await;
        self.observers.block(&self.plan, rule, start);
        start
    }

    /// The number of the rule with this name, and the policy that refuses its blocked keys.
    fn block_named(&self, rule: &str) -> Result<(RuleNumber, &Policy), SetupError> {
        let number = self.plan.number_of(rule)?;
        let block = self.plan.block_of(number).ok_or_else(|| SetupError::NoBlocks(rule.to_owned()))?;
        Ok((number, block))
    }

    pub(crate) async fn block(&self, rule: &str, key: &Key) -> Result<(), SetupError> {
        let (number, _) = self.block_named(rule)?;
        self.start_block(number, key, None).await;
        Ok(())
    }

    pub(crate) async fn unblock(&self, rule: &str, key: &Key) -> Result<(), SetupError> {
        let (_, block) = self.block_named(rule)?;
        let Ok(()) = self.store.reset(key, &[block]).await;
        Ok(())
    }

    pub(crate) async fn blocked(&self, rule: &str, key: &Key) -> Result<Option<Duration>, SetupError> {
        let check = Check::new(self.block_named(rule)?.1, key, 1);
        let Ok(verdict) = self.store.acquire(&[check], Times::LOOK).wait().await;
        Ok(match verdict.wait() {
            Wait::For(wait) => Some(wait),
            Wait::None | Wait::Never => None,
        })
    }
}
