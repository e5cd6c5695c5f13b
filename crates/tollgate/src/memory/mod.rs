//! The embedded store: all keys in this process's memory, up to a cap.
//!
//! # What it costs
//! At the cap a key takes 60 bytes if the state of its algorithm is 20 bytes or less (see
//! [`tollgate_core::algorithm`]). Sub-windows and logs have additional memory of their own: about 8
//! bytes for each bucket, and 16 to 32 for each request in a log. Memory grows with the keys in
//! use. Requests free idle keys, a few at a time: there is no thread and no task to spawn. Only
//! for windows of a [calendar](crate::Algorithm::CalendarWindow), a thread of the process reads the
//! wall clock once a second, so that they follow its steps.
//!
//! The usage of policies that [track it](Policy::track_usage) is in a table with a [cap of its
//! own](MemoryStoreBuilder::max_tracked_keys).
//!
//! # What happens at the cap
//! A new key takes the place of another one, in this order:
//!
//! 1. a key that is idle: its quota is full again;
//! 2. a key that was not denied and has no debt: of those looked at, the one nearest to its reset.
//!
//! A key that was denied stays until its reset. An attacker cannot regain a refused quota by
//! inventing keys. A caller that stops just before its denial can be evicted, and then starts with
//! a full quota: choose a cap well above the number of callers of a busy day.
//!
//! A search for a place looks at 64 of them, from where the last search ended. So a new key may
//! find no room although another part of the table has some.
//!
//! # What a flood costs new users
//! If every place is taken by a denied key, a new key has no entry of its own. It is counted in the
//! overflow entry, and all such keys of a policy share that entry and **one quota**. [Not
//! everything is shared](self#what-is-never-shared). An attacker who gets as many keys denied as
//! the cap holds therefore has these effects, until the resets of its keys make room:
//!
//! - **Users without an entry share one quota**, and the attacker can use it up. They are then
//!   denied, though they did nothing.
//! - Users with an entry that was denied keep it. Users with an entry that was not denied can lose
//!   it to the flood, and share from then on.
//! - Memory stays at the cap, and no denied caller regains a quota.
//! - Keys that are to be blocked, and have no entry yet, are not: see below.
//!
//! The alternative, new quotas for new keys, would lift the limit for the attacker. Three measures
//! make a flood harder:
//!
//! - **Count by what an attacker cannot invent**: the authenticated user, or the address
//!   ([`extract`](crate::extract)).
//! - **Add a rule by address to the layer.** A request that it denies adds no key.
//! - **Raise the cap**: a million keys take 60 MB.
//!
//! Watch these counters; while they are 0, every key has an entry of its own for as long as it
//! needs one:
//!
//! - [`MemoryStore::evictions`] counts keys that lost their entry before their reset.
//! - [`MemoryStore::overflows`] counts decisions by an overflow entry. The first one is a warning
//!   in the log, once for each store (feature `tracing`).
//! - [`MemoryStore::dropped_blocks`] counts blocks that found no room, with the same warning.
//!
//! ```
//! use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = MemoryStore::builder().max_keys(2).build();
//! let limiter = Limiter::new([Policy::new("daily", Quota::per_day(1))]).store(store.clone());
//! for invented in ["a", "b"] {
//!     assert!(limiter.check(&Key::from(invented), 1).await.is_ok());
//!     assert!(limiter.check(&Key::from(invented), 1).await.is_err());
//! }
//! // The table is full of denied keys: new users share one quota.
//! assert!(limiter.check(&Key::from("ada"), 1).await.is_ok());
//! assert!(limiter.check(&Key::from("bob"), 1).await.is_err());
//! assert_eq!((store.keys(), store.overflows()), (2, 2));
//! # }
//! ```
//!
//! # What is never shared
//! An overflow entry holds usage within the quota, and nothing else. What a key is allowed because
//! it has no entry stays its own:
//!
//! | what finds no room | becomes of it |
//! |---|---|
//! | a [block](Policy::block_after) | it is dropped, counted, and shown to observers as [`BlockDropped`](crate::Outcome::BlockDropped) |
//! | [debt](crate::store::Settled::debt) | it is [forgiven](crate::store::Settled::forgiven), also to observers. What fits into the shared quota is charged to it |
//! | a [slot](crate::Slot) | it gets an entry beyond the cap. Each is of a request that runs, which takes more memory |
//! | usage that is [tracked](Policy::track_usage) | it takes the place of another key's, in its own table |
//!
//! The first two look for room as any new key does. Once a key has an entry with a block, debt or a
//! slot, no other key takes its place before the end of these. A key without a block takes no room
//! to be asked about it.
//!
//! # What a long key costs
//! Its caller hashes it, before any lock. The tables hold 128 bits of each key, so what follows
//! costs the same for each. A tracked key of more than 128 bytes is named by its digest.
//!
//! # What a restart forgets
//! Everything: a quota of a day starts again with each deployment. If that matters, keep it in
//! [Redis](https://docs.rs/tollgate-redis).

