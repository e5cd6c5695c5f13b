//! The table of queues, behind its lock.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::sync::Mutex;
use super::timer_now;
use super::wake_list::WakeList;
use crate::table::digest::Digest;

/// How many callers of a new queue may ask at once. As long as no caller is refused, callers do not
/// wait for each other's round trips.
const FIRST_TURNS: usize = 64;

/// The time after which a caller that sleeps looks for its turn by itself. A caller that is late by
/// more than that is passed by, until it is polled again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    /// Those that have a turn, and when each looks at its queue again.
    pub(super) asking: BTreeMap<u64, Instant>,
    pub(super) waiting: BTreeMap<u64, WaitingCaller>,
    /// How many may ask at once, at least one.
    pub(super) turns: usize,
    /// The latest refusal, and how long it lasts.
    pub(super) refusal: Option<(Duration, T)>,
}

/// A caller without a turn.
pub(super) struct WaitingCaller {
    pub(super) waker: Option<Waker>,
    /// When it looks at its queue again.
    pub(super) looks_again: Instant,
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
        let now = timer_now();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut LockedQueues { queues: &mut queues, now, after: &mut after });
        self.used.store(queues.len(), Ordering::Relaxed);
        result
    }
}

pub(super) struct LockedQueues<'a, T> {
    pub(super) queues: &'a mut QueueMap<T>,
    pub(super) now: Instant,
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

    /// Whether a caller may take or keep a turn in a queue. Those that are overdue do not count.
    pub(super) fn is_free_for(&mut self, arrival: u64, digest: Digest) -> bool {
        let is_free =
            |queues: &QueueMap<T>| queues.get(&digest).is_none_or(|queue| queue.is_free_for(arrival));
        is_free(self.queues) || {
            self.pass_by_overdue(digest);
            is_free(self.queues)
        }
    }

    /// Notes when a caller looks at its queues again.
    pub(super) fn looks_again(&mut self, arrival: u64, digests: &[Digest], at: Instant) {
        for digest in digests {
            let Some(queue) = self.queues.get_mut(digest) else { continue };
            let waiting = queue.waiting.get_mut(&arrival).map(|caller| &mut caller.looks_again);
            for noted in queue.asking.get_mut(&arrival).into_iter().chain(waiting) {
                *noted = at;
            }
        }
    }

    /// Takes the turns of callers that are overdue: nothing drives their runtime, or their task is
    /// not polled any more. One that comes back takes a turn by its arrival.
    pub(super) fn pass_by_overdue(&mut self, digest: Digest) {
        let now = self.now;
        if let Some(queue) = self.queues.get_mut(&digest) {
            queue.asking.retain(|_, looks_again| !is_overdue(*looks_again, now));
            self.call(digest);
        }
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
        let now = self.now;
        let queue = self.queue(digest);
        queue.asking.remove(&arrival);
        queue.waiting.insert(arrival, WaitingCaller { waker: None, looks_again: now });
        self.call(digest);
    }

    pub(super) fn leave(&mut self, arrival: u64, digest: Digest) {
        if let Some(queue) = self.queues.get_mut(&digest) {
            queue.asking.remove(&arrival);
            queue.waiting.remove(&arrival);
            self.call(digest);
        }
    }

    /// Gives free turns to those who wait first in a queue, which ends if there are none. A caller
    /// that is overdue is woken without a turn, and takes one if it is polled.
    fn call(&mut self, digest: Digest) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&digest) else { return };
        while let Some((first, _)) = queue.waiting.first_key_value()
            && queue.is_free_for(*first)
            && let Some((first, caller)) = queue.waiting.pop_first()
        {
            if !is_overdue(caller.looks_again, now) {
                queue.asking.insert(first, caller.looks_again.max(now));
            }
            caller.waker.into_iter().for_each(|waker| self.after.woken.push(waker));
        }
        if queue.asking.is_empty() {
            self.after.ended.extend(self.queues.remove(&digest));
        }
    }
}

impl<T> WaitQueue<T> {
    fn new() -> WaitQueue<T> {
        WaitQueue { asking: BTreeMap::new(), waiting: BTreeMap::new(), turns: FIRST_TURNS, refusal: None }
    }

    /// Whether a caller may take or keep a turn: it is among the first of the queue.
    fn is_free_for(&self, arrival: u64) -> bool {
        let older_waits = self.waiting.first_key_value().is_some_and(|(first, _)| *first < arrival);
        !older_waits && self.asking.range(..arrival).take(self.turns).count() < self.turns
    }
}

fn is_overdue(looks_again: Instant, now: Instant) -> bool {
    looks_again + LOOK_AGAIN < now
}
