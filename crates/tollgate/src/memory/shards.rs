//! The shards of a memory store: tables of keys, each behind a lock of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Clock, Key, Policy, Timestamp};

use super::digest::{Digest, Secret};
use super::table::Table;

pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// One entry for each policy, for new keys without room. Always locked last.
    overflow: Mutex<Table>,
    /// Decisions by an overflow entry.
    overflows: AtomicU64,
    secret: Secret,
    clock: Clock,
}

/// Has cache lines of its own, so that threads in different shards do not slow each other down.
#[repr(align(128))]
struct Shard(Mutex<Table>);

impl Shards {
    pub(super) fn new(max_keys: usize, clock: Clock) -> Shards {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        // Several shards for each core keep threads apart, but a small cap needs large shards to
        // fill evenly.
        let shards = (cores * 8).min(max_keys / 512).max(1).next_power_of_two();
        let cap = |n| max_keys / shards + usize::from(n < max_keys % shards);
        Shards {
            shards: (0..shards).map(|n| Shard(Mutex::new(Table::new(cap(n))))).collect(),
            overflow: Mutex::new(Table::new(usize::MAX)),
            overflows: AtomicU64::new(0),
            secret: Secret::random(),
            clock,
        }
    }

    /// Locks one shard after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = MutexGuard<'_, Table>> {
        (0..self.shards.len()).map(|shard| self.lock(shard))
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Table> {
        lock(&self.shards[shard].0)
    }

    pub(super) fn lock_overflow(&self) -> MutexGuard<'_, Table> {
        lock(&self.overflow)
    }

    // Without this and `Extras::is_empty`, a request costs 1.2 × (peers, allowed, hot, no fields).
    #[inline(always)]
    pub(super) fn digest(&self, policy: &Policy, key: &Key) -> Digest {
        self.secret.digest(policy.scope_hash(), key.as_encoded())
    }

    /// The digest of a policy's overflow entry.
    pub(super) fn overflow_digest(&self, policy: &Policy) -> Digest {
        self.secret.digest(policy.scope_hash(), b"")
    }

    #[inline]
    pub(super) fn shard_of(&self, digest: &Digest) -> usize {
        digest.shard() & (self.shards.len() - 1)
    }

    /// Locks the table of a key. Returns the time too, which never goes back for one table: exact
    /// windows and the debts of buckets depend on that.
    #[inline(always)]
    pub(super) fn enter(&self, policy: &Policy, key: &Key) -> (MutexGuard<'_, Table>, Digest, Timestamp) {
        // Read before the lock, so that the table may have seen a later time.
        let early = self.clock.now();
        let digest = self.digest(policy, key);
        let mut table = self.lock(self.shard_of(&digest));
        // A test may set a manual clock back.
        let now = if self.clock.only_moves_forward() { table.not_before(early) } else { self.clock.now() };
        (table, digest, now)
    }

    #[cold]
    pub(super) fn count_overflows(&self, count: u64) {
        let _before = self.overflows.fetch_add(count, Ordering::Relaxed);
        #[cfg(feature = "tracing")]
        if _before == 0 {
            tracing::warn!(
                "the memory store is full of keys that were denied: new keys share one quota for each policy until some \
                 are reset (see `MemoryStore::overflows`)"
            );
        }
    }
}

/// Ignores poison: no code panics under the lock, and the state would stay valid.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
