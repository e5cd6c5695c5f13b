//! Jobs: slots with an owner by name, which outlive the process that took them.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use crate::key::Key;
use crate::policy::{MAX_NAME, PolicyError, is_name};
use crate::quota::Quota;
use crate::store::error::StoreError;
use crate::text_error::TextError;
use crate::time::Timestamp;

/// How many jobs of one key may be held at a time, and how long one is held at most.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::JobPolicy;
///
/// let exports = JobPolicy::new("exports", 2, Duration::from_secs(6 * 3_600));
/// assert_eq!((exports.limit(), exports.longest()), (2, Duration::from_secs(21_600)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPolicy {
    name: Box<str>,
    /// The limit, and the longest time as its window.
    quota: Quota,
    linger: Duration,
}

impl JobPolicy {
    /// The most jobs of a key.
    pub const MAX_JOBS: u64 = 1_000;

    /// At most `limit` jobs of a key at a time, each for `longest` at most.
    ///
    /// # Panics
    /// If [`JobPolicy::try_new`] would return an error.
    #[track_caller]
    pub fn new(name: &str, limit: u64, longest: Duration) -> JobPolicy {
        match JobPolicy::try_new(name, limit, longest) {
            Ok(policy) => policy,
            Err(error) => panic!("policy {name:?}: {error}"),
        }
    }

    /// [`JobPolicy::new`] for values that are known only at run time.
    ///
    /// # Errors
    /// [`PolicyError`] if the name is not 1 to 128 characters of printable ASCII, if the limit is 0
    /// or exceeds [`JobPolicy::MAX_JOBS`], or if [`Quota::try_new`] refuses `longest` as a window.
    pub fn try_new(name: &str, limit: u64, longest: Duration) -> Result<JobPolicy, PolicyError> {
        if !is_name(name) {
            return Err(PolicyError::InvalidName);
        }
        if limit > JobPolicy::MAX_JOBS {
            return Err(PolicyError::TooManyJobs);
        }
        let quota = Quota::try_new(limit, longest)?;
        Ok(JobPolicy { name: name.into(), quota, linger: Duration::ZERO })
    }

    /// Counts a job for this long after its release, so that the limit is one of jobs that run or
    /// ran lately. Never beyond the longest time since it was taken. The default is zero.
    ///
    /// An id that lingers can be taken again, and is one job then. So give each run an id.
    #[must_use]
    pub fn linger(self, time: Duration) -> JobPolicy {
        JobPolicy { linger: time.min(self.longest()), ..self }
    }

    /// The name, which is part of stored keys. Policies of jobs share no names with others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most jobs of a key at a time.
    pub fn limit(&self) -> u64 {
        self.quota.limit()
    }

    /// The longest time for which a job is held since it was taken, however often it is renewed.
    pub fn longest(&self) -> Duration {
        self.quota.window()
    }

    /// For how long a job counts after its release.
    pub fn lingers_for(&self) -> Duration {
        self.linger
    }

    /// How long a job is held that is taken for `time`: at least a millisecond, at most the longest
    /// time.
    pub fn held_for(&self, time: Duration) -> Duration {
        time.max(Duration::from_millis(1)).min(self.longest())
    }

    /// When a job that is released ends to count.
    fn lingers_until(&self, taken: Timestamp, now: Timestamp) -> Timestamp {
        taken.saturating_add(self.longest()).min(now.saturating_add(self.linger))
    }
}

/// The name of a job, of 1 to 128 bytes. Stores keep it as it is, so it should be no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId<'a>(&'a str);

