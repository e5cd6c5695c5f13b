//! `tower-rate-limiter` with its store in Redis: a fixed window, a multiplexed connection, a MULTI
//! per request.

use http::Request;
use redis::Client;
use tower::Layer;
use tower_rate_limiter::{KeyExtractor, RateLimitError, RateLimitFields, RateLimitLayer, RedisStore};

use super::layered::Layered;
use super::{Contender, DAY, Setup};
use crate::contenders::service;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Prepared, Subject};
use crate::over_redis::scenario::KEY_FIELD;

pub(super) fn contenders() -> [Contender; 1] {
    [Contender {
        name: "tower-rate-limiter",
        part: super::WHOLE_LAYER,
        algorithm: "fixed window",
        connections: None,
        build: |setup| Box::pin(build(setup)),
    }]
}

async fn build(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let connection = Client::open(setup.url.as_str())?.get_multiplexed_async_connection().await?;
    let layer = RateLimitLayer::builder(ByField)
        .limit(setup.per_day.into())
        .window(DAY)
        .rate_limit_fields(RateLimitFields::Draft11)
        .with_store(RedisStore::new(connection))
        .build()?;
    Ok(Prepared::boxed(Layered(layer.layer(service())), setup.tasks))
}

#[derive(Clone, Copy)]
struct ByField;

impl KeyExtractor for ByField {
    type Key = String;

    fn extract<B>(&self, request: &Request<B>) -> Result<String, RateLimitError> {
        let user = request.headers().get(KEY_FIELD).and_then(|user| user.to_str().ok());
        let missing = || RateLimitError::Key("missing".to_owned(), format!("no {KEY_FIELD}"));
        user.map(str::to_owned).ok_or_else(missing)
    }
}
