//! Most decisions without Redis: leases, the cache of denials, and trypema's hybrid, each next to
//! the exact layer and the layer over memory. No fields, and every task yields by tokio's budget.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use redis::Client;
use tollgate::extract::header;
use tollgate::failure::Guarded;
use tollgate::store::{NeverFails, Store};
use tollgate::{Fields, Lease, MemoryStore, PolicyExt, RateLimitLayer, StoreExt};
use tollgate_redis::RedisStore;
use tower::Layer;
use trypema::hybrid::{HybridRateLimiterProvider, SyncInterval};
use trypema::redis::RedisKey;
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use super::layered::Layered;
use super::ours::policy;
use super::{Contender, DAY, OURS, Setup, TIMEOUT, trypema as exact};
use crate::contenders::service;
use crate::measure::Answers;
use crate::over_redis::alone::Alone;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Budgeted, Decide, Prepared, Subject, failed};
use crate::over_redis::scenario::{Draws, KEY_FIELD};

const LAYER: Contender = Contender {
    name: OURS,
    part: "layer over MemoryStore",
    algorithm: "GCRA",
    connections: None,
    build: |setup| Box::pin(async move { Ok(layer(&setup, MemoryStore::new())) }),
};

const HYBRID: Contender = Contender {
    name: "trypema",
    part: "hybrid, primitive",
    algorithm: "sliding window",
    connections: None,
    build: |setup| Box::pin(async move { Ok(Prepared::boxed(Budgeted(hybrid(&setup).await?), setup.tasks)) }),
};

pub(crate) fn contenders() -> Vec<Contender> {
    let mut all = vec![
        LAYER,
        Contender {
            part: "exact layer",
            build: |setup| Box::pin(over_redis(setup, |store| store.fail_closed())),
            ..LAYER
        },
        Contender {
            part: "leased layer",
            build: |setup| Box::pin(over_redis(setup, |store| store.leased(lease()).fail_closed())),
            ..LAYER
        },
        Contender {
            part: "leased layer, deny cache",
            build: |setup| {
                Box::pin(over_redis(setup, |store| store.leased(lease()).deny_cache(100_000).fail_closed()))
            },
            ..LAYER
        },
        Contender {
            part: "leased store alone",
            build: |setup| {
                Box::pin(async move {
                    let store = connect(&setup).await?.leased(lease());
                    Ok(Prepared::boxed(Budgeted(Alone { store, policy: policy(&setup) }), setup.tasks))
                })
            },
            ..LAYER
        },
        Contender {
            part: "leased store alone, deny cache",
            build: |setup| {
                Box::pin(async move {
                    let store = connect(&setup).await?.leased(lease()).deny_cache(100_000);
                    Ok(Prepared::boxed(Budgeted(Alone { store, policy: policy(&setup) }), setup.tasks))
                })
            },
            ..LAYER
        },
        HYBRID,
        Contender {
            part: "hybrid, minimal wrapper",
            build: |setup| {
                Box::pin(
                    async move { Ok(Prepared::boxed(Budgeted(Wrapped(hybrid(&setup).await?)), setup.tasks)) },
                )
            },
            ..HYBRID
        },
    ];
    all.extend(exact::contenders());
    all
}

/// Large enough that the hot key does not run dry while 512 tasks keep the runtime busy: an answer
/// of Redis waits for up to 30 ms until its task is polled.
fn lease() -> Lease {
    Lease::at_most(1_000_000).lasting(Duration::from_secs(1))
}

async fn connect(setup: &Setup) -> Result<Guarded<RedisStore>, Failure> {
    Ok(RedisStore::connect(&setup.url).await?.timeout(TIMEOUT))
}

async fn over_redis<S, F>(setup: Setup, wrap: F) -> Result<Box<dyn Subject>, Failure>
where
    S: Store<Error: NeverFails>,
    F: FnOnce(Guarded<RedisStore>) -> S,
{
    Ok(layer(&setup, wrap(connect(&setup).await?)))
}

fn layer<S: Store<Error: NeverFails>>(setup: &Setup, store: S) -> Box<dyn Subject> {
    let rule = policy(setup).by(header(KEY_FIELD.as_str()));
    let service = RateLimitLayer::new([rule]).store(store).fields(Fields::None).layer(service());
    Prepared::boxed(Budgeted(Layered(service)), setup.tasks)
}

async fn hybrid(setup: &Setup) -> Result<Hybrid, Failure> {
    let connection = Client::open(setup.url.as_str())?.get_connection_manager().await?;
    let limiter = HybridRateLimiterProvider::builder(connection)
        .window_size(WindowSize::seconds(DAY.as_secs())?)
        .sync_interval(SyncInterval::milliseconds(10)?)
        .build()?;
    Ok(Hybrid { limiter, rate: RateLimit::per_day(f64::from(setup.per_day))? })
}

#[derive(Clone)]
struct Hybrid {
    limiter: Arc<HybridRateLimiterProvider>,
    rate: RateLimit,
}

impl Hybrid {
    async fn inc(&self, key: &str) -> Result<RateLimitDecision, Failure> {
        let key = RedisKey::try_from(key)?;
        Ok(self.limiter.absolute().inc(&key, &self.rate, 1).await?)
    }
}

impl Decide for Hybrid {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        match self.inc(&draws.draw().name).await {
            Ok(RateLimitDecision::Allowed) => answers.allowed += 1,
            Ok(_) => answers.denied += 1,
            Err(error) => failed(answers, &error),
        }
    }
}

/// trypema has no layer: what any layer does, a request with the key in a field and a response.
#[derive(Clone)]
struct Wrapped(Hybrid);

impl Decide for Wrapped {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert(KEY_FIELD, draws.draw().field.clone());
        let key = request.headers()[KEY_FIELD].to_str().unwrap_or_default();
        let status = match self.0.inc(key).await {
            Ok(RateLimitDecision::Allowed) => StatusCode::OK,
            Ok(_) => StatusCode::TOO_MANY_REQUESTS,
            Err(error) => return failed(answers, &error),
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        answers.count(response.status());
    }
}
