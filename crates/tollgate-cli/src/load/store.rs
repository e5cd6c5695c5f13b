//! A store in Redis, without a server of HTTP.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{Check, Key, Policy, Store, Times, Verdict};
use tollgate_redis::{Error, RedisStore};

use super::args::LoadArgs;
use super::outcome::{RequestOutcome, within};
use crate::values;

/// Not the prefix of services, so that a load does not use up the limits of their users.
const PREFIX: &str = "tollgate-load";

pub(crate) struct StoreTarget {
    store: RedisStore,
    policies: Vec<Policy>,
}

impl StoreTarget {
    /// Connects, and looks at the first key.
    pub(crate) async fn open(args: &LoadArgs) -> Result<StoreTarget, String> {
        let policies = values::policies(&args.policies)?;
        if policies.is_empty() {
            return Err("--redis needs a --policy, such as api=100/10s".to_owned());
        }
        if let Some(slots) = policies.iter().find(|policy| policy.is_in_flight()) {
            return Err(format!("--policy {}: a load of a store ends no request in flight", slots.name()));
        }
        let store = args.redis.connect(PREFIX).await?;
        let target = StoreTarget { store, policies };
        target.acquire(1, Times::LOOK).await.map_err(|error| format!("--redis: {error}"))?;
        Ok(target)
    }

    /// Waits as a layer does if a leaky bucket delays the request: longer than `limit` too, since
    /// the store has answered.
    pub(crate) async fn send(&self, key: u32, limit: Duration) -> RequestOutcome {
        match within(limit, self.acquire(key, Times::ONCE)).await {
            Ok(Ok(verdict)) if verdict.is_granted() => {
                sleep(verdict.delay()).await;
                RequestOutcome::Allowed
            }
            Ok(Ok(_)) => RequestOutcome::Denied,
            Ok(Err(error)) => RequestOutcome::Failed(error.to_string()),
            Err(late) => late,
        }
    }

    async fn acquire(&self, key: u32, times: Times) -> Result<Verdict, Error> {
        let key = Key::from(key.to_string());
        let set: Vec<_> = self.policies.iter().map(|policy| Check::new(policy, &key, 1)).collect();
        self.store.acquire(&set, times).wait().await
    }
}
