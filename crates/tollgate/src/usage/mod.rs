//! Who uses how much: the keys that are allowed and denied most often, a time series, and for
//! chosen policies the last use and the total of every key.
//!
//! Counts of all policies are [cheap and bounded](#how-exact-it-is), described first. The last use
//! and the total are [exact](#exactly-for-chosen-policies).
//!
//! [`count_usage`](UsageExt::count_usage) wraps a store and counts its decisions by key and policy,
//! in bounded memory. A task writes the counts to a log every 10 seconds: to a store in Redis,
//! which all processes share, or to a [`MemoryLog`]. [`Usage`] asks that log. Nothing of this
//! changes a decision.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::extract::header;
//! use tollgate::usage::{MemoryLog, Recording, Usage, UsageExt, UsageOf};
//! use tollgate::{Key, Limiter, MemoryStore, Policy, PolicyExt, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // With Redis: `Usage::new(redis_store.clone())`.
//! let usage = Usage::new(MemoryLog::new());
//! let recorder = usage.record(Recording::default());
//! // Last, after leases, caches and the failure policy.
//! let store = MemoryStore::new().count_usage(&recorder);
//!
//! let limiter = Limiter::new([Policy::new("mails", Quota::per_day(2)).by(header("x-user"))]).store(store);
//! for (user, mails) in [("ada", 2), ("bob", 1), ("eve", 7)] {
//!     for _ in 0..mails {
//!         let _ = limiter.check_key(&Key::from(user), 1).await;
//!     }
//! }
//! // A task does this every 10 seconds.
//! recorder.flush().await?;
//!
//! let hour = Duration::from_secs(3_600);
//! let denied = usage.top_denied(10, hour).await?;
//! assert_eq!((denied.len(), &*denied[0].policy, &*denied[0].key, denied[0].count), (1, "mails", "=eve", 5));
//! let allowed = usage.top_allowed(2, hour).await?;
//! assert_eq!(allowed.iter().map(|of| (&*of.key, of.count)).collect::<Vec<_>>(), [("=ada", 2), ("=eve", 2)]);
//! let minutes = usage.series(UsageOf::Policy("mails"), hour).await?;
//! assert_eq!((minutes.len(), minutes.iter().map(|minute| minute.allowed).sum::<u64>()), (60, 5));
//! # Ok(())
//! # }
//! ```
//!
//! # What is counted
//!
//! A decision counts as one, whatever it costs. A request that is allowed counts for each of its
//! rules. A request that is denied counts for the rules that refused it. Looks and costs of 0 do
//! not count, and neither do requests that a failure policy refuses.
//!
//! A process that counted more than 10,000 decisions in a minute goes on with one in 16 of them, at
//! random, and each stands for 16: see [`Recording::one_in`].
//!
//! # How exact it is
//!
//! Let *N* be the decisions of one process in one minute, allowed or denied, and *K* the keys that
//! it watches: ten times the [keys that it stores](Recording::keys), 1,000 by default.
//!
//! - **A count is at most *N* / *K* too high**, and not too low (Space-Saving, Metwally et al.
//!   2005). The sum over several minutes and processes has the sum of their errors.
//! - **A key that a page does not list was counted at most *N* / 100 times** with the default of
//!   100 stored keys, since each of those has at least as many.
//! - **Sampling adds five standard deviations**: 5 × √(15 × count), if each minute was sampled. The
//!   upper bound adds to the count what the pages that do not list the key may have of it.
//!
//! [`KeyUsage::at_least`] and [`KeyUsage::at_most`] contain these errors, as far as they occurred.
//! Most are zero if fewer than 1,000 keys are active in a minute.
//!
//! # What it costs
//!
//! - **Time**: a random number for each decision, and about a tenth of a microsecond for each that
//!   is counted.
//! - **Memory**: 1,000 keys of each outcome, for each of the up to 11 minutes that wait for a log.
//!   Of a key above 128 bytes only the name in the log is kept, so a minute takes at most 0.6 MB.
//! - **In the log**: a process has at most 200 keys for each minute and each policy one line, about
//!   10 kB in all and at most 40 kB, for an hour. **Invented keys cannot add to that.**
//! - **Calls**: one every 10 seconds for each process that decides. If the log fails, the counts go
//!   with the next call, for up to 10 minutes. A process that is killed loses what it counted since
//!   the last one.
//! - **Work under a lock** does not depend on the length of a key. A key above 128 bytes is named
//!   before, by the caller that sent it, once for all rules. Under the lock at most 128 bytes of a
//!   key are hashed and copied. A flush names keys without the lock.
//!
//! # Exactly, for chosen policies
//!
//! For a policy with [`track_usage`](crate::Policy::track_usage) the store keeps the last use and
//! the total of every key, in the step that decides. [`Totals`] asks the store for the oldest keys,
//! the newest, and those with the highest totals, page by page:
//!
//! ```
//! use tollgate::extract::header;
//! use tollgate::usage::Totals;
//! use tollgate::{Key, Limiter, MemoryStore, Policy, PolicyExt, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let api = Policy::new("api", Quota::per_day(5_000)).track_usage();
//! let limiter = Limiter::new([api.by(header("x-user"))]).store(store.clone());
//! for (user, units) in [("ada", 2), ("bob", 9), ("eve", 5), ("ada", 1)] {
//!     let _ = limiter.check_key(&Key::from(user), units).await?;
//! }
//!
//! // With Redis: `Totals::new(redis_store.clone())`.
//! let totals = Totals::new(store);
//! let page = totals.by_total("api", 2, None).await?;
//! assert_eq!(page.iter().map(|of| (&*of.key, of.total)).collect::<Vec<_>>(), [("=bob", 9), ("=eve", 5)]);
//! let next = totals.by_total("api", 2, page.last()).await?;
//! assert_eq!((next.len(), &*next[0].key, next[0].total), (1, "=ada", 3));
//! # Ok(())
//! # }
//! ```
//!
//! - **What is recorded**: units that the store granted. Refunds lower the total, and a reset does
//!   not. See [`UsageTotals`].
//! - **By the name of the policy**: all tiers of a rule add to one total, and so does the policy
//!   after a change of its quota.
//! - **Leases**: such a policy is not [leased](crate::ScaleExt::leased), so that the store sees
//!   each use.
//! - **Outages**: what a fallback decides is recorded in the store of the fallback. What
//!   `fail_open` lets pass is not recorded.
//! - **Bounds**: a key is forgotten 30 days after its last use, which both stores can change. In
//!   memory there are at most 100,000 such keys
//!   ([`max_tracked_keys`](crate::memory::MemoryStoreBuilder::max_tracked_keys)). In Redis only
//!   time bounds them: track a policy whose keys no caller can invent, or add a rule by address.
//! - **Prices**: about 0.3 microseconds for each decision in memory. The docs of `tollgate-redis`
//!   have those in Redis.
//! - **Clusters**: a request whose keys are in several slots can lose a race and be refused. Its
//!   units are given back, and its keys keep the last use.
//!
//! # What is stored
//!
//! Keys are named as the store names them: readable, or by a digest if the store has a secret or if
//! the text is longer than 128 bytes. To ask for a key, pass the [`Key`](crate::Key):
//! [`UsageOf::Key`] finds its name.

// From top to bottom; imports run down this list only: totals, recorded, query, merge, recorder,
// book, page, memory_log, settings, sample, space_saving.
mod book;
mod memory_log;
mod merge;
mod page;
mod query;
mod recorded;
mod recorder;
mod sample;
mod settings;
mod space_saving;
mod totals;

pub use memory_log::MemoryLog;
pub use query::{KeyUsage, MinuteUsage, Usage, UsageOf};
pub use recorded::{Counting, Recorded, UsageExt};
pub use recorder::Recorder;
pub use settings::Recording;
pub use tollgate_core::{KeyTotal, UsageLog, UsageTotals};
pub use totals::Totals;