// From top to bottom; imports run down this list only: set, entry, shards, totals.
mod entry;
mod set;
mod shards;
mod totals;

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::algorithm::State;
use tollgate_core::{
    Check, Clock, End, Grant, Key, KeyTotal, Policy, RecentUsage, Reply, Store, Times, Timestamp, UsageError,
    UsageTotals, Verdict,
};

use entry::grants;
use shards::Shards;
use totals::TotalsTable;

use crate::table::TableEntry;

/// The embedded [`Store`]: exact, bounded, and never failing. See the [module docs](self).
///
/// Clones share their state. The default holds up to 1,000,000 keys, which take up to 60 MB if that
/// many callers are active at a time.
///
/// ```
/// use tollgate::memory::MemoryStore;
///
/// let store = MemoryStore::builder().max_keys(50_000).build();
/// assert_eq!(store.keys(), 0);
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Shards>);

/// Builds a [`MemoryStore`]: see [`MemoryStore::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_tracked_keys: usize,
    usage_life: Duration,
    clock: Clock,
}

impl MemoryStoreBuilder {
    /// Sets the most keys held at a time, over all policies, at least 1. The default is 1,000,000.
    ///
    /// Keys are spread at random over parts of 256 keys or more. All policies of a key are in one
    /// part. A full part evicts keys even if other parts have room, which happens if the parts are
    /// small.
    pub fn max_keys(mut self, max_keys: usize) -> MemoryStoreBuilder {
        self.max_keys = max_keys.max(1);
        self
    }

    /// Sets of how many keys the usage is held at a time, for policies that [track
    /// usage](Policy::track_usage), at least 1. The default is 100,000. Of eight neighbours, a new
    /// key takes the place of the one that was not used for the longest time.
    ///
    /// Each takes about 100 bytes, and the texts of the policy's name and the key, of at most 128
    /// bytes each.
    pub fn max_tracked_keys(mut self, max_keys: usize) -> MemoryStoreBuilder {
        self.max_tracked_keys = max_keys.max(1);
        self
    }

    /// Sets how long the usage of a key is kept after its last use, for policies that [track
    /// usage](Policy::track_usage). The default is 30 days.
    pub fn keep_usage_for(mut self, time: Duration) -> MemoryStoreBuilder {
        self.usage_life = time;
        self
    }

    /// Sets the clock. A [`ManualClock`](crate::ManualClock) makes tests of limits instant and
    /// exact.
    pub fn clock(mut self, clock: impl Into<Clock>) -> MemoryStoreBuilder {
        self.clock = clock.into();
        self
    }

    /// Builds the store.
    pub fn build(self) -> MemoryStore {
        let totals = TotalsTable::new(self.max_tracked_keys, self.usage_life, self.clock.clone());
        MemoryStore(Arc::new(Shards::new(self.max_keys, self.clock, totals)))
    }
}

impl MemoryStore {
    /// Returns a store for up to 1,000,000 keys.
    pub fn new() -> MemoryStore {
        MemoryStore::builder().build()
    }

