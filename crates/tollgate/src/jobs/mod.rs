//! Jobs: so many of a key run at once, in any process.
//!
//! A request in flight gives its [slot](crate::Policy::in_flight) back when its future ends. A job
//! outlives the process that took it: it is queued by one process, run by a second and ended by a
//! third. So its slot has an owner by name, the id of the job, and an end by time.
//!
//! ```
//! use std::time::Duration;
//!
//! use tollgate::Key;
//! use tollgate::jobs::{JobPolicy, JobTake, Jobs, MemoryJobs};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // At most two exports of a customer at a time, each for six hours at most.
//! let exports = JobPolicy::new("exports", 2, Duration::from_secs(6 * 3_600));
//! // With a fleet, a `RedisStore` in the place of `MemoryJobs`.
//! let exports = Jobs::new(exports, MemoryJobs::new());
//! let customer = Key::from("acme");
//!
//! let time = Duration::from_secs(600);
//! let JobTake::Held { attempt, .. } = exports.take(&customer, "job-1".try_into()?, time).await? else {
//!     panic!("no other job runs");
//! };
//! // The worker holds it for longer than that.
//! assert!(exports.renew(&customer, "job-1".try_into()?, attempt, time).await?.is_some());
//!
//! // The id counts once, so a take whose answer was lost is repeated. It is a new attempt.
//! let _ = exports.take(&customer, "job-1".try_into()?, time).await?;
//! let _ = exports.take(&customer, "job-2".try_into()?, time).await?;
//! let third = exports.take(&customer, "job-3".try_into()?, time).await?;
//! assert!(matches!(third, JobTake::Full { retry_after } if retry_after <= time));
//!
//! // The worker of the first attempt is late. It does not free the slot of the second.
//! assert!(!exports.release_attempt(&customer, "job-1".try_into()?, attempt).await?);
//! // Any process frees it by the id.
//! assert!(exports.release(&customer, "job-1".try_into()?).await?);
//! let ids: Vec<String> = exports.holders(&customer).await?.into_iter().map(|holder| holder.id).collect();
//! assert_eq!(ids, ["job-2"]);
//! # Ok(())
//! # }
//! ```
//!
//! - **Failures are the caller's.** A store that does not answer is an error, and no failure policy
//!   lets the job pass: a queue can wait. What was asked may have been done, so repeat the take
//!   with the same id.
//! - **A killed worker** holds its slot until the end of its time. Take it for the time after which
//!   you would start the job again, and let the worker renew it before that.
//! - **A take that was not answered** may be executed later than the next one, and then it is the
//!   latest attempt. Release such a job by its id, or its slot is held to the end of its time.
//! - **A failover** that loses a take frees its slot, until the id is taken again.
//! - **Ids are stored as they are.** Keys are named as in every other state.

mod memory;

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout_at;
use tollgate_core::{ErrorKind, Key, PolicyError, StoreError, Timestamp};

use crate::time::timer_now;

pub use memory::MemoryJobs;
pub use tollgate_core::{JobHolder, JobId, JobPolicy, JobStore, JobTake, KeyJobs};

/// How long a caller waits at most until it asks again: another process may have released a job.
const LOOK: Duration = Duration::from_secs(1);

/// Limits how many jobs of each key are held at a time. See the [module docs](self).
///
/// Clones wake each other's callers. All limiters on one store share the jobs of policies with the
/// same name.
#[derive(Clone)]
pub struct Jobs<S = MemoryJobs> {
    policy: Arc<JobPolicy>,
    store: S,
    /// Each key has one of these.
    released: Arc<[Notify; 64]>,
}

impl<S: JobStore> Jobs<S> {
    /// A limiter of jobs on this store.
    pub fn new(policy: JobPolicy, store: S) -> Jobs<S> {
        Jobs { policy: Arc::new(policy), store, released: Arc::new([const { Notify::const_new() }; 64]) }
    }

