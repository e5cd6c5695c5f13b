//! A limiter that asks the store for keys, of some of the rules.

use tollgate::{Limiter, Policy};

use crate::live_rules::LiveRule;
use crate::store::AnyStore;

/// Made again when the rules are replaced.
#[derive(Debug)]
pub(super) struct KeyLimiter {
    store: AnyStore,
    made: Option<(Vec<Policy>, Limiter<AnyStore>)>,
}

impl KeyLimiter {
    pub(super) fn new(store: AnyStore) -> KeyLimiter {
        KeyLimiter { store, made: None }
    }

    /// Returns the limiter of these rules; `None` if there are none.
    pub(super) fn of(&mut self, rules: &[&LiveRule]) -> Option<&Limiter<AnyStore>> {
        let policies: Vec<Policy> = rules.iter().map(|rule| rule.policy().clone()).collect();
        if self.made.as_ref().is_none_or(|(of, _)| *of != policies) {
            let limiter =
                Limiter::try_new(policies.clone()).and_then(|all| all.try_store(self.store.clone()));
            self.made = limiter.ok().map(|limiter| (policies, limiter));
        }
        self.made.as_ref().map(|(_, limiter)| limiter)
    }
}
