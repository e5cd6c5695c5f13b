//! `limitador`, the library: a fixed window over a connection manager. A decision reads the counter
//! by a script and increments it by another, so its limits are not exact. It has no Tower layer.

use std::collections::HashMap;
use std::sync::Arc;

use limitador::AsyncRateLimiter;
use limitador::limit::Limit;
use limitador::storage::redis::AsyncRedisStorage;

use super::{Contender, DAY, Setup};
use crate::measure::Answers;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Decide, Prepared, Subject, failed};
use crate::over_redis::scenario::Draws;

const USER: &str = "user";

pub(super) fn contenders() -> [Contender; 1] {
    [Contender {
        name: "limitador",
        part: "primitive",
        algorithm: "fixed window",
        connections: None,
        build: |setup| Box::pin(build(setup)),
    }]
}

async fn build(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let storage = AsyncRedisStorage::new(&setup.url).await?;
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    limiter.add_limit(Limit::new("api", setup.per_day.into(), DAY.as_secs(), [], [USER.try_into()?]));
    Ok(Prepared::boxed(Limitador(Arc::new(limiter)), setup.tasks))
}

#[derive(Clone)]
struct Limitador(Arc<AsyncRateLimiter>);

impl Decide for Limitador {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let caller = HashMap::from([(USER.to_owned(), draws.draw().name.clone())]).into();
        match self.0.check_rate_limited_and_update(&"api".into(), &caller, 1).await {
            Ok(checked) if checked.limited => answers.denied += 1,
            Ok(_) => answers.allowed += 1,
            Err(error) => failed(answers, &error),
        }
    }
}