impl<'a> JobId<'a> {
    /// # Errors
    /// [`TextError`] if the text is empty or has more than 128 bytes.
    ///
    /// ```
    /// use tollgate_core::JobId;
    ///
    /// assert_eq!(JobId::try_new("4711").map(JobId::as_str), Ok("4711"));
    /// assert_eq!(JobId::try_new("").unwrap_err().to_string(), "\"\" is not the id of a job: 1 to 128 bytes");
    /// ```
    pub fn try_new(text: &'a str) -> Result<JobId<'a>, TextError> {
        match text.len() {
            1..=MAX_NAME => Ok(JobId(text)),
            _ => Err(TextError::new(text, "the id of a job: 1 to 128 bytes")),
        }
    }

    /// The text.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl<'a> TryFrom<&'a str> for JobId<'a> {
    type Error = TextError;

    fn try_from(text: &'a str) -> Result<JobId<'a>, TextError> {
        JobId::try_new(text)
    }
}

/// Whether a job was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum JobTake {
    /// The job has a slot.
    Held {
        /// The number of this attempt: higher than that of each earlier one of the key.
        attempt: u64,
        /// When the slot is free again without a release, by the store's clock.
        until: Timestamp,
        /// Whether no earlier take of this id held the job: `false` for a take that is repeated.
        is_new: bool,
    },
    /// As many jobs as allowed are held.
    Full {
        /// The time until the first of them ends, if none is released before.
        retry_after: Duration,
    },
}

/// A job that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobHolder {
    /// The id of the job.
    pub id: String,
    /// Its latest attempt.
    pub attempt: u64,
    /// The time since this attempt took it. A renewal changes nothing of it.
    pub age: Duration,
    /// The time after which it does not count any more.
    pub ends_after: Duration,
    /// Whether it was released and [lingers](JobPolicy::linger).
    pub lingers: bool,
}

impl JobHolder {
    /// A holder, as a store has read it.
    pub fn new(id: String, attempt: u64, age: Duration, ends_after: Duration, lingers: bool) -> JobHolder {
        JobHolder { id, attempt, age, ends_after, lingers }
    }
}

/// A store of jobs.
///
/// - **An id is one slot.** A job that is taken again while it counts takes no other slot: it has a
///   new attempt, and a new end. So a take whose answer was lost can be repeated.
/// - **Attempts rise** over all jobs of a key, also after a release. A renewal keeps the attempt.
/// - **What was not answered** may be executed, also after a later question. A take of that kind
///   makes a newer attempt that no caller knows: release the job by its id then.
/// - **Anybody releases**, also another process.
/// - Ends are by time. No task renews them, and no holder hears of its end.
///
/// [`KeyJobs`] is what a store has to compute.
pub trait JobStore: Clone + Send + Sync + 'static {
    /// Why the store did not answer. What it was asked may have been done.
    type Error: StoreError;

    /// Takes a job for [so long](JobPolicy::held_for).
    fn take_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        time: Duration,
    ) -> impl Future<Output = Result<JobTake, Self::Error>> + Send;

    /// Holds a job for [so long](JobPolicy::held_for) from now on, but no longer than the [longest
    /// time](JobPolicy::longest) since it was taken, if this attempt is its latest and was not
    /// released. Returns the new end. `None` if it cannot be held any longer: then its end stays.
    fn renew_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        attempt: u64,
        time: Duration,
    ) -> impl Future<Output = Result<Option<Timestamp>, Self::Error>> + Send;

    /// Releases a job; with an attempt, only if it is the latest of that job. Returns whether the
    /// job was held, and is released now.
    fn release_job(
        &self,
        policy: &JobPolicy,
        key: &Key,
        id: JobId<'_>,
        attempt: Option<u64>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The jobs of a key that count, the first to end first.
    fn job_holders(
        &self,
        policy: &JobPolicy,
        key: &Key,
    ) -> impl Future<Output = Result<Vec<JobHolder>, Self::Error>> + Send;
}

/// The jobs of one key: the state of a [`JobStore`].
///
/// A clock that has stepped back to before a job was taken holds its slot for the longest time at
/// most: a refusal moves the ends of such jobs.
#[derive(Clone, Debug, Default)]
pub struct KeyJobs {
    jobs: BTreeMap<Box<str>, Job>,
    latest_attempt: u64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    attempt: u64,
    taken: Timestamp,
    ends: Timestamp,
    lingers: bool,
}

impl Job {
    /// Whether an attempt holds it: the latest, which has neither ended nor been released.
    fn is_held_by(&self, attempt: u64, now: Timestamp) -> bool {
        self.attempt == attempt && self.ends > now && !self.lingers
    }
}

