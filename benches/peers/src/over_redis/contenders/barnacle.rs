//! `barnacle-rs`: a fixed window, an EVALSHA per request on a connection from a deadpool of its
//! default size. Always writes its fields. By default, a failing store leads to an error response.

use barnacle_rs::{BarnacleConfig, BarnacleKey, BarnacleLayer, Identity, RedisBarnacleStore};
use tower::Layer;

use super::layered::Layered;
use super::{Contender, DAY, Setup};
use crate::contenders::service;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Prepared, Subject};
use crate::over_redis::scenario::KEY_FIELD;

pub(super) fn contenders() -> [Contender; 1] {
    [Contender {
        name: "barnacle-rs",
        part: super::WHOLE_LAYER,
        algorithm: "fixed window",
        connections: None,
        build: |setup| Box::pin(build(setup)),
    }]
}

async fn build(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let layer = BarnacleLayer::<RedisBarnacleStore>::builder()
        .with_store(RedisBarnacleStore::from_url(&setup.url)?)
        .with_config(BarnacleConfig::new(setup.per_day, DAY))
        .with_identifier(|parts, _state| {
            let user = parts.headers.get(KEY_FIELD)?.to_str().ok()?;
            Some(Identity::new(BarnacleKey::Custom(user.to_owned())))
        })
        .build()?;
    Ok(Prepared::boxed(Layered(layer.layer(service())), setup.tasks))
}
