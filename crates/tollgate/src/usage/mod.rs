//! Who uses how much. Three features, each of its own:
//!
//! | feature | answers | from |
//! |---|---|---|
//! | [recent](RecentUsage) | what a key used in the last seconds, exactly or to a sub-window | a sliding log or ring, which a store has anyway |
//! | [totals](Totals) | the last use and the total of every key, exactly, for chosen policies | a store, which counts them in the step that decides |
//! | `top_keys` | the keys that are allowed and denied most often, and a time series, within bounds | samples of all processes (feature `top-keys`) |
//!
//! # Recent
//!
//! ```
//! use std::time::Duration;
//! use tollgate::usage::RecentUsage;
//! use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let time = ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000));
//! let store = MemoryStore::builder().clock(&time).build();
//! let logins = Policy::new("logins", Quota::per_hour(10)).with_algorithm(Algorithm::SLIDING_LOG);
//! let limiter = Limiter::new([logins.clone()]).store(store.clone());
//! let user = Key::from("ada");
//! for _ in 0..3 {
//!     let _ = limiter.check(&user, 1).await?;
//!     time.advance(Duration::from_secs(10));
//! }
//! assert_eq!(store.recent_usage(&logins, &user, Duration::from_secs(25)).await?, 2);
//!
//! let mails = Policy::new("mails", Quota::per_day(100));
//! let error = store.recent_usage(&mails, &user, Duration::from_secs(25)).await.unwrap_err();
//! assert_eq!(error.to_string(), "gcra stores no times of requests: use sliding-buckets or sliding-log");
//! # Ok(())
//! # }
//! ```
//!
//! Ask the store itself, a clone without its wrappers: a failure policy has no count to fall back
//! to. The tiers of a rule that have windows of their own have states of their own:
//! [`RequestLimiter::policies`](crate::RequestLimiter::policies) lists the policies to sum.
//!
//! # Totals
//!
//! For a policy with [`track_usage`](crate::Policy::track_usage) the store keeps the last use and
//! the total of every key, in the step that decides. [`Totals`] asks the store for the oldest keys,
//! the newest, and those with the highest totals, page by page:
//!
//! ```
//! use tollgate::usage::Totals;
//! use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let api = Policy::new("api", Quota::per_day(5_000)).track_usage();
//! let limiter = Limiter::new([api]).store(store.clone());
//! for (user, units) in [("ada", 2), ("bob", 9), ("eve", 5), ("ada", 1)] {
//!     let _ = limiter.check(&Key::from(user), units).await?;
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
//! - **Leases**: such a policy is not [leased](crate::StoreExt::leased), so that the store sees
//!   each use.
//! - **Outages**: what a fallback decides is recorded in the store of the fallback. What
//!   `fail_open` lets pass is not recorded.
//! - **Bounds**: a key is forgotten 30 days after its last use, which both stores can change. In
//!   memory there are at most 100,000 such keys
//!   ([`max_tracked_keys`](crate::memory::MemoryStoreBuilder::max_tracked_keys)). In Redis only
//!   time bounds them: track a policy whose keys no caller can invent, or add a rule by address.
//! - **Prices**: about 0.3 microseconds for each decision in memory. The docs of `tollgate-redis`
//!   have those in Redis.
//! - **Clusters**: a request whose keys are in several hash slots can lose a race and be refused.
//!   Its units are given back, and its keys keep the last use.

#[cfg(feature = "top-keys")]
#[cfg_attr(docsrs, doc(cfg(feature = "top-keys")))]
pub mod top_keys;
mod totals;

pub use tollgate_core::{KeyTotal, RecentUsage, UsageError, UsageTotals};
pub use totals::Totals;