impl KeyJobs {
    /// Takes a job: see [`JobStore::take_job`].
    pub fn take(&mut self, policy: &JobPolicy, now: Timestamp, id: JobId<'_>, time: Duration) -> JobTake {
        self.jobs.retain(|_, job| job.ends > now);
        if !self.jobs.contains_key(id.as_str()) && self.jobs.len() as u64 >= policy.limit() {
            return JobTake::Full { retry_after: self.first_end(policy, now).saturating_since(now) };
        }
        let is_new = self.jobs.get(id.as_str()).is_none_or(|job| job.lingers);
        let attempt = now.as_micros().max(self.latest_attempt + 1);
        self.latest_attempt = attempt;
        let ends = now.saturating_add(policy.held_for(time));
        self.jobs.insert(id.as_str().into(), Job { attempt, taken: now, ends, lingers: false });
        JobTake::Held { attempt, until: ends, is_new }
    }

    /// Renews a job: see [`JobStore::renew_job`].
    pub fn renew(
        &mut self,
        policy: &JobPolicy,
        now: Timestamp,
        id: JobId<'_>,
        attempt: u64,
        time: Duration,
    ) -> Option<Timestamp> {
        let job = self.jobs.get_mut(id.as_str()).filter(|job| job.is_held_by(attempt, now))?;
        let last = job.taken.saturating_add(policy.longest());
        // The longest time may have been longer when it was taken.
        let ends = Some(now.saturating_add(policy.held_for(time)).min(last)).filter(|ends| *ends > now)?;
        job.ends = ends;
        Some(ends)
    }

    /// When as many jobs have ended as a refused one needs.
    fn first_end(&mut self, policy: &JobPolicy, now: Timestamp) -> Timestamp {
        for job in self.jobs.values_mut().filter(|job| job.taken > now) {
            job.ends = job.ends.min(now.saturating_add(policy.longest()));
            job.taken = now;
        }
        let mut ends: Vec<Timestamp> = self.jobs.values().map(|job| job.ends).collect();
        ends.sort_unstable();
        // The limit may be lower than when they were taken.
        let before = ends.len().saturating_sub(usize::try_from(policy.limit()).unwrap_or(usize::MAX));
        ends.get(before).copied().unwrap_or(now)
    }

    /// Releases a job: see [`JobStore::release_job`].
    pub fn release(
        &mut self,
        policy: &JobPolicy,
        now: Timestamp,
        id: JobId<'_>,
        attempt: Option<u64>,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(id.as_str()) else { return false };
        if !job.is_held_by(attempt.unwrap_or(job.attempt), now) {
            return false;
        }
        job.lingers = true;
        job.ends = policy.lingers_until(job.taken, now);
        if job.ends <= now {
            self.jobs.remove(id.as_str());
        }
        true
    }

    /// The jobs that count: see [`JobStore::job_holders`].
    pub fn holders(&self, now: Timestamp) -> Vec<JobHolder> {
        let jobs = self.jobs.iter().map(|(id, job)| (&**id, job));
        let mut counting: Vec<(&str, &Job)> = jobs.filter(|(_, job)| job.ends > now).collect();
        counting.sort_by_key(|(id, job)| (job.ends, *id));
        let holder = |(id, job): (&str, &Job)| {
            let (age, ends_after) = (now.saturating_since(job.taken), job.ends.saturating_since(now));
            JobHolder::new(id.to_owned(), job.attempt, age, ends_after, job.lingers)
        };
        counting.into_iter().map(holder).collect()
    }

