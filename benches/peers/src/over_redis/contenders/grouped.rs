//! tollgate's group commit with nothing around it: GCRA for a group of keys per call, several calls
//! in flight on *one* multiplexed connection. No group waits to fill, and no caller gets an answer.

use redis::aio::MultiplexedConnection;
use redis::{RedisError, cmd};

use super::bare::{connect, gcra_terms, load};
use super::{Contender, Setup};
use crate::measure::Answers;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Decide, Prepared, Subject, failed};
use crate::over_redis::scenario::Draws;

pub(crate) const GROUPED: &str = "GCRA in Lua, in groups";

/// The most checks in a call of tollgate.
const GROUP: usize = 128;

pub(super) fn with_calls(calls: u32) -> Contender {
    Contender {
        name: GROUPED,
        part: "bare",
        algorithm: "GCRA",
        connections: Some(calls),
        build: |setup| Box::pin(build(setup)),
    }
}

async fn build(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let calls = setup.connections.unwrap_or(1) as usize;
    let mut connection = connect(&setup).await?;
    let hash = load(&mut connection, include_str!("grouped.lua")).await?;
    let (interval, horizon) = gcra_terms(&setup);
    // With too few tasks to fill all calls, each call carries an equal share.
    let group = GROUP.min(setup.tasks / calls).max(1);
    Ok(Prepared::boxed(Grouped { connection, hash, interval, horizon, group }, calls))
}

#[derive(Clone)]
struct Grouped {
    connection: MultiplexedConnection,
    hash: String,
    interval: u64,
    horizon: u64,
    group: usize,
}

impl Decide for Grouped {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hash).arg(self.group);
        (0..self.group).for_each(|_| {
            call.arg(&draws.draw().name);
        });
        call.arg(self.interval).arg(self.horizon);
        let ahead: Result<Vec<i64>, RedisError> = call.query_async(&mut self.connection).await;
        match ahead {
            Ok(ahead) => {
                let allowed = ahead.iter().filter(|ahead| **ahead >= 0).count();
                answers.allowed += allowed as u64;
                answers.denied += (ahead.len() - allowed) as u64;
            }
            Err(error) => failed(answers, &error),
        }
    }
}
