//! How many slots of requests in flight are in use, by key.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate::extract::KeyExtractor;
use tollgate::{Head, Limiter, Policy, SetupError};

use super::latest_keys::{LatestKeys, shown};
use crate::config::Config;
use crate::store::AnyStore;

/// The keys of each policy that are shown.
const SHOWN_KEYS: usize = 8;
/// The time between two questions to the store.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The latest keys of each policy of requests in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentKeys(Arc<Mutex<Vec<OfPolicy>>>);

#[derive(Clone, Debug)]
struct OfPolicy {
    policy: Policy,
    keys: LatestKeys,
}

impl RecentKeys {
    /// Returns an extractor that notes the keys of a policy.
    pub(crate) fn noting(&self, policy: &Policy, extractor: Box<dyn KeyExtractor>) -> impl KeyExtractor {
        let mut policies = self.lock();
        let at = policies.len();
        policies.push(OfPolicy { policy: policy.clone(), keys: LatestKeys::default() });
        let recent = self.clone();
        move |head: &Head<'_>| {
            let key = extractor.extract(head).filter(|key| !key.is_empty())?;
            recent.lock()[at].keys.note(key.clone());
            Some(key)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OfPolicy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the store says of the latest keys.
#[derive(Debug)]
pub(super) struct Slots {
    recent: RecentKeys,
    /// `None` without policies of requests in flight.
    limiter: Option<Limiter<AnyStore>>,
    in_use: Mutex<Vec<InUse>>,
}

/// The slots of one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InUse {
    #[serde(skip)]
    name: String,
    limit: u64,
    /// Those with the most slots in use.
    keys: Vec<OfKey>,
}

#[derive(Clone, Debug, Serialize)]
struct OfKey {
    key: String,
    in_use: u64,
}

impl Slots {
    pub(super) fn new(config: &Config, store: AnyStore) -> Result<Slots, SetupError> {
        let policies = config.rules.iter().map(|rule| rule.policy.clone());
        let policies: Vec<_> = policies.filter(Policy::is_in_flight).collect();
        let limiter = match policies.is_empty() {
            true => None,
            false => Some(Limiter::try_new(policies)?.try_store(store)?),
        };
        Ok(Slots { recent: config.recent_keys.clone(), limiter, in_use: Mutex::default() })
    }

    /// Returns the slots of a policy. `None` if it is a rate, or if the store did not answer.
    pub(super) fn of(&self, policy: &str) -> Option<InUse> {
        self.in_use().iter().find(|of| of.name == policy).cloned()
    }

    fn in_use(&self) -> MutexGuard<'_, Vec<InUse>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store again and again, while there is a page to show it.
    pub(super) async fn watch(&self, pages: &watch::Sender<Arc<str>>) {
        let Some(limiter) = &self.limiter else { return std::future::pending().await };
        loop {
            if pages.receiver_count() > 0 {
                let in_use = self.read(limiter).await;
                *self.in_use() = in_use;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the slots of each policy; none from the first on for which the store did not answer.
    async fn read(&self, limiter: &Limiter<AnyStore>) -> Vec<InUse> {
        let recent = self.recent.lock().clone();
        let mut all = Vec::new();
        for OfPolicy { policy, keys } in recent {
            let (name, limit) = (policy.name(), policy.capacity());
            let mut in_use = InUse { name: name.to_owned(), limit, keys: Vec::new() };
            for key in keys.iter() {
                let report = limiter.look_each(&[(name, key)]).await;
                // A fallback knows only its own slots, and a failure policy none.
                let report = report.ok().filter(|report| report.share().is_none());
                let Some(free) = report.and_then(|report| Some(report.get(name)?.1.remaining())) else {
                    return all;
                };
                if free < limit {
                    in_use.keys.push(OfKey { key: shown(key), in_use: limit - free });
                }
            }
            in_use.keys.sort_by_key(|key| Reverse(key.in_use));
            in_use.keys.truncate(SHOWN_KEYS);
            all.push(in_use);
        }
        all
    }
}