    /// The same jobs with another limit, such as that of a customer's row.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::jobs::{JobPolicy, Jobs, MemoryJobs};
    ///
    /// let jobs = Jobs::new(JobPolicy::new("exports", 2, Duration::from_secs(3_600)), MemoryJobs::new());
    /// let of_a_large_customer = jobs.try_limit(50)?;
    /// # assert!(jobs.try_limit(0).is_err());
    /// # drop(of_a_large_customer);
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    ///
    /// A job that is held goes on under a lower limit, and can be renewed and taken again.
    ///
    /// # Errors
    /// [`PolicyError`] if the limit is 0 or exceeds [`JobPolicy::MAX_JOBS`], which is the limit of
    /// a customer without one.
    pub fn try_limit(&self, limit: u64) -> Result<Jobs<S>, PolicyError> {
        let policy = JobPolicy::try_new(self.policy.name(), limit, self.policy.longest())?;
        let policy = Arc::new(policy.linger(self.policy.lingers_for()));
        Ok(Jobs { policy, store: self.store.clone(), released: Arc::clone(&self.released) })
    }

    /// Takes a job for [so long](JobPolicy::held_for), unless as many as allowed are held. A job
    /// that is held already has a new attempt then, and the earlier one holds it no more.
    ///
    /// # Errors
    /// If the store does not answer. The job may be held nevertheless.
    pub async fn take(&self, key: &Key, id: JobId<'_>, time: Duration) -> Result<JobTake, S::Error> {
        self.store.take_job(&self.policy, key, id, time).await
    }

    /// [`Jobs::take`], which waits for a slot as long as `patience` says. A release by a clone of
    /// this limiter wakes it; of other releases it hears within a second. Callers that wait have no
    /// order.
    ///
    /// # Errors
    /// If the store does not answer. The job may be held nevertheless.
    ///
    /// # Panics
    /// Without a tokio runtime with a timer.
    pub async fn take_within(
        &self,
        key: &Key,
        id: JobId<'_>,
        time: Duration,
        patience: Duration,
    ) -> Result<JobTake, S::Error> {
        let begin = timer_now();
        loop {
            // Before the store is asked, so that no release is missed.
            let mut released = std::pin::pin!(self.released_of(key).notified());
            released.as_mut().enable();
            let take = self.take(key, id, time).await;
            let left = patience.saturating_sub(begin.elapsed());
            let pause = match &take {
                Ok(JobTake::Full { retry_after }) if !left.is_zero() => *retry_after,
                // Too many callers of this process ask: the store was not.
                Err(error) if error.kind() == ErrorKind::Overloaded && !left.is_zero() => LOOK,
                _ => return take,
            };
            // Whether a release or the time woke it, the store knows.
            let _ = timeout_at(timer_now() + pause.min(left).min(LOOK), released).await;
        }
    }

    /// Releases a job that any process took. Returns whether it was held. A job that
    /// [lingers](JobPolicy::linger) counts on.
    ///
    /// # Errors
    /// If the store does not answer. The job may be released nevertheless.
    pub async fn release(&self, key: &Key, id: JobId<'_>) -> Result<bool, S::Error> {
        self.give_back(key, id, None).await
    }

    /// Releases a job if this attempt is its latest: a late worker does not free the slot of the
    /// worker that follows it. Returns whether it was held by this attempt.
    ///
    /// # Errors
    /// If the store does not answer. The job may be released nevertheless.
    pub async fn release_attempt(&self, key: &Key, id: JobId<'_>, attempt: u64) -> Result<bool, S::Error> {
        self.give_back(key, id, Some(attempt)).await
    }

    /// Holds a job for [so long](JobPolicy::held_for) from now on, by the attempt that holds it. So
    /// its worker works on, for longer than it said, but no longer than the [longest
    /// time](JobPolicy::longest) since it was taken. Returns the new end, or `None`: the time was
    /// over and the job may have another attempt, or it was released. Or the longest time was
    /// shortened and is over: then the job counts until its old end, unless it is released.
    ///
    /// # Errors
    /// If the store does not answer. The job may be held for longer nevertheless.
    pub async fn renew(
        &self,
        key: &Key,
        id: JobId<'_>,
        attempt: u64,
        time: Duration,
    ) -> Result<Option<Timestamp>, S::Error> {
        self.store.renew_job(&self.policy, key, id, attempt, time).await
    }

