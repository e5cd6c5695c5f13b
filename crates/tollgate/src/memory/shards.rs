//! The tables of a memory store, and the entries that keys without room share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tollgate_core::algorithm::State;
use tollgate_core::{Algorithm, Clock, Policy, Timestamp};

use super::totals::TotalsTable;
use crate::table::Table;
use crate::table::sharded::{Sharded, lock};

pub(super) struct Shards {
    max_keys: usize,
    pub(super) tables: Sharded<State>,
    /// One entry for each policy, for new keys without room. Always locked last.
    overflow: Mutex<Table<State>>,
    /// Decisions by an overflow entry.
    overflows: AtomicU64,
    /// Blocks that found no room.
    dropped_blocks: AtomicU64,
    pub(super) totals: TotalsTable,
    /// Those of rules in shadow, once there is one: they push out no others.
    in_shadow: OnceLock<Arc<Shards>>,
}

impl Shards {
    pub(super) fn new(max_keys: usize, clock: Clock, totals: TotalsTable) -> Shards {
        Shards {
            max_keys,
            tables: Sharded::new(max_keys, clock),
            overflow: Mutex::new(Table::new(usize::MAX)),
            overflows: AtomicU64::new(0),
            dropped_blocks: AtomicU64::new(0),
            totals,
            in_shadow: OnceLock::new(),
        }
    }

    /// As many keys of their own for rules in shadow.
    pub(super) fn in_shadow(&self) -> Arc<Shards> {
        let new = || {
            Arc::new(Shards::new(self.max_keys, self.tables.clock().clone(), self.totals.another_as_large()))
        };
        Arc::clone(self.in_shadow.get_or_init(new))
    }

    /// The time by which a policy decides, when the clock shows `now`: that of the wall clock for
    /// windows of a calendar, so that they follow its steps.
    #[inline]
    pub(super) fn time_for(&self, policy: &Policy, now: Timestamp) -> Timestamp {
        match policy.algorithm() {
            Algorithm::CalendarWindow { .. } => self.tables.clock().on_the_wall(now),
            _ => now,
        }
    }

    pub(super) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    pub(super) fn dropped_blocks(&self) -> u64 {
        self.dropped_blocks.load(Ordering::Relaxed)
    }

    pub(super) fn lock_overflow(&self) -> MutexGuard<'_, Table<State>> {
        lock(&self.overflow)
    }

    #[cold]
    pub(super) fn count_overflows(&self, count: u64) {
        let _is_first = add(&self.overflows, count);
        #[cfg(feature = "tracing")]
        if _is_first {
            tracing::warn!(
                code = %tollgate_core::LogCode::MemoryFull,
                "the memory store is full of keys that were denied: new keys share one quota for each policy until some \
                 are reset (see `MemoryStore::overflows`)"
            );
        }
    }

    #[cold]
    pub(super) fn count_dropped_blocks(&self, count: u64) {
        let _is_first = add(&self.dropped_blocks, count);
        #[cfg(feature = "tracing")]
        if _is_first {
            tracing::warn!(
                code = %tollgate_core::LogCode::BlockDropped,
                "the memory store is full of keys that were denied: blocks that find no room are dropped (see \
                 `MemoryStore::dropped_blocks`)"
            );
        }
    }
}

/// Returns whether these are the first.
fn add(counter: &AtomicU64, count: u64) -> bool {
    counter.fetch_add(count, Ordering::Relaxed) == 0 && count > 0
}
