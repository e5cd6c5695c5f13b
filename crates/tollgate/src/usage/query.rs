//! Questions about what all processes counted.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tollgate_core::{Clock, ErrorKind, Key, Timestamp, UsageError, UsageLog};

use super::book;
use super::page::Page;
use super::recorder::Recorder;
use super::settings::Recording;

/// The usage that the processes of a fleet counted: see the [module](super).
#[derive(Clone, Debug)]
pub struct Usage<L> {
    log: L,
    clock: Clock,
}

/// How often a key was allowed or denied under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyUsage {
    /// The name of the policy.
    pub policy: String,
    /// The key as the log names it: readable, or a digest.
    pub key: String,
    /// The decisions that were counted.
    pub count: u64,
    /// The least that the true count can be, with five standard deviations if it was sampled.
    pub at_least: u64,
    /// The most that the true count can be, with five standard deviations if it was sampled.
    pub at_most: u64,
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

/// What a [series](Usage::series) is about.
#[derive(Clone, Copy, Debug)]
pub enum UsageOf<'a> {
    /// All keys of the policy with this name.
    Policy(&'a str),
    /// A key, under all policies. It counts in minutes in which it was among the top keys.
    Key(&'a Key),
}

/// The longest time that a question covers: a week.
const MOST_MINUTES: u64 = 7 * 24 * 60;

impl<L: UsageLog> Usage<L> {
    /// Asks this log: a store in Redis, or a [`MemoryLog`](super::MemoryLog). Starts nothing.
    pub fn new(log: L) -> Usage<L> {
        Usage { log, clock: Clock::system() }
    }

    /// Sets the clock by which questions end now. A [`ManualClock`](crate::ManualClock) is for
    /// tests.
    #[must_use]
    pub fn clock(self, clock: impl Into<Clock>) -> Usage<L> {
        Usage { clock: clock.into(), ..self }
    }

    /// Starts to count in this process. A task stores the counts in the log.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn record(&self, recording: Recording) -> Recorder<L> {
        Recorder::start(self.log.clone(), recording)
    }

    /// Returns the `n` keys that were allowed most often in the last minutes that `last` touches,
    /// with the most frequent first. At most a week is read, hour by hour.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn top_allowed(&self, n: usize, last: Duration) -> Result<Vec<KeyUsage>, UsageError> {
        self.top(n, last, true).await
    }

    /// [`Usage::top_allowed`] for the keys that were denied most often.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn top_denied(&self, n: usize, last: Duration) -> Result<Vec<KeyUsage>, UsageError> {
        self.top(n, last, false).await
    }

    /// Returns the decisions about a policy or a key in each of the last minutes that `last`
    /// touches, with the oldest first. At most a week is read, hour by hour.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn series(&self, of: UsageOf<'_>, last: Duration) -> Result<Vec<MinuteUsage>, UsageError> {
        let key = match of {
            UsageOf::Policy(_) => String::new(),
            UsageOf::Key(key) => self.log.name(key),
        };
        let mut series = Vec::new();
        let mut minutes = self.read(last);
        while let Some((minute, pages)) = minutes.next().await? {
            let start = Timestamp::from_micros(minute * 60_000_000);
            let mut of_minute = MinuteUsage { start, allowed: 0, denied: 0 };
            for page in pages {
                let (allowed, denied) = match of {
                    UsageOf::Policy(name) => page.of_policy(name),
                    UsageOf::Key(_) => page.of_key(&key),
                };
                of_minute.allowed = of_minute.allowed.saturating_add(allowed);
                of_minute.denied = of_minute.denied.saturating_add(denied);
            }
            series.push(of_minute);
        }
        Ok(series)
    }

    async fn top(&self, n: usize, last: Duration, is_allowed: bool) -> Result<Vec<KeyUsage>, UsageError> {
        let mut merged: HashMap<(String, String), Merged> = HashMap::new();
        let (mut floors, mut number) = (Sampled::default(), 0);
        let mut minutes = self.read(last);
        while let Some((_, pages)) = minutes.next().await? {
            for page in pages {
                number += 1;
                let Page { one_in, policies, .. } = page;
                let (keys, floor) = if is_allowed {
                    (page.allowed, page.allowed_floor)
                } else {
                    (page.denied, page.denied_floor)
                };
                floors.add(floor, one_in);
                for listed in keys {
                    let policy = policies.get(listed.policy).filter(|policy| !policy.name.is_empty());
                    let Some(policy) = policy else { continue };
                    let of = merged.entry((policy.name.clone(), listed.key)).or_default();
                    of.counted.add(listed.count, one_in);
                    of.error = of.error.saturating_add(listed.error);
                    // A foreign page may list a key twice.
                    if of.last_page != number {
                        of.last_page = number;
                        of.floors.add(floor, one_in);
                    }
                }
            }
        }
        let mut top: Vec<KeyUsage> = merged
            .into_iter()
            .map(|((policy, key), Merged { counted, error, floors: listed, .. })| {
                // What pages that do not list it may have of it.
                let most = Sampled {
                    count: counted.count.saturating_add(floors.count.saturating_sub(listed.count)),
                    variance: counted
                        .variance
                        .saturating_add(floors.variance.saturating_sub(listed.variance)),
                };
                KeyUsage {
                    policy,
                    key,
                    count: counted.count,
                    at_least: counted.count.saturating_sub(error.saturating_add(counted.noise())),
                    at_most: most.count.saturating_add(most.noise()),
                }
            })
            .collect();
        top.sort_unstable_by(|a, b| {
            (Reverse(a.count), &a.policy, &a.key).cmp(&(Reverse(b.count), &b.policy, &b.key))
        });
        top.truncate(n);
        Ok(top)
    }

    fn read(&self, last: Duration) -> Reading<'_, L> {
        let now = book::minute(&self.clock);
        let minutes = last.as_secs().div_ceil(60).clamp(1, MOST_MINUTES);
        Reading { log: &self.log, minutes: now.saturating_sub(minutes - 1)..=now, asked: VecDeque::new() }
    }
}

