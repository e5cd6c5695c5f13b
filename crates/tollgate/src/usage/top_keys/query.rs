//! Questions about what all processes counted.

use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate_core::{Clock, Key, Timestamp, UsageError, UsageLog};

use super::book;
use super::key_usage::KeyUsage;
use super::merge::Merge;
use super::page::Page;
use super::recorder::Recorder;
use super::settings::Recording;

/// The usage that the processes of a fleet counted: see the [module](super).
#[derive(Clone, Debug)]
pub struct TopKeys<L> {
    log: L,
    clock: Clock,
}

/// The decisions of one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MinuteUsage {
    /// When the minute began.
    pub start: Timestamp,
    /// Decisions that allowed a request.
    pub allowed: u64,
    /// Decisions that denied one.
    pub denied: u64,
}

/// What a [series](TopKeys::series) is about.
#[derive(Clone, Copy, Debug)]
pub enum UsageOf<'a> {
    /// All keys of the policy with this name.
    Policy(&'a str),
    /// A key, under all policies. It counts in minutes in which it was among the top keys.
    Key(&'a Key),
}

/// The longest time that a question covers: a week.
const MOST_MINUTES: u64 = 7 * 24 * 60;

impl<L: UsageLog> TopKeys<L> {
    /// Asks this log: a store in Redis, or a [`MemoryLog`](super::MemoryLog). Starts nothing.
    pub fn new(log: L) -> TopKeys<L> {
        TopKeys { log, clock: Clock::system() }
    }

    /// Sets the clock by which questions end now. A [`ManualClock`](crate::ManualClock) is for
    /// tests.
    #[must_use]
    pub fn clock(self, clock: impl Into<Clock>) -> TopKeys<L> {
        TopKeys { clock: clock.into(), ..self }
    }

    /// Starts to count in this process. A task stores the counts in the log.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn record(&self, recording: Recording) -> Recorder<L> {
        Recorder::start(self.log.clone(), recording)
    }

    /// Returns the `n` keys that were allowed most often in the last minutes that `last` touches,
    /// with the most frequent first. At most a week is read.
    ///
    /// It holds at most 100,000 keys, or twice `n`. Of more keys it drops those with the lowest
    /// counts so far. [`KeyUsage::at_most`] contains what a key had when it was dropped.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer.
    pub async fn top_allowed(&self, n: usize, last: Duration) -> Result<Vec<KeyUsage>, UsageError> {
        self.top(n, last, true).await
    }

    /// [`TopKeys::top_allowed`] for the keys that were denied most often.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer.
    pub async fn top_denied(&self, n: usize, last: Duration) -> Result<Vec<KeyUsage>, UsageError> {
        self.top(n, last, false).await
    }

    /// Returns the decisions about a policy or a key in each of the last minutes that `last`
    /// touches, with the oldest first. At most a week is read.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer.
    pub async fn series(&self, of: UsageOf<'_>, last: Duration) -> Result<Vec<MinuteUsage>, UsageError> {
        let key = match of {
            UsageOf::Policy(_) => String::new(),
            UsageOf::Key(key) => self.log.name(key),
        };
        let mut series = Vec::new();
        for minute in self.minutes(last) {
            let start = Timestamp::from_micros(minute * 60_000_000);
            let mut of_minute = MinuteUsage { start, allowed: 0, denied: 0 };
            let add = |text: &str| {
                let page = Page::read(text);
                let (allowed, denied) = match of {
                    UsageOf::Policy(name) => page.of_policy(name),
                    UsageOf::Key(_) => page.of_key(&key),
                };
                of_minute.allowed = of_minute.allowed.saturating_add(allowed);
                of_minute.denied = of_minute.denied.saturating_add(denied);
            };
            self.log.read(minute, add).await?;
            series.push(of_minute);
        }
        Ok(series)
    }

    async fn top(&self, n: usize, last: Duration, is_allowed: bool) -> Result<Vec<KeyUsage>, UsageError> {
        let mut merge = Merge::new(n, is_allowed);
        for minute in self.minutes(last) {
            self.log.read(minute, |text| merge.add(Page::read(text))).await?;
        }
        Ok(merge.top(n))
    }

    fn minutes(&self, last: Duration) -> RangeInclusive<u64> {
        let now = book::minute_of(self.clock.now());
        let minutes = last.as_secs().div_ceil(60).clamp(1, MOST_MINUTES);
        now.saturating_sub(minutes - 1)..=now
    }
}

impl Page {
    fn of_policy(&self, name: &str) -> (u64, u64) {
        let known = self.policies.iter().find(|known| known.name == name);
        known.map_or((0, 0), |known| (known.allowed, known.denied))
    }

    fn of_key(&self, key: &str) -> (u64, u64) {
        let [allowed, denied] = [&self.allowed.keys, &self.denied.keys]
            .map(|keys| keys.iter().filter(|listed| listed.key == key).map(|listed| listed.count).sum());
        (allowed, denied)
    }
}
