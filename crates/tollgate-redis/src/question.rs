//! Questions of operators: calls that decide nothing, a few at a time.

use std::future::Future;
use std::sync::Arc;

use bb8_redis::redis::{FromRedisValue, Value, cmd, from_redis_value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::commit::CallContext;
use crate::error::{Cause, Error};
use crate::link::{Link, Master, plain};

/// How many names Redis looks at in one step of a scan.
const STEP: u32 = 1_000;

/// Runs a call in the store's runtime, which owns the connections. A few questions at a time:
/// checks and refunds never wait for a connection that many questions hold.
///
/// One slow answer holds up no other question, and several do for the response timeout at most.
pub(crate) async fn ask<T, F>(
    context: &Arc<CallContext>,
    question: impl FnOnce(Arc<CallContext>) -> F,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let turn = turn(context).await?;
    let question = question(Arc::clone(context));
    let answer = context.runtime.spawn(async move {
        let _turn = turn;
        question.await
    });
    answer.await.unwrap_or_else(|_| Err(Cause::Stopped.into()))
}

/// Waits until a question may be asked, by the timers of the store's runtime: the caller's may have
/// none. A caller that leaves gives up its place.
async fn turn(context: &CallContext) -> Result<OwnedSemaphorePermit, Error> {
    let questions = Arc::clone(&context.questions);
    if let Ok(turn) = Arc::clone(&questions).try_acquire_owned() {
        return Ok(turn);
    }
    let limit = context.longest_turn;
    let mut waiting = JoinSet::new();
    waiting.spawn_on(async move { timeout(limit, questions.acquire_owned()).await }, &context.runtime);
    match waiting.join_next().await {
        Some(Ok(Ok(Ok(turn)))) => Ok(turn),
        Some(Ok(Err(_))) => Err(Cause::Overloaded.into()),
        _ => Err(Cause::Stopped.into()),
    }
}

/// One step of a scan of all key names of a server. Returns where the next step begins, 0 at the
/// end, and the names that match. A scan may return a name again.
pub(crate) async fn scan(
    link: &Link,
    master: &Master,
    pattern: &str,
    cursor: u64,
) -> Result<(u64, Vec<Vec<u8>>), Error> {
    let scan = plain(cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP));
    read(link.call_on(master, &scan).await?)
}

/// An answer in the form of its command.
pub(crate) fn read<T: FromRedisValue>(answer: Value) -> Result<T, Error> {
    from_redis_value(answer).map_err(|_| Cause::Garbled.into())
}
