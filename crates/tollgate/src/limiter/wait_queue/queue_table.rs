//! The table of queues, behind its lock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::sync::Mutex;
use super::wake_list::WakeList;
use crate::table::digest::Digest;

/// How many callers of a new queue may ask at once. As long as no caller is refused, callers do not
/// wait for each other's round trips.
const FIRST_TURNS: usize = 64;

/// The queues, each of one key of a policy. `T` is what a refusal says.
pub(super) struct QueueTable<T> {
    queues: Mutex<QueueMap<T>>,
    /// The number of queues. Most callers find 0, and need neither a digest nor the lock. Nothing
    /// depends on its order with other changes, so it is not loom's.
    used: AtomicUsize,
}

/// Without keys, so that a caller in a queue takes the same memory whatever its key is.
pub(super) type QueueMap<T> = BTreeMap<Digest, WaitQueue<T>>;

/// The callers that want one key of one policy, by the numbers of their arrivals.
pub(super) struct WaitQueue<T> {
    /// Those that have a turn.
    pub(super) asking: BTreeSet<u64>,
    pub(super) waiting: BTreeMap<u64, Option<Waker>>,
    /// How many may ask at once, at least one.
    pub(super) turns: usize,
    /// The latest refusal, and how long it lasts.
    pub(super) refusal: Option<(Duration, T)>,
}

impl<T> QueueTable<T> {
    pub(super) fn new() -> QueueTable<T> {
        QueueTable { queues: Mutex::new(BTreeMap::new()), used: AtomicUsize::new(0) }
    }

    /// The number of queues.
    pub(super) fn len(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Changes queues under the lock, and then wakes the callers that were given a turn. There is
    /// no other way to the lock, so no caller gets a turn without being woken.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut LockedQueues<'_, T>) -> R) -> R {
        // Dropped after the guard, also if this panics.
        let mut after = AfterLock { woken: WakeList::default(), ended: SmallVec::new() };
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut LockedQueues { queues: &mut queues, after: &mut after });
        self.used.store(queues.len(), Ordering::Relaxed);
        result
    }
}

pub(super) struct LockedQueues<'a, T> {
    pub(super) queues: &'a mut QueueMap<T>,
    after: &'a mut AfterLock<T>,
}

/// What is left to do after the lock: to wake callers, and to drop queues, which may hold much.
struct AfterLock<T> {
    woken: WakeList,
    ended: SmallVec<[WaitQueue<T>; 1]>,
}

impl<T> LockedQueues<'_, T> {
    pub(super) fn queue(&mut self, digest: Digest) -> &mut WaitQueue<T> {
        self.queues.entry(digest).or_insert_with(WaitQueue::new)
    }

    pub(super) fn is_free_for(&self, arrival: u64, digest: Digest) -> bool {
        self.queues.get(&digest).is_none_or(|queue| queue.is_free_for(arrival))
    }

    /// These queues, those first whose refusals last longest.
    pub(super) fn slowest_first(&self, digests: &[Digest]) -> SmallVec<[usize; 4]> {
        let slowness = |at: &usize| {
            let refusal = self.queues.get(&digests[*at]).and_then(|queue| queue.refusal.as_ref());
            // Of two, all callers take the same one first.
            Reverse((refusal.map(|(lasts, _)| *lasts), digests[*at]))
        };
        let mut order: SmallVec<[usize; 4]> = (0..digests.len()).collect();
        order.sort_by_key(slowness);
        order
    }

    /// Waits in a queue, without a turn until it is called.
    pub(super) fn wait(&mut self, arrival: u64, digest: Digest) {
        let queue = self.queue(digest);
        queue.asking.remove(&arrival);
        queue.waiting.insert(arrival, None);
        self.call(digest);
    }

    pub(super) fn leave(&mut self, arrival: u64, digest: Digest) {
        if let Some(queue) = self.queues.get_mut(&digest) {
            queue.asking.remove(&arrival);
            queue.waiting.remove(&arrival);
            self.call(digest);
        }
    }

    /// Gives free turns to those who wait first in a queue, which ends if there are none.
    fn call(&mut self, digest: Digest) {
        let Some(queue) = self.queues.get_mut(&digest) else { return };
        while let Some((first, _)) = queue.waiting.first_key_value()
            && queue.is_free_for(*first)
            && let Some((first, waker)) = queue.waiting.pop_first()
        {
            queue.asking.insert(first);
            waker.into_iter().for_each(|waker| self.after.woken.push(waker));
        }
        if queue.asking.is_empty() {
            self.after.ended.extend(self.queues.remove(&digest));
        }
    }
}

impl<T> WaitQueue<T> {
    fn new() -> WaitQueue<T> {
        WaitQueue { asking: BTreeSet::new(), waiting: BTreeMap::new(), turns: FIRST_TURNS, refusal: None }
    }

    /// Whether a caller may take or keep a turn: it is among the first of the queue.
    fn is_free_for(&self, arrival: u64) -> bool {
        let older_waits = self.waiting.first_key_value().is_some_and(|(first, _)| *first < arrival);
        !older_waits && self.asking.range(..arrival).take(self.turns).count() < self.turns
    }
}
