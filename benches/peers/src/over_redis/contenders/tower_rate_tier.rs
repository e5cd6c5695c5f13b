//! `tower-rate-tier` with its storage in Redis: GCRA, an EVALSHA per request over a connection
//! manager. Hashes user names. Always writes its fields.

use std::sync::Arc;

use redis::Client;
use tower::Layer;
use tower_rate_tier::{OnStorageError, Quota, RateTier, RedisStorage, TierIdentity, TierLimitLayer};

use super::layered::Layered;
use super::{Contender, Setup, TIMEOUT};
use crate::contenders::service;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Prepared, Subject};
use crate::over_redis::scenario::KEY_FIELD;

const TIER: &str = "t";

pub(super) fn contenders() -> [Contender; 1] {
    [Contender {
        name: "tower-rate-tier",
        part: super::WHOLE_LAYER,
        algorithm: "GCRA",
        connections: None,
        build: |setup| Box::pin(build(setup)),
    }]
}

async fn build(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let connection = Client::open(setup.url.as_str())?.get_connection_manager().await?;
    let tiers = RateTier::builder()
        .tier(TIER, Quota::per_day(setup.per_day))
        .default_tier(TIER)
        // The default is 100 ms, too short for a busy machine.
        .storage(Arc::new(RedisStorage::new(connection).timeout(TIMEOUT)))
        .build();
    let layer = TierLimitLayer::new(tiers)
        .identifier_fn(|fields| {
            let user = fields.get(KEY_FIELD)?.to_str().ok()?;
            Some(TierIdentity::new(user, TIER))
        })
        // By default, requests without an answer from Redis pass, and would count as decisions.
        .on_storage_error(OnStorageError::Deny);
    Ok(Prepared::boxed(Layered(layer.layer(service())), setup.tasks))
}