    /// Whether no job counts, and the next attempt is later than all others without this state.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.latest_attempt < now.as_micros() && self.jobs.values().all(|job| job.ends <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn id(text: &str) -> JobId<'_> {
        JobId::try_new(text).unwrap()
    }

    fn attempt(take: JobTake) -> u64 {
        let JobTake::Held { attempt, .. } = take else { panic!("{take:?}") };
        attempt
    }

    #[test]
    fn an_id_is_one_slot_and_each_take_of_it_a_new_attempt() {
        let policy = JobPolicy::new("exports", 1, HOUR);
        let mut jobs = KeyJobs::default();
        let first = attempt(jobs.take(&policy, START, id("a"), HOUR));
        let second = attempt(jobs.take(&policy, START, id("a"), HOUR / 2));
        assert!(second > first);
        let full = JobTake::Full { retry_after: HOUR / 2 };
        assert_eq!(jobs.take(&policy, START, id("b"), HOUR), full);
        assert!(!jobs.release(&policy, START, id("a"), Some(first)), "a late worker");
        assert!(jobs.release(&policy, START, id("a"), Some(second)));
        assert!(!jobs.release(&policy, START, id("a"), None), "twice");
        assert!(attempt(jobs.take(&policy, START, id("b"), HOUR)) > second);
    }

    #[test]
    fn only_the_latest_attempt_renews_and_keeps_its_number() {
        let policy = JobPolicy::new("exports", 1, HOUR);
        let mut jobs = KeyJobs::default();
        let first = attempt(jobs.take(&policy, START, id("a"), HOUR / 2));
        let later = START.saturating_add(HOUR / 4);
        let longest = START.saturating_add(HOUR);
        assert_eq!(jobs.renew(&policy, later, id("a"), first, HOUR), Some(longest));
        assert_eq!((jobs.holders(later)[0].attempt, jobs.holders(later)[0].age), (first, HOUR / 4));
        let second = attempt(jobs.take(&policy, later, id("a"), HOUR));
        assert_eq!(jobs.renew(&policy, later, id("a"), first, HOUR), None, "a late worker");
        assert!(jobs.release(&policy, later, id("a"), Some(second)));
        assert_eq!(jobs.renew(&policy, later, id("a"), second, HOUR), None, "released");
    }

    #[test]
    fn a_take_is_new_unless_it_is_repeated() {
        let policy = JobPolicy::new("exports", 1, HOUR).linger(HOUR);
        let mut jobs = KeyJobs::default();
        let is_new = |jobs: &mut KeyJobs, now| {
            matches!(jobs.take(&policy, now, id("a"), HOUR / 2), JobTake::Held { is_new: true, .. })
        };
        assert!(is_new(&mut jobs, START) && !is_new(&mut jobs, START));
        assert!(jobs.release(&policy, START, id("a"), None));
        assert!(is_new(&mut jobs, START), "it lingered");
        assert!(is_new(&mut jobs, START.saturating_add(HOUR / 2)), "its time was over");
    }

    #[test]
    fn a_released_job_counts_while_it_lingers() {
        let policy = JobPolicy::new("exports", 1, HOUR).linger(HOUR / 2);
        let mut jobs = KeyJobs::default();
        let _ = jobs.take(&policy, START, id("a"), HOUR);
        let later = START.saturating_add(HOUR / 4);
        assert!(jobs.release(&policy, later, id("a"), None));
        assert!(!jobs.release(&policy, later, id("a"), None));
        assert_eq!(jobs.take(&policy, later, id("b"), HOUR), JobTake::Full { retry_after: HOUR / 2 });
        assert!(jobs.holders(later)[0].lingers);
        // Never beyond the longest time.
        let late = START.saturating_add(HOUR * 3 / 4);
        attempt(jobs.take(&policy, late, id("c"), HOUR));
        let end = late.saturating_add(HOUR);
        assert!(jobs.release(&policy, late.saturating_add(HOUR * 3 / 4), id("c"), None));
        assert!(!jobs.is_over(Timestamp::from_micros(end.as_micros() - 1)) && jobs.is_over(end));
    }

    #[test]
    fn a_clock_that_stepped_back_holds_no_slot_longer() {
        let policy = JobPolicy::new("exports", 1, HOUR);
        let mut jobs = KeyJobs::default();
        let first = attempt(jobs.take(&policy, START.saturating_add(100 * HOUR), id("a"), HOUR));
        assert_eq!(jobs.take(&policy, START, id("b"), HOUR), JobTake::Full { retry_after: HOUR });
        assert!(attempt(jobs.take(&policy, START.saturating_add(HOUR), id("b"), HOUR)) > first);
    }

    #[test]
    fn what_no_policy_can_be_is_an_error() {
        let made = |name, limit| JobPolicy::try_new(name, limit, HOUR).map(|_| ());
        assert_eq!(made("", 1), Err(PolicyError::InvalidName));
        assert_eq!(made("exports", JobPolicy::MAX_JOBS + 1), Err(PolicyError::TooManyJobs));
        assert_eq!(made("exports", 0), Err(crate::QuotaError::ZeroLimit.into()));
        assert_eq!(made("exports", JobPolicy::MAX_JOBS), Ok(()));
        assert!(JobPolicy::try_new("exports", 1, Duration::ZERO).is_err());
    }
}
