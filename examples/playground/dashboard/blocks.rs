//! Which keys are blocked, and for how much longer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate::Limiter;

use super::key_limiter::KeyLimiter;
use super::shown_key::shown;
use super::slots::PAUSE;
use crate::live_rules::{LiveRule, LiveRules};
use crate::me::seconds_up;
use crate::store::AnyStore;

/// The keys that are shown.
const SHOWN_KEYS: usize = 8;

/// What the store says of the keys that were denied.
#[derive(Debug)]
pub(super) struct Blocks {
    rules: LiveRules,
    store: AnyStore,
    blocked: Mutex<Vec<BlockedKey>>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BlockedKey {
    policy: String,
    key: String,
    /// The time until the end of the block, rounded up.
    seconds: u64,
}

impl Blocks {
    pub(super) fn new(rules: LiveRules, store: AnyStore) -> Blocks {
        Blocks { rules, store, blocked: Mutex::default() }
    }

    /// Returns the latest keys that are blocked. `None` without a rule that blocks.
    pub(super) fn latest(&self) -> Option<Vec<BlockedKey>> {
        self.rules.now().iter().any(LiveRule::blocks).then(|| self.blocked().clone())
    }

    fn blocked(&self) -> MutexGuard<'_, Vec<BlockedKey>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store again and again, while there is a page to show it.
    pub(super) async fn watch(&self, pages: &watch::Sender<Arc<str>>) {
        let mut limiter = KeyLimiter::new(self.store.clone());
        loop {
            if pages.receiver_count() > 0 {
                let rules = self.rules.now();
                let block: Vec<&LiveRule> = rules.iter().filter(|rule| rule.blocks()).collect();
                let blocked = match limiter.of(&block) {
                    Some(limiter) => read(limiter, &block).await,
                    None => Vec::new(),
                };
                *self.blocked() = blocked;
            }
            sleep(PAUSE).await;
        }
    }
}

/// Returns the blocked keys of each rule, the latest first.
async fn read(limiter: &Limiter<AnyStore>, rules: &[&LiveRule]) -> Vec<BlockedKey> {
    let mut all = Vec::new();
    for rule in rules {
        let mut blocked = 0;
        for key in rule.latest_keys().all() {
            if let Some(time) = limiter.blocked(rule.name(), &key).await {
                let (policy, key) = (rule.name().to_owned(), shown(&key));
                all.push(BlockedKey { policy, key, seconds: seconds_up(time) });
                blocked += 1;
            }
            if blocked == SHOWN_KEYS {
                break;
            }
        }
    }
    all
}
