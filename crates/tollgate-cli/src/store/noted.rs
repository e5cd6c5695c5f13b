//! A store that notes which states it may have written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{
    BlockStart, Check, End, Grant, Key, Policy, RenewalReport, Reply, SentClaims, Settled, Share, Store,
    Times, Unsent, Verdict,
};
use tollgate_redis::{Error, RedisStore};

/// The policies of each key.
#[derive(Clone, Default)]
pub(super) struct States(Arc<Mutex<HashMap<Key, Vec<Policy>>>>);

#[derive(Clone)]
pub(super) struct Noted {
    store: RedisStore,
    states: States,
}

impl States {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Policy>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, policy: &Policy, key: &Key) {
        let mut states = self.lock();
        let policies = states.entry(key.clone()).or_default();
        if policies.iter().all(|known| known.scope() != policy.scope()) {
            policies.push(policy.clone());
        }
    }

    /// Deletes them.
    pub(super) async fn delete(&self, store: &RedisStore) -> Result<(), Error> {
        let states: Vec<(Key, Vec<Policy>)> = self.lock().drain().collect();
        for (key, policies) in states {
            store.reset(&key, &policies.iter().collect::<Vec<_>>()).await?;
        }
        Ok(())
    }
}

impl Noted {
    pub(super) fn new(store: RedisStore, states: States) -> Noted {
        Noted { store, states }
    }

    fn note(&self, grants: &[Grant<'_>]) {
        grants.iter().for_each(|grant| self.states.note(grant.policy, grant.key));
    }
}

impl Store for Noted {
    type Error = Error;
    type Acquire = <RedisStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Error>, Self::Acquire> {
        set.iter().for_each(|check| self.states.note(check.policy, check.key));
        self.store.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Error> + use<> {
        self.store.refund(grants)
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Error> + use<> {
        self.note(grants);
        self.store.settle(grants, total)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Error> + use<> {
        self.note(grants);
        self.store.renew(grants, report)
    }

    fn block(&self, policy: &Policy, key: &Key, share: Option<Share>) -> impl End<BlockStart, Error> + use<> {
        self.states.note(policy, key);
        self.store.block(policy, key, share)
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> Noted {
        Noted::new(self.store.with_deadline(deadline), self.states.clone())
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn in_shadow(&self) -> Noted {
        Noted::new(self.store.in_shadow(), self.states.clone())
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<> {
        self.store.close(limit)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Error> + use<> {
        self.store.reset(key, policies)
    }
}
