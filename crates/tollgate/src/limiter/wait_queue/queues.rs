//! The queues, their callers and turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::PoisonError;
use std::task::{Poll, Waker};

use tollgate_core::Key;

use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::{Arc, Mutex};
use super::wake_list::WakeList;
use crate::table::digest::{Digest, Secret};

/// How many callers of a new queue may ask at once. As long as no caller is refused, callers do not
/// wait for each other's round trips.
const FIRST_TURNS: usize = 64;

/// All queues of a limiter and its clones. `T` is what a refusal says.
pub(crate) struct WaitQueues<T>(Arc<QueueTable<T>>);

struct QueueTable<T> {
    secret: Secret,
    queues: Mutex<QueueMap<T>>,
    /// The number of queues. Most callers find 0, and need neither a digest nor the lock.
    used: AtomicUsize,
}

/// Without keys, so that a caller in a queue takes the same memory whatever its key is.
type QueueMap<T> = BTreeMap<Digest, WaitQueue<T>>;

/// The callers of one set of keys. A place in the queue is the number of the arrival.
struct WaitQueue<T> {
    arrivals: u64,
    /// Those whose turn it is.
    asking: BTreeSet<u64>,
    waiting: BTreeMap<u64, Option<Waker>>,
    /// How many may ask at once. The first always may.
    turns: usize,
    refusal: Option<T>,
}

impl<T> WaitQueues<T> {
    pub(crate) fn new() -> WaitQueues<T> {
        let shared = QueueTable {
            secret: Secret::random(),
            queues: Mutex::new(BTreeMap::new()),
            used: AtomicUsize::new(0),
        };
        WaitQueues(Arc::new(shared))
    }

    /// Joins the queue of a set, each key with a number that tells its quotas apart.
    pub(crate) fn join<'a>(&self, set: impl IntoIterator<Item = (usize, &'a Key)>) -> Waiter<T> {
        let digest = self.digest(set);
        let place = self.0.change(|queues, woken| {
            let queue = queues.entry(digest).or_insert_with(|| {
                self.0.used.fetch_add(1, Ordering::Relaxed);
                WaitQueue::new()
            });
            queue.join(woken)
        });
        Waiter { queues: Arc::clone(&self.0), digest, place }
    }

    /// [`WaitQueues::join`], if others are in the queue.
    pub(crate) fn join_others<'a>(
        &self,
        set: impl IntoIterator<Item = (usize, &'a Key)>,
    ) -> Option<Waiter<T>> {
        if self.0.used.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let digest = self.digest(set);
        let place = self.0.change(|queues, woken| Some(queues.get_mut(&digest)?.join(woken)))?;
        Some(Waiter { queues: Arc::clone(&self.0), digest, place })
    }

    /// The number of queues.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Made before the lock, because keys can be long.
    fn digest<'a>(&self, set: impl IntoIterator<Item = (usize, &'a Key)>) -> Digest {
        let secret = &self.0.secret;
        set.into_iter().fold(secret.digest(0, b""), |digest, (number, key)| {
            secret.digest(digest.home().wrapping_add(number as u64), key.as_encoded())
        })
    }
}

impl<T> QueueTable<T> {
    /// Changes queues under the lock, and then wakes the callers that were given a turn. There is
    /// no other way to the lock, so no caller gets a turn without being woken.
    fn change<R>(&self, change: impl FnOnce(&mut QueueMap<T>, &mut WakeList) -> R) -> R {
        // Dropped after the guard, also if this panics.
        let mut woken = WakeList::default();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut queues, &mut woken)
    }
}

impl<T> WaitQueue<T> {
    fn new() -> WaitQueue<T> {
        WaitQueue {
            arrivals: 0,
            asking: BTreeSet::new(),
            waiting: BTreeMap::new(),
            turns: FIRST_TURNS,
            refusal: None,
        }
    }

    /// Takes the place behind all others.
    fn join(&mut self, woken: &mut WakeList) -> u64 {
        let place = self.arrivals;
        self.arrivals += 1;
        self.waiting.insert(place, None);
        self.call(woken);
        place
    }

    /// Gives free turns to those who wait first.
    fn call(&mut self, woken: &mut WakeList) {
        while let Some(next) = self.waiting.first_entry() {
            let is_first = self.asking.first().is_none_or(|asking| next.key() < asking);
            if !is_first && self.asking.len() >= self.turns {
                break;
            }
            let (place, waker) = next.remove_entry();
            self.asking.insert(place);
            waker.into_iter().for_each(|waker| woken.push(waker));
        }
    }
}

impl<T> Clone for WaitQueues<T> {
    fn clone(&self) -> WaitQueues<T> {
        WaitQueues(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for WaitQueues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitQueues({})", self.0.used.load(Ordering::Relaxed))
    }
}

/// A caller in a queue. It leaves the queue when this is dropped.
pub(crate) struct Waiter<T> {
    queues: Arc<QueueTable<T>>,
    digest: Digest,
    pub(super) place: u64,
}

impl<T: Clone> Waiter<T> {
    /// What the latest refusal in this queue said, if it still holds.
    pub(crate) fn refusal(&self) -> Option<T> {
        self.change(|queue, _| queue.refusal.clone())
    }
}

impl<T> Waiter<T> {
    pub(crate) fn has_turn(&self) -> bool {
        self.change(|queue, _| queue.asking.contains(&self.place))
    }

    /// Waits for the turn of this caller.
    pub(crate) async fn turn(&self) {
        poll_fn(|cx| {
            self.change(|queue, _| match queue.waiting.get_mut(&self.place) {
                Some(waker) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
        })
        .await;
    }

    /// This caller was refused, and keeps its place. Until a caller passes, only the first has a
    /// turn.
    pub(crate) fn refused(&self, refusal: T) {
        self.change(|queue, woken| {
            queue.turns = 1;
            queue.refusal = Some(refusal);
            queue.asking.remove(&self.place);
            queue.waiting.insert(self.place, None);
            queue.call(woken);
        });
    }

    /// This caller passed, and so would `room` others now. If that is more than have a turn, there
    /// is one turn more. If it is several, the latest refusal no longer holds.
    pub(crate) fn passed(self, room: usize) {
        self.change(|queue, _| {
            if room > queue.turns {
                queue.turns += 1;
            }
            if room > 1 {
                queue.refusal = None;
            }
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut WaitQueue<T>, &mut WakeList) -> R) -> R {
        self.queues.change(|queues, woken| {
            change(queues.get_mut(&self.digest).expect("a queue ends with its last caller"), woken)
        })
    }
}

impl<T> Drop for Waiter<T> {
    fn drop(&mut self) {
        // Dropped after the lock, as it may hold much.
        let ended = self.queues.change(|queues, woken| {
            let queue = queues.get_mut(&self.digest)?;
            if !queue.asking.remove(&self.place) {
                queue.waiting.remove(&self.place);
            }
            queue.call(woken);
            queue.asking.is_empty().then(|| queues.remove(&self.digest))
        });
        if ended.is_some() {
            self.queues.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
