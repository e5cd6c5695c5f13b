//! The usage of an interval: one call for each question, because questions are rare.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{FromRedisValue, Value, from_redis_value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_core::{Clock, Policy, UsageError};

use crate::commit::Target;
use crate::error::{Cause, Error};
use crate::link::Text;
use crate::wire::names::{BoundedKey, Name};
use crate::wire::numbers::Numbers;
use crate::wire::terms::Terms;

/// A question about the log under a key.
struct Question {
    slot: u16,
    name: Name,
    terms: Terms,
    /// In microseconds.
    interval: u64,
}

/// The units that `key` used in the last `interval`. `slot` is that of the key.
pub(crate) async fn of_interval(
    target: &Arc<Target>,
    slot: u16,
    (policy, key): (&Policy, &BoundedKey),
    interval: Duration,
) -> Result<u64, UsageError> {
    let terms = Terms::new(policy, 0, target.names.log);
    if !terms.part.is_log() {
        return Err(UsageError::Algorithm(policy.algorithm()));
    }
    // A longer interval counts no more, and doubles are exact up to here.
    let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).min(1 << 53);
    let question = Question { slot, name: target.names.of(key, policy), terms, interval };
    in_runtime(target, ask(Arc::clone(target), question)).await
}

/// Runs a call in the store's runtime, which owns the connections. A few questions at a time:
/// checks and refunds never wait for a connection that many questions hold.
///
/// One slow answer holds up no other question, and several do for the response timeout at most.
pub(crate) async fn in_runtime<T: Send + 'static>(
    target: &Target,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, UsageError> {
    let turn = turn(target).await.map_err(|error| UsageError::of_store(&error))?;
    let answer = target.runtime.spawn(async move {
        let _turn = turn;
        call.await
    });
    let answer = answer.await;
    answer.unwrap_or_else(|_| Err(Cause::Stopped.into())).map_err(|error| UsageError::of_store(&error))
}

/// Waits until a question may be asked, by the timers of the store's runtime: the caller's may have
/// none. A caller that leaves gives up its place.
async fn turn(target: &Target) -> Result<OwnedSemaphorePermit, Error> {
    let questions = Arc::clone(&target.questions);
    if let Ok(turn) = Arc::clone(&questions).try_acquire_owned() {
        return Ok(turn);
    }
    let limit = target.longest_turn;
    let mut waiting = JoinSet::new();
    waiting.spawn_on(async move { timeout(limit, questions.acquire_owned()).await }, &target.runtime);
    match waiting.join_next().await {
        Some(Ok(Ok(Ok(turn)))) => Ok(turn),
        Some(Ok(Err(_))) => Err(Cause::Overloaded.into()),
        _ => Err(Cause::Stopped.into()),
    }
}

async fn ask(target: Arc<Target>, question: Question) -> Result<u64, Error> {
    let build = |text: Text| {
        let script = target.scripts.usage(question.terms.part);
        Some(target.command(script, text, 1, |cmd| {
            cmd.arg(&*question.name);
            if let Some(now) = target.clock.as_ref().map(Clock::now) {
                cmd.arg(now.as_micros());
            }
            let mut numbers = Numbers::new();
            numbers.push(question.interval);
            question.terms.write(&mut numbers, false);
            cmd.arg(numbers.as_bytes());
        }))
    };
    let units: i64 = read(target.link.call(question.slot, &build).await?)?;
    Ok(units.max(0).cast_unsigned())
}

/// An answer in the form of its command.
pub(crate) fn read<T: FromRedisValue>(answer: Value) -> Result<T, Error> {
    from_redis_value(answer).map_err(|_| Cause::Garbled.into())
}