    fn released_of(&self, key: &Key) -> &Notify {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.released[usize::from(hash.to_le_bytes()[0] % 64)]
    }

    async fn give_back(&self, key: &Key, id: JobId<'_>, attempt: Option<u64>) -> Result<bool, S::Error> {
        let released = self.store.release_job(&self.policy, key, id, attempt).await?;
        if released && self.policy.lingers_for().is_zero() {
            self.released_of(key).notify_waiters();
        }
        Ok(released)
    }

    /// Returns the jobs of a key that count, the first to end first.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn holders(&self, key: &Key) -> Result<Vec<JobHolder>, S::Error> {
        self.store.job_holders(&self.policy, key).await
    }
}

impl<S: fmt::Debug> fmt::Debug for Jobs<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs")
            .field("policy", &self.policy)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn id(text: &str) -> JobId<'_> {
        JobId::try_new(text).unwrap()
    }

    /// Two limiters of one job on one store, as of two processes. The store's clock stands still.
    fn two() -> [Jobs; 2] {
        let store = MemoryJobs::with_clock(&crate::ManualClock::new(crate::Timestamp::EPOCH));
        [(); 2].map(|()| Jobs::new(JobPolicy::new("exports", 1, HOUR), store.clone()))
    }

    /// How long a caller waits that begins now, and what it gets.
    async fn waits(jobs: &Jobs, patience: Duration) -> (Duration, bool) {
        let begin = timer_now();
        let Ok(take) = jobs.take_within(&Key::from("ada"), id("b"), HOUR, patience).await;
        (begin.elapsed(), matches!(take, JobTake::Held { .. }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_wakes_callers_of_its_process_at_once_and_others_in_a_second() {
        let key = Key::from("ada");
        for (other, most) in [(0, Duration::ZERO), (1, LOOK)] {
            let jobs = two();
            let Ok(_) = jobs[0].take(&key, id("a"), HOUR).await;
            let releases = async {
                sleep(Duration::from_millis(2_500)).await;
                assert!(matches!(jobs[other].release(&key, id("a")).await, Ok(true)));
            };
            let ((waited, is_held), ()) = tokio::join!(waits(&jobs[0], HOUR), releases);
            let late = waited.saturating_sub(Duration::from_millis(2_500));
            assert!(is_held && late <= most, "{late:?} after the release by {other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_as_long_as_it_says() {
        let jobs = two();
        let Ok(_) = jobs[0].take(&Key::from("ada"), id("a"), HOUR).await;
        let patience = Duration::from_millis(2_500);
        let (waited, is_held) = waits(&jobs[1], patience).await;
        // Tokio's timer counts in milliseconds.
        assert!(
            !is_held && waited >= patience && waited <= patience + Duration::from_millis(2),
            "{waited:?}"
        );
        assert_eq!(waits(&jobs[1], Duration::ZERO).await, (Duration::ZERO, false));
    }

    #[tokio::test]
    async fn a_job_lingers_under_another_limit_too() {
        let store = MemoryJobs::with_clock(&crate::ManualClock::new(crate::Timestamp::EPOCH));
        let jobs = Jobs::new(JobPolicy::new("exports", 2, HOUR).linger(HOUR), store);
        let (one, key) = (jobs.try_limit(1).unwrap(), Key::from("ada"));
        let Ok(_) = one.take(&key, id("a"), HOUR).await;
        assert_eq!(one.release(&key, id("a")).await, Ok(true));
        assert_eq!(one.take(&key, id("b"), HOUR).await, Ok(JobTake::Full { retry_after: HOUR }));
    }
}
