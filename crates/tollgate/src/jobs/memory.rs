//! Jobs in the memory of one process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{Clock, JobHolder, JobId, JobPolicy, JobStore, JobTake, Key, KeyJobs, Timestamp};

/// Jobs in the memory of this process, which a restart forgets. Clones share them.
///
/// A job takes about 200 bytes until it ends, and there is no bound but the limits of the keys: do
/// not let strangers choose keys.
#[derive(Clone)]
pub struct MemoryJobs(Arc<JobTable>);

struct JobTable {
    clock: Clock,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    jobs: HashMap<(Box<str>, Key), KeyJobs>,
    /// With so many keys, those without jobs are looked for.
    sweep_at: usize,
}

/// Fewer keys are not looked through.
const FEW: usize = 64;

impl MemoryJobs {
    /// No jobs.
    pub fn new() -> MemoryJobs {
        MemoryJobs::with_clock(Clock::system())
    }

    /// No jobs, by this clock: a [`ManualClock`](crate::ManualClock) makes tests instant and exact.
    pub fn with_clock(clock: impl Into<Clock>) -> MemoryJobs {
        MemoryJobs(Arc::new(JobTable { clock: clock.into(), keys: Mutex::default() }))
    }

    fn enter(&self) -> (MutexGuard<'_, Keys>, Timestamp) {
        let keys = self.0.keys.lock().unwrap_or_else(PoisonError::into_inner);
        // Behind the lock, so that no caller sees an earlier time than the one before it.
        let now = self.0.clock.now();
        (keys, now)
    }
}

impl Keys {
    /// The jobs of a key, if it may have some.
    fn of(&mut self, policy: &JobPolicy, key: &Key) -> Option<&mut KeyJobs> {
        self.jobs.get_mut(&(policy.name().into(), key.clone()))
    }

    /// The jobs of a key that will have one. Now and then it drops the keys whose jobs are all
    /// over.
    fn new_of(&mut self, policy: &JobPolicy, key: &Key, now: Timestamp) -> &mut KeyJobs {
        if self.jobs.len() >= self.sweep_at.max(FEW) {
            self.jobs.retain(|_, jobs| !jobs.is_over(now));
            self.sweep_at = 2 * self.jobs.len();
        }
        self.jobs.entry((policy.name().into(), key.clone())).or_default()
    }
}

impl JobStore for MemoryJobs {
    type Error = Infallible;

    async fn take_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        time: Duration,
    ) -> Result<JobTake, Infallible> {
        let (mut keys, now) = self.enter();
        Ok(keys.new_of(policy, key, now).take(policy, now, id, time))
    }

    async fn renew_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        attempt: u64,
        time: Duration,
    ) -> Result<Option<Timestamp>, Infallible> {
        let (mut keys, now) = self.enter();
        Ok(keys.of(policy, key).and_then(|jobs| jobs.renew(policy, now, id, attempt, time)))
    }

    async fn release_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        attempt: Option<u64>,
    ) -> Result<bool, Infallible> {
        let (mut keys, now) = self.enter();
        Ok(keys.of(policy, key).is_some_and(|jobs| jobs.release(policy, now, id, attempt)))
    }

    async fn job_holders(&self, policy: &JobPolicy, key: &Key) -> Result<Vec<JobHolder>, Infallible> {
        let (mut keys, now) = self.enter();
        Ok(keys.of(policy, key).map(|jobs| jobs.holders(now)).unwrap_or_default())
    }
}

impl Default for MemoryJobs {
    fn default() -> MemoryJobs {
        MemoryJobs::new()
    }
}

impl fmt::Debug for MemoryJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryJobs").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::ManualClock;

    use super::*;

    #[tokio::test]
    async fn questions_about_keys_without_jobs_store_nothing() {
        let (store, policy) = (MemoryJobs::new(), JobPolicy::new("exports", 1, Duration::from_secs(60)));
        let (key, id) = (Key::from("ada"), JobId::try_new("a").unwrap());
        assert_eq!(store.renew_job(&policy, &key, id, 1, Duration::MAX).await, Ok(None));
        assert_eq!(store.release_job(&policy, &key, id, None).await, Ok(false));
        assert_eq!(store.job_holders(&policy, &key).await, Ok(vec![]));
        assert_eq!(store.enter().0.jobs.len(), 0);
    }

    #[tokio::test]
    async fn keys_whose_jobs_are_over_are_dropped() {
        let time = ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000));
        let store = MemoryJobs::with_clock(&time);
        let policy = JobPolicy::new("exports", 1, Duration::from_secs(60));
        for n in 0..10_000_u64 {
            let taken =
                store.take_job(&policy, &Key::from(n), JobId::try_new("a").unwrap(), Duration::MAX).await;
            assert!(matches!(taken, Ok(JobTake::Held { .. })));
            // A hundred are held at a time.
            time.advance(Duration::from_millis(600));
        }
        let keys = store.enter().0.jobs.len();
        assert!(keys <= 400, "{keys}");
    }

    #[tokio::test]
    async fn attempts_rise_when_keys_are_dropped_while_the_clock_is_behind() {
        let start = Timestamp::from_micros(1_767_225_600_000_000);
        let time = ManualClock::new(start.saturating_add(Duration::from_secs(3_600)));
        let store = MemoryJobs::with_clock(&time);
        let policy = JobPolicy::new("exports", 1, Duration::from_secs(60));
        let (store, policy, id) = (&store, &policy, JobId::try_new("a").unwrap());
        let attempt = async |key: &Key| {
            let Ok(JobTake::Held { attempt, .. }) = store.take_job(policy, key, id, Duration::MAX).await
            else {
                panic!("no other job runs")
            };
            attempt
        };
        let key = Key::from("ada");
        let first = attempt(&key).await;
        assert_eq!(store.release_job(policy, &key, id, Some(first)).await, Ok(true));
        time.set(start);
        for n in 0..=FEW as u64 {
            attempt(&Key::from(n)).await;
        }
        assert!(attempt(&key).await > first, "a late worker holds nothing");
    }
}
