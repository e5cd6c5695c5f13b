//! Shards, each behind a lock of its own, which keys are spread over by their digests.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Clock, Key, Policy, Timestamp};

use super::Table;
use super::digest::{Digest, KeyHash, SHARD_BITS, Secret};

/// A table of keys in several shards.
pub(crate) struct Sharded<V> {
    shards: Box<[Shard<V>]>,
    secret: Secret,
    clock: Clock,
}

/// Enough for 500,000,000 keys in shards of the usual size. Shards of more keys grow in longer
/// steps.
const MOST_SHARDS: usize = 1 << SHARD_BITS;

/// Has cache lines of its own, so that threads in different shards do not slow each other down.
#[repr(align(128))]
struct Shard<V>(Mutex<Table<V>>);

impl<V> Sharded<V> {
    /// Shards for `max_keys` keys together.
    pub(crate) fn new(max_keys: usize, clock: Clock) -> Sharded<V> {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        // Several shards for each core keep threads apart. Small shards grow in little steps: with
        // 10,000,000 keys in 16 of them, the longest stall was 134 ms instead of 8 (bench stalls).
        // But shards that are too small fill unevenly, and each takes 128 bytes at once.
        let shards = (cores * 8).max(max_keys / 8_192).min(max_keys / 512).clamp(1, MOST_SHARDS);
        let shards = shards.next_power_of_two();
        let cap = |n| max_keys / shards + usize::from(n < max_keys % shards);
        let shards = (0..shards).map(|n| Shard(Mutex::new(Table::new(cap(n))))).collect();
        Sharded { shards, secret: Secret::random(), clock }
    }

    /// Locks one shard after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MutexGuard<'_, Table<V>>> {
        (0..self.shards.len()).map(|shard| self.lock(shard))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Table<V>> {
        lock(&self.shards[shard].0)
    }

    // Without this and `Extras::is_empty`, a request costs 1.2 × (peers, allowed, hot, no fields).
    #[inline(always)]
    pub(crate) fn digest(&self, policy: &Policy, key: &Key) -> Digest {
        self.secret.digest(policy.numbers().scope_hash(), key.as_encoded())
    }

    /// The hash of a key, from which its digests under several policies follow.
    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> KeyHash {
        self.secret.hash(key.as_encoded())
    }

    /// The digest of a key under anything with this hash.
    pub(crate) fn digest_under(&self, hash: u64, key: &Key) -> Digest {
        self.secret.digest(hash, key.as_encoded())
    }

    /// The digest of what all keys of a policy share.
    pub(crate) fn digest_of_all(&self, policy: &Policy) -> Digest {
        self.secret.digest(policy.numbers().scope_hash(), b"")
    }

    #[inline]
    pub(crate) fn shard_of(&self, digest: &Digest) -> usize {
        digest.shard() & (self.shards.len() - 1)
    }

    /// Locks the table of a key. Returns the time too, which never goes back for one table: exact
    /// windows and the debts of buckets depend on that.
    #[inline(always)]
    pub(crate) fn enter(&self, policy: &Policy, key: &Key) -> (MutexGuard<'_, Table<V>>, Digest, Timestamp) {
        // Read before the lock, so that the table may have seen a later time.
        let early = self.clock.now();
        let digest = self.digest(policy, key);
        let (table, now) = self.enter_from(&digest, early);
        (table, digest, now)
    }

    /// [`Sharded::enter`] for a digest.
    #[inline(always)]
    pub(crate) fn enter_at(&self, digest: &Digest) -> (MutexGuard<'_, Table<V>>, Timestamp) {
        self.enter_from(digest, self.clock.now())
    }

    #[inline(always)]
    fn enter_from(&self, digest: &Digest, early: Timestamp) -> (MutexGuard<'_, Table<V>>, Timestamp) {
        let mut table = self.lock(self.shard_of(digest));
        // A test may set a manual clock back.
        let now = if self.clock.only_moves_forward() { table.not_before(early) } else { self.clock.now() };
        (table, now)
    }
}

/// Ignores poison: no code panics under the lock, and the state would stay valid.
pub(crate) fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<V> fmt::Debug for Sharded<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}
