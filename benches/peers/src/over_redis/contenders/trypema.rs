//! `trypema`: a sliding window in buckets of 100 ms, an EVALSHA per decision over a connection
//! manager. It has no Tower layer, so it handles neither requests nor responses.

use std::sync::Arc;

use redis::Client;
use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use super::{Contender, DAY, Setup};
use crate::measure::Answers;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Decide, Prepared, Subject, failed};
use crate::over_redis::scenario::Draws;

pub(super) fn contenders() -> [Contender; 1] {
    [Contender {
        name: "trypema",
        part: "primitive",
        algorithm: "sliding window",
        connections: None,
        build: |setup| Box::pin(build(setup)),
    }]
}

async fn build(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let connection = Client::open(setup.url.as_str())?.get_connection_manager().await?;
    let limiter = RedisRateLimiterProvider::builder(connection)
        .window_size(WindowSize::seconds(DAY.as_secs())?)
        .build()?;
    let rate = RateLimit::per_day(f64::from(setup.per_day))?;
    Ok(Prepared::boxed(Trypema { limiter, rate }, setup.tasks))
}

#[derive(Clone)]
struct Trypema {
    limiter: Arc<RedisRateLimiterProvider>,
    rate: RateLimit,
}

impl Decide for Trypema {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let decision = match RedisKey::try_from(draws.draw().name.as_str()) {
            Ok(key) => self.limiter.absolute().inc(&key, &self.rate, 1).await,
            Err(error) => Err(error),
        };
        match decision {
            Ok(RateLimitDecision::Allowed) => answers.allowed += 1,
            Ok(_) => answers.denied += 1,
            Err(error) => failed(answers, &error),
        }
    }
}