    /// Builds a store with another cap or another clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            max_keys: 1_000_000,
            max_tracked_keys: 100_000,
            usage_life: Duration::from_secs(30 * 24 * 3_600),
            clock: Clock::system(),
        }
    }

    /// Returns how many keys are held now, including idle ones that were not swept yet.
    pub fn keys(&self) -> usize {
        self.0.tables.iter().map(|table| table.len()).sum()
    }

    /// Returns how many keys lost their entry to others before their reset, since the store was
    /// made. Their callers started again with a full quota. If this grows, the cap is too low for a
    /// busy day, or a caller invents keys.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let store = MemoryStore::builder().max_keys(2).build();
    /// let limiter = Limiter::new([Policy::new("daily", Quota::per_day(100))]).store(store.clone());
    /// for user in ["ada", "bob", "eve"] {
    ///     let _ = limiter.check(&Key::from(user), 1).await;
    /// }
    /// assert_eq!((store.keys(), store.evictions()), (2, 1));
    /// # }
    /// ```
    pub fn evictions(&self) -> u64 {
        self.0.tables.iter().map(|table| table.evicted).sum()
    }

    /// Returns how often a key was decided by the overflow entry of its policy, since the store was
    /// made, because denied keys held all places. Only an attack makes this grow: see [what it
    /// costs new users](self#what-a-flood-costs-new-users).
    pub fn overflows(&self) -> u64 {
        self.0.overflows()
    }

    /// Returns how many [blocks](Policy::block_after) were dropped since the store was made,
    /// because denied keys held all places. Quotas still refuse their keys: see [what is never
    /// shared](self#what-is-never-shared).
    pub fn dropped_blocks(&self) -> u64 {
        self.0.dropped_blocks()
    }

    /// Decides a set, and records it for policies that track usage.
    fn decide(&self, set: &[Check<'_>], times: Times) -> Verdict {
        let verdict = set::decide(&self.0, set, times);
        if verdict.is_granted() && set.iter().any(|check| check.policy.numbers().tracks_usage()) {
            self.0.totals.record(set, verdict.times());
        }
        verdict
    }

    /// Decides one check of a key that has an entry, without the steps for several checks. With
    /// those, a request costs 1.2 × with fields and 1.4 × without (instructions).
    #[inline]
    fn decide_one(
        &self,
        entry: &mut TableEntry<State>,
        check: &Check<'_>,
        times: Times,
        now: Timestamp,
    ) -> Verdict {
        let (policy, cost) = (check.policy, check.cost);
        let at = self.0.time_for(policy, now);
        let look = entry.value.look(policy, at);
        let granted = grants(policy, look, cost, times.max());
        if granted == 0 || granted < times.min() {
            let status = entry.refuse(policy, now, at, look, cost, times);
            return Verdict::of_one(0, Duration::ZERO, status).at(now);
        }
        let charge = entry.charge(policy, now, at, look, cost * u64::from(granted));
        Verdict::of_one(granted, charge.delay, charge.status).at(now)
    }
}

impl Store for MemoryStore {
    type Error = Infallible;
    type Acquire = Ready<Result<Verdict, Infallible>>;

    // Inlined, so that a wrapper need not move the verdict: see the `layer` bench, with usage.
    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        if let [check] = set
            && !check.policy.numbers().tracks_usage()
        {
            let (mut table, digest, now) = self.0.tables.enter(check.policy, check.key);
            table.sweep(now);
            if let Some(at) = table.find(&digest) {
                return Reply::Now(Ok(self.decide_one(table.entry(at), check, times, now)));
            }
        }
        Reply::Now(Ok(self.decide(set, times)))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        for grant in grants {
            let policy = grant.policy;
            let (mut table, digest, now) = self.0.tables.enter(policy, grant.key);
            if let Some(found) = table.find(&digest) {
                let at = self.0.time_for(policy, now);
                let is_unused = table.entry(found).refund(policy, now, at, grant.units, grant.stamp);
                if policy.is_in_flight() && is_unused {
                    table.remove(found);
                }
            }
        }
        self.0.totals.refund(grants);
        ready(Ok(()))
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        for policy in policies {
            let digest = self.0.tables.digest(policy, key);
            let mut table = self.0.tables.lock(self.0.tables.shard_of(&digest));
            if let Some(at) = table.find(&digest) {
                table.remove(at);
            }
        }
        ready(Ok(()))
    }

    /// The tables of rules in shadow, which hold as many keys. All handles of a store return the
    /// same.
    fn in_shadow(&self) -> MemoryStore {
        MemoryStore(self.0.in_shadow())
    }
}

impl RecentUsage for MemoryStore {
    async fn recent_usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        let (mut table, digest, now) = self.0.tables.enter(policy, key);
        match table.find(&digest) {
            Some(at) => table.entry(at).value.usage(policy, now, interval),
            None => State::new(policy).usage(policy, now, interval),
        }
    }
}

impl UsageTotals for MemoryStore {
    async fn total_of(&self, policy: &str, key: &Key) -> Result<Option<KeyTotal>, UsageError> {
        Ok(self.0.totals.of(policy, key))
    }

    async fn scan_totals(&self, policy: &str, each: impl FnMut(KeyTotal) + Send) -> Result<(), UsageError> {
        self.0.totals.scan(policy, each);
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", self.0.tables.clock()).finish_non_exhaustive()
    }
}
