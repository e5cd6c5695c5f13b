//! Queues of callers in one process, in order of arrival: one queue for each set of keys.
//!
//! A queue hands out *turns*: the right to ask for what the callers wait for. It does not know what
//! that is. A caller that leaves is skipped, and a queue ends with its last caller.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::Key;

use crate::table::digest::{Digest, Secret};

/// How many callers of a new queue may ask at once. As long as no caller is refused, callers do not
/// wait for each other's round trips.
const FIRST_TURNS: usize = 64;

/// All queues of a limiter and its clones. `T` is what a refusal says.
pub(crate) struct WaitQueues<T>(Arc<Shared<T>>);

struct Shared<T> {
    secret: Secret,
    /// Without keys, so that a caller in a queue takes the same memory whatever its key is.
    queues: Mutex<BTreeMap<Digest, WaitQueue<T>>>,
    /// The number of queues. Most callers find 0, and need neither a digest nor the lock.
    used: AtomicUsize,
}

/// The callers of one set of keys. A place in the queue is the number of the arrival.
struct WaitQueue<T> {
    arrivals: u64,
    /// Those whose turn it is.
    asking: BTreeSet<u64>,
    waiting: BTreeMap<u64, Option<Waker>>,
    /// How many may ask at once. The first always may.
    turns: usize,
    refusal: Option<T>,
    /// When the first asks again, if it was refused.
    asks_again: Option<Instant>,
}

type Wakers = SmallVec<[Waker; 2]>;

impl<T> WaitQueues<T> {
    pub(crate) fn new() -> WaitQueues<T> {
        let shared = Shared { secret: Secret::random(), queues: Mutex::default(), used: AtomicUsize::new(0) };
        WaitQueues(Arc::new(shared))
    }

    /// Joins the queue of a set, each key with a number that tells its quotas apart.
    pub(crate) fn join<'a>(&self, set: impl IntoIterator<Item = (usize, &'a Key)>) -> Waiter<T> {
        let digest = self.digest(set);
        let mut queues = self.0.lock();
        let queue = queues.entry(digest).or_insert_with(|| {
            self.0.used.fetch_add(1, Ordering::Relaxed);
            WaitQueue::new()
        });
        self.waiter(digest, queue)
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
        let mut queues = self.0.lock();
        let queue = queues.get_mut(&digest)?;
        Some(self.waiter(digest, queue))
    }

    /// Made before the lock, because keys can be long.
    fn digest<'a>(&self, set: impl IntoIterator<Item = (usize, &'a Key)>) -> Digest {
        let secret = &self.0.secret;
        set.into_iter().fold(secret.digest(0, b""), |digest, (number, key)| {
            secret.digest(digest.home().wrapping_add(number as u64), key.as_encoded())
        })
    }

    fn waiter(&self, digest: Digest, queue: &mut WaitQueue<T>) -> Waiter<T> {
        let place = queue.arrivals;
        queue.arrivals += 1;
        queue.waiting.insert(place, None);
        // It has no waker yet.
        queue.call();
        Waiter { queues: Arc::clone(&self.0), digest, place }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, WaitQueue<T>>> {
        // No code panics under the lock.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
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
            asks_again: None,
        }
    }

    fn first(&self) -> Option<u64> {
        let waiting = self.waiting.first_key_value().map(|(place, _)| place);
        self.asking.first().into_iter().chain(waiting).min().copied()
    }

    /// Gives free turns to those who wait first. Returns whom to wake, after the lock.
    fn call(&mut self) -> Wakers {
        let mut woken = Wakers::new();
        while let Some(next) = self.waiting.first_entry() {
            let is_first = self.asking.first().is_none_or(|asking| next.key() < asking);
            if !is_first && self.asking.len() >= self.turns {
                break;
            }
            let (place, waker) = next.remove_entry();
            self.asking.insert(place);
            woken.extend(waker);
        }
        woken
    }

    fn remove(&mut self, place: u64) {
        if self.first() == Some(place) {
            self.asks_again = None;
        }
        if !self.asking.remove(&place) {
            self.waiting.remove(&place);
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
    queues: Arc<Shared<T>>,
    digest: Digest,
    place: u64,
}

impl<T: Clone> Waiter<T> {
    /// What the latest refusal in this queue said, if it still holds.
    pub(crate) fn refusal(&self) -> Option<T> {
        self.change(|queue| queue.refusal.clone())
    }

    /// What the refusal of the first caller said, if that does not ask again before `end`.
    pub(crate) fn refusal_until(&self, end: Instant) -> Option<T> {
        self.change(|queue| queue.asks_again.filter(|again| *again > end).and(queue.refusal.clone()))
    }
}

impl<T> Waiter<T> {
    pub(crate) fn has_turn(&self) -> bool {
        self.change(|queue| queue.asking.contains(&self.place))
    }

    /// Waits for the turn of this caller.
    pub(crate) async fn turn(&self) {
        poll_fn(|cx| {
            self.change(|queue| match queue.waiting.get_mut(&self.place) {
                Some(waker) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
        })
        .await;
    }

    /// This caller was refused, keeps its place, and asks again at `again`. Until a caller passes,
    /// only the first has a turn.
    pub(crate) fn refused(&self, refusal: T, again: Instant) {
        let woken = self.change(|queue| {
            queue.turns = 1;
            queue.refusal = Some(refusal);
            if queue.first() == Some(self.place) {
                queue.asks_again = Some(again);
            }
            queue.asking.remove(&self.place);
            queue.waiting.insert(self.place, None);
            queue.call()
        });
        woken.into_iter().for_each(Waker::wake);
    }

    /// This caller passed. If that leaves room for others, one more than before may ask at once,
    /// and what was said to those who were refused no longer holds.
    pub(crate) fn passed(self, leaves_room: bool) {
        if leaves_room {
            self.change(|queue| {
                queue.turns = queue.turns.saturating_add(1);
                queue.refusal = None;
            });
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut WaitQueue<T>) -> R) -> R {
        change(self.queues.lock().get_mut(&self.digest).expect("a queue ends with its last caller"))
    }
}

impl<T> Drop for Waiter<T> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.digest) else { return };
        queue.remove(self.place);
        let woken = queue.call();
        // Dropped after the lock, as it may hold much.
        let ended = queue.asking.is_empty().then(|| queues.remove(&self.digest));
        drop(queues);
        if ended.is_some() {
            self.queues.used.fetch_sub(1, Ordering::Relaxed);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}
