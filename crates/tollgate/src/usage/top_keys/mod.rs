//! The keys that are allowed and denied most often, and a time series (feature `top-keys`).
//!
//! [`count_usage`](crate::StoreExt::count_usage) wraps a store and counts its decisions by key and
//! policy, in bounded memory. A task writes the counts to a log every 10 seconds: to a store in
//! Redis, which all processes share, or to a [`MemoryLog`]. [`TopKeys`] asks that log. Nothing of
//! this changes a decision.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::usage::top_keys::{MemoryLog, Recording, TopKeys, UsageOf};
//! use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, StoreExt};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // With Redis: `TopKeys::new(redis_store.clone())`.
//! let top_keys = TopKeys::new(MemoryLog::new());
//! let recorder = top_keys.record(Recording::default());
//! // Last, after leases, caches and the failure policy.
//! let store = MemoryStore::new().count_usage(&recorder);
//!
//! let limiter = Limiter::new([Policy::new("mails", Quota::per_day(2))]).store(store);
//! for (user, mails) in [("ada", 2), ("bob", 1), ("eve", 7)] {
//!     for _ in 0..mails {
//!         let _ = limiter.check(&Key::from(user), 1).await;
//!     }
//! }
//! // A task does this every 10 seconds.
//! recorder.flush().await?;
//!
//! let hour = Duration::from_secs(3_600);
//! let denied = top_keys.top_denied(10, hour).await?;
//! assert_eq!((denied.len(), &*denied[0].policy, &*denied[0].key, denied[0].count), (1, "mails", "=eve", 5));
//! let allowed = top_keys.top_allowed(2, hour).await?;
//! assert_eq!(allowed.iter().map(|of| (&*of.key, of.count)).collect::<Vec<_>>(), [("=ada", 2), ("=eve", 2)]);
//! let minutes = top_keys.series(UsageOf::Policy("mails"), hour).await?;
//! assert_eq!((minutes.len(), minutes.iter().map(|minute| minute.allowed).sum::<u64>()), (60, 5));
//! # Ok(())
//! # }
//! ```
//!
//! # What is counted
//!
//! A decision counts as one, whatever it costs. A request that is allowed counts for each of its
//! rules. A request that is denied counts for the rules that refused it, and one of a blocked key
//! for the rule that blocks it. Looks and costs of 0 do not count, and neither do requests that a
//! failure policy refuses.
//!
//! A process that counted more than 10,000 decisions in a minute goes on with one in 16 of them, at
//! random, and each stands for 16: see [`Recording::one_in`].
//!
//! # How exact it is
//!
//! Let *N* be the decisions of one process in one minute, allowed or denied, each as often as it
//! has rules with a key, and *K* the keys that it watches: ten times the [keys that it
//! stores](Recording::keys), 1,000 by default.
//!
//! - **A count is at most *N* / *K* too high**, and not too low (Space-Saving, Metwally et al.
//!   2005). The sum over several minutes and processes has the sum of their errors.
//! - **A key that a page does not list was counted at most *N* / 100 times** with the default of
//!   100 stored keys, since each of those has at least as many.
//! - **Sampling adds five standard deviations**: 5 × √(15 × count), if each minute was sampled. The
//!   upper bound is 190 to 380 higher than that: a key that was counted once may have come often.
//!   It also adds what the pages that do not list the key may have of it.
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
//! # What is stored
//!
//! Keys are named as the store names them: readable, or by a digest if the store has a secret or if
//! the text is longer than 128 bytes. To ask for a key, pass the [`Key`](crate::Key):
//! [`UsageOf::Key`] finds its name.

mod book;
mod counter;
mod key_list;
mod key_usage;
mod memory_log;
mod merge;
mod page;
mod query;
mod recorder;
mod sample;
mod settings;
mod space_saving;
#[cfg(test)]
mod strangers;

pub use counter::UsageCounter;
pub use key_usage::KeyUsage;
pub use memory_log::MemoryLog;
pub use query::{MinuteUsage, TopKeys, UsageOf};
pub use recorder::Recorder;
pub use settings::Recording;
pub use tollgate_core::UsageLog;
