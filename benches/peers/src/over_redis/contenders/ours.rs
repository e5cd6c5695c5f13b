//! tollgate: GCRA, with the checks of many callers in one call. Measured are the whole layer with
//! its two fields, the store alone, and the layer without Redis.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use tokio::task::yield_now;
use tollgate::extract::header;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_redis::RedisStore;
use tower::{Layer, service_fn};

use super::layered::Layered;
use super::{Contender, Setup, TIMEOUT};
use crate::contenders::service;
use crate::over_redis::alone::Alone;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Prepared, Subject};
use crate::over_redis::scenario::KEY_FIELD;

pub(crate) const OURS: &str = "tollgate";
pub(crate) const WHOLE_LAYER: &str = "whole layer";

const LAYER: Contender = Contender {
    name: OURS,
    part: WHOLE_LAYER,
    algorithm: "GCRA",
    connections: None,
    build: |setup| Box::pin(layer(setup)),
};

pub(super) fn contenders() -> [Contender; 3] {
    [
        LAYER,
        Contender { part: "store alone", build: |setup| Box::pin(store_alone(setup)), ..LAYER },
        Contender {
            part: "whole layer, without Redis",
            build: |setup| Box::pin(without_redis(setup)),
            ..LAYER
        },
    ]
}

pub(super) fn with_connections(connections: u32) -> Contender {
    Contender { connections: Some(connections), ..LAYER }
}

pub(super) fn policy(setup: &Setup) -> Policy {
    Policy::new("api", Quota::per_day(setup.per_day.into()))
}

async fn connect(setup: &Setup) -> Result<RedisStore, Failure> {
    let builder = RedisStore::builder(&setup.url);
    let builder = match setup.connections {
        Some(connections) => builder.connections(connections),
        None => builder,
    };
    Ok(builder.connect().await?)
}

async fn layer(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let store = connect(&setup).await?.timeout(TIMEOUT).fail_closed();
    let rule = policy(&setup).by(header(KEY_FIELD.as_str()));
    let service = RateLimitLayer::new([rule]).store(store).layer(service());
    Ok(Prepared::boxed(Layered(service), setup.tasks))
}

async fn store_alone(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let alone = Alone { store: connect(&setup).await?, policy: policy(&setup) };
    Ok(Prepared::boxed(alone, setup.tasks))
}

/// The upper limit for any asynchronous store in this loop: a decision in memory after one yield to
/// the runtime.
async fn without_redis(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let after_a_turn = service_fn(async |_request: Request<Body>| {
        yield_now().await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let rule = policy(&setup).by(header(KEY_FIELD.as_str()));
    let service = RateLimitLayer::new([rule]).layer(after_a_turn);
    Ok(Prepared::boxed(Layered(service), setup.tasks))
}
