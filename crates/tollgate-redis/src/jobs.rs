//! Jobs: one call of a script for each question.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::FromRedisValue;
use tollgate_core::{Clock, JobHolder, JobId, JobPolicy, JobStore, JobTake, Key, Timestamp};

use crate::commit::CallContext;
use crate::error::{Cause, Error};
use crate::link::Text;
use crate::question::{ask, read};
use crate::store::RedisStore;

/// Keeps the jobs of a key as a sorted set `prefix:2:{key}:policy~jobs` and a hash
/// `prefix:2:{key}:policy~attempts`, until the last of them ends. Ids are stored as they are.
///
/// Each question is a call, over the connections that questions about usage have. One that was lost
/// is not sent again: take the job once more, which has the same slot. A list of 1,000 jobs keeps
/// the server busy for about 7 ms. While a hash slot of a Cluster moves, the first job of a key may
/// fail with [`ErrorKind::Moving`](tollgate_core::ErrorKind::Moving).
///
/// **A job is not asked for while it runs**, so when memory is full `volatile-lru` forgets it
/// before other limits. Keep jobs in a Redis with `noeviction`, or with memory enough.
impl JobStore for RedisStore {
    type Error = Error;

    async fn take_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        time: Duration,
    ) -> Result<JobTake, Error> {
        let [time, longest] = [policy.held_for(time), policy.longest()].map(micros);
        let question = ["take", id.as_str(), &policy.limit().to_string(), &time, &longest].map(String::from);
        let answer: Vec<u64> = call(self, policy, key, question.to_vec()).await?;
        match answer[..] {
            [1, attempt, until, is_new] => {
                let until = Timestamp::from_micros(until);
                Ok(JobTake::Held { attempt, until, is_new: is_new == 1 })
            }
            [0, wait] => Ok(JobTake::Full { retry_after: Duration::from_micros(wait) }),
            _ => Err(Cause::Garbled.into()),
        }
    }

    async fn renew_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        attempt: u64,
        time: Duration,
    ) -> Result<Option<Timestamp>, Error> {
        let [time, longest] = [policy.held_for(time), policy.longest()].map(micros);
        let question = ["renew", id.as_str(), &attempt.to_string(), &time, &longest].map(String::from);
        let end: u64 = call(self, policy, key, question.to_vec()).await?;
        Ok((end > 0).then(|| Timestamp::from_micros(end)))
    }

    async fn release_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        attempt: Option<u64>,
    ) -> Result<bool, Error> {
        let attempt = attempt.map_or(String::new(), |attempt| attempt.to_string());
        let [longest, linger] = [policy.longest(), policy.lingers_for()].map(micros);
        let question = ["release", id.as_str(), &attempt, &longest, &linger].map(String::from);
        call(self, policy, key, question.to_vec()).await
    }

    async fn job_holders(&self, policy: &JobPolicy, key: &Key) -> Result<Vec<JobHolder>, Error> {
        let holders: Vec<(Vec<u8>, u64, u64, u64, u64)> =
            call(self, policy, key, vec!["holders".to_owned()]).await?;
        let holder = |(id, attempt, age, ends_after, lingers): (Vec<u8>, u64, u64, u64, u64)| {
            let [age, ends_after] = [age, ends_after].map(Duration::from_micros);
            JobHolder::new(String::from_utf8_lossy(&id).into_owned(), attempt, age, ends_after, lingers == 1)
        };
        Ok(holders.into_iter().map(holder).collect())
    }
}

fn micros(time: Duration) -> String {
    time.as_micros().to_string()
}

async fn call<T>(store: &RedisStore, policy: &JobPolicy, key: &Key, question: Vec<String>) -> Result<T, Error>
where
    T: FromRedisValue + Send + 'static,
{
    let context = &store.commit().context;
    let key = context.names.bounded(key);
    let (hash_slot, names) = (store.commit().hash_slot(&key), context.names.of_jobs(&key, policy.name()));
    ask(context, async move |context: Arc<CallContext>| -> Result<T, Error> {
        let build = |text: Text| {
            Some(context.command(context.scripts.jobs(), text, names.len(), |cmd| {
                for name in &names {
                    cmd.arg(&**name);
                }
                if let Some(now) = context.clock.as_ref().map(Clock::now) {
                    cmd.arg(now.as_micros());
                }
                for word in &question {
                    cmd.arg(word);
                }
            }))
        };
        read(context.link.call(hash_slot, &build).await?)
    })
    .await
}
