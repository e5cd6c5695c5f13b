//! Which keys are blocked, and for how much longer.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate::extract::{ClientIp, KeyExtractor};
use tollgate::{Denial, Head, Key, Limiter, MissingKey, Policy, SetupError};

use super::latest_keys::{LatestKeys, shown};
use super::slots::PAUSE;
use crate::config::Config;
use crate::rule_spec::RuleSpec;
use crate::span::seconds_up;
use crate::store::AnyStore;

/// The keys that are shown.
const SHOWN_KEYS: usize = 8;

/// The latest keys that each rule denied, of the rules that block.
#[derive(Clone, Debug)]
pub(crate) struct DeniedKeys(Arc<[OfRule]>);

struct OfRule {
    policy: Policy,
    extractor: Box<dyn KeyExtractor>,
    missing_key: MissingKey,
    keys: Mutex<LatestKeys>,
}

impl DeniedKeys {
    /// Of none yet.
    pub(crate) fn of(
        rules: &[RuleSpec],
        client_ip: Option<&ClientIp>,
        missing_key: MissingKey,
    ) -> DeniedKeys {
        let of_rule = |rule: &RuleSpec| OfRule {
            policy: rule.policy.clone(),
            extractor: rule.key.extractor(client_ip),
            missing_key,
            keys: Mutex::default(),
        };
        let block = rules.iter().filter(|rule| rule.policy.denials_until_block().is_some());
        DeniedKeys(block.map(of_rule).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Notes the keys of a request that is denied. The denial in the response has none.
pub(super) async fn note(State(denied): State<DeniedKeys>, request: Request, next: Next) -> Response {
    let head = Head::from(&request);
    let keys: Vec<Option<Key>> = denied.0.iter().map(|rule| rule.key(&head)).collect();
    let response = next.run(request).await;
    if let Some(denial) = response.extensions().get::<Denial>() {
        for (rule, key) in denied.0.iter().zip(keys) {
            if let Some(key) = key.filter(|_| denial.violated().any(|name| name == rule.policy.name())) {
                rule.keys().note(key);
            }
        }
    }
    response
}

impl OfRule {
    fn key(&self, head: &Head<'_>) -> Option<Key> {
        let key = self.extractor.extract(head).filter(|key| !key.is_empty());
        key.or_else(|| (self.missing_key == MissingKey::OneKey).then(Key::global))
    }

    fn keys(&self) -> MutexGuard<'_, LatestKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OfRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfRule").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// What the store says of the keys that were denied.
#[derive(Debug)]
pub(super) struct Blocks {
    denied: DeniedKeys,
    /// `None` without rules that block.
    limiter: Option<Limiter<AnyStore>>,
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
    pub(super) fn new(config: &Config, store: AnyStore) -> Result<Blocks, SetupError> {
        let denied = config.denied_keys.clone();
        let policies: Vec<_> = denied.0.iter().map(|rule| rule.policy.clone()).collect();
        let limiter = match policies.is_empty() {
            true => None,
            false => Some(Limiter::try_new(policies)?.try_store(store)?),
        };
        Ok(Blocks { denied, limiter, blocked: Mutex::default() })
    }

    /// The keys whose denials are noted.
    pub(super) fn denied(&self) -> &DeniedKeys {
        &self.denied
    }

    /// Returns the latest keys that are blocked. `None` without a rule that blocks.
    pub(super) fn latest(&self) -> Option<Vec<BlockedKey>> {
        self.limiter.is_some().then(|| self.blocked().clone())
    }

    fn blocked(&self) -> MutexGuard<'_, Vec<BlockedKey>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store again and again, while there is a page to show it.
    pub(super) async fn watch(&self, pages: &watch::Sender<Arc<str>>) {
        let Some(limiter) = &self.limiter else { return std::future::pending().await };
        loop {
            if pages.receiver_count() > 0 {
                let blocked = self.read(limiter).await;
                *self.blocked() = blocked;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the blocked keys of each rule, the latest first.
    async fn read(&self, limiter: &Limiter<AnyStore>) -> Vec<BlockedKey> {
        let mut all = Vec::new();
        for rule in &*self.denied.0 {
            let (policy, latest) = (rule.policy.name(), rule.keys().clone());
            let mut blocked = 0;
            for key in latest.iter() {
                if let Some(time) = limiter.blocked(policy, key).await {
                    let (policy, key) = (policy.to_owned(), shown(key));
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
}