/// The texts of the pages of a minute, as a log answers.
type Pages = JoinHandle<Result<Vec<String>, UsageError>>;

/// The pages of some minutes, in their order.
struct Reading<'a, L> {
    log: &'a L,
    /// Minutes that were not asked for yet.
    minutes: RangeInclusive<u64>,
    asked: VecDeque<(u64, Pages)>,
}

impl<L: UsageLog> Reading<'_, L> {
    /// The next minute and its pages. Asks for the minutes of an hour at once, so that a question
    /// about a week takes 168 round trips.
    async fn next(&mut self) -> Result<Option<(u64, impl Iterator<Item = Page> + use<L>)>, UsageError> {
        if self.asked.is_empty() {
            self.asked.extend(self.minutes.by_ref().take(60).map(|minute| {
                let log = self.log.clone();
                (minute, tokio::spawn(async move { log.read(minute).await }))
            }));
        }
        let Some((minute, pages)) = self.asked.pop_front() else { return Ok(None) };
        let stopped =
            |error: JoinError| UsageError::Store { kind: ErrorKind::Unavailable, message: error.to_string() };
        let pages = pages.await.map_err(stopped)??;
        Ok(Some((minute, pages.into_iter().map(|text| Page::read(&text)))))
    }
}

/// A key in several pages.
#[derive(Default)]
struct Merged {
    counted: Sampled,
    error: u64,
    /// The floors of the pages that list it.
    floors: Sampled,
    /// The number of the last of these, from 1.
    last_page: u64,
}

/// A sum of counts. Foreign pages do not make it overflow.
#[derive(Clone, Copy, Default)]
struct Sampled {
    count: u64,
    /// Of the count, if not each decision was counted.
    variance: u64,
}

impl Sampled {
    fn add(&mut self, count: u64, one_in: u32) {
        let variance = count.saturating_mul(one_in.saturating_sub(1).into());
        self.count = self.count.saturating_add(count);
        self.variance = self.variance.saturating_add(variance);
    }

    /// Five standard deviations.
    fn noise(self) -> u64 {
        5 * self.variance.isqrt()
    }
}

impl Page {
    fn of_policy(&self, name: &str) -> (u64, u64) {
        let known = self.policies.iter().find(|known| known.name == name);
        known.map_or((0, 0), |known| (known.allowed, known.denied))
    }

    fn of_key(&self, key: &str) -> (u64, u64) {
        let [allowed, denied] = [&self.allowed, &self.denied]
            .map(|keys| keys.iter().filter(|listed| listed.key == key).map(|listed| listed.count).sum());
        (allowed, denied)
    }
}
