//! How many slots of requests in flight are in use, by key.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate::Limiter;

use super::key_limiter::KeyLimiter;
use super::shown_key::shown;
use crate::live_rules::{LiveRule, LiveRules};
use crate::store::AnyStore;

/// The keys of each policy that are shown.
const SHOWN_KEYS: usize = 8;
/// The time between two questions to the store.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// What the store says of the latest keys.
#[derive(Debug)]
pub(super) struct Slots {
    rules: LiveRules,
    store: AnyStore,
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
    pub(super) fn new(rules: LiveRules, store: AnyStore) -> Slots {
        Slots { rules, store, in_use: Mutex::default() }
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
        let mut limiter = KeyLimiter::new(self.store.clone());
        loop {
            if pages.receiver_count() > 0 {
                let rules = self.rules.now();
                let in_flight: Vec<&LiveRule> =
                    rules.iter().filter(|rule| rule.policy().is_in_flight()).collect();
                let in_use = match limiter.of(&in_flight) {
                    Some(limiter) => read(limiter, &in_flight).await,
                    None => Vec::new(),
                };
                *self.in_use() = in_use;
            }
            sleep(PAUSE).await;
        }
    }
}

/// Returns the slots of each policy; none from the first on for which the store did not answer.
async fn read(limiter: &Limiter<AnyStore>, rules: &[&LiveRule]) -> Vec<InUse> {
    let mut all = Vec::new();
    for rule in rules {
        let (name, limit) = (rule.name(), rule.policy().capacity());
        let mut in_use = InUse { name: name.to_owned(), limit, keys: Vec::new() };
        for key in rule.latest_keys().all() {
            let report = limiter.look_each(&[(name, &key)]).await;
            // A fallback knows only its own slots, and a failure policy none.
            let report = report.ok().filter(|report| report.share().is_none());
            let Some(free) = report.and_then(|report| Some(report.get(name)?.1.remaining())) else {
                return all;
            };
            if free < limit {
                in_use.keys.push(OfKey { key: shown(&key), in_use: limit - free });
            }
        }
        in_use.keys.sort_by_key(|key| Reverse(key.in_use));
        in_use.keys.truncate(SHOWN_KEYS);
        all.push(in_use);
    }
    all
}
