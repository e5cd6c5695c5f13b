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
use tollgate_core::Key;

use crate::table::digest::{Digest, Secret};

/// How many callers of a new queue may ask at once. As long as no caller is refused, callers do not
/// wait for each other's round trips.
const FIRST_TURNS: usize = 64;

/// All queues of a limiter and its clones. `T` is what a refusal says.
pub(crate) struct WaitQueues<T>(Arc<QueueTable<T>>);

struct QueueTable<T> {
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
}

type Wakers = SmallVec<[Waker; 2]>;

impl<T> WaitQueues<T> {
    pub(crate) fn new() -> WaitQueues<T> {
        let shared =
            QueueTable { secret: Secret::random(), queues: Mutex::default(), used: AtomicUsize::new(0) };
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

    /// The place of a caller that asks for another set from now on. For the same set it keeps its
    /// place. Otherwise it joins before it leaves, so that those behind it come after it.
    pub(crate) fn join_from<'a>(
        &self,
        place: Waiter<T>,
        set: impl IntoIterator<Item = (usize, &'a Key)> + Clone,
    ) -> Waiter<T> {
        let stays = Arc::ptr_eq(&place.queues, &self.0) && place.digest == self.digest(set.clone());
        if stays { place } else { self.join(set) }
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

impl<T> QueueTable<T> {
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
        }
    }

    /// Gives free turns to those who wait first. Returns the wakers, which are for after the lock.
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
    place: u64,
}

impl<T: Clone> Waiter<T> {
    /// What the latest refusal in this queue said, if it still holds.
    pub(crate) fn refusal(&self) -> Option<T> {
        self.change(|queue| queue.refusal.clone())
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

    /// This caller was refused, and keeps its place. Until a caller passes, only the first has a
    /// turn.
    pub(crate) fn refused(&self, refusal: T) {
        let woken = self.change(|queue| {
            queue.turns = 1;
            queue.refusal = Some(refusal);
            queue.asking.remove(&self.place);
            queue.waiting.insert(self.place, None);
            queue.call()
        });
        woken.into_iter().for_each(Waker::wake);
    }

    /// This caller passed, and so would `room` others now. If that is more than have a turn, there
    /// is one turn more. If it is several, the latest refusal no longer holds.
    pub(crate) fn passed(self, room: usize) {
        self.change(|queue| {
            if room > queue.turns {
                queue.turns += 1;
            }
            if room > 1 {
                queue.refusal = None;
            }
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut WaitQueue<T>) -> R) -> R {
        change(self.queues.lock().get_mut(&self.digest).expect("a queue ends with its last caller"))
    }
}

impl<T> Drop for Waiter<T> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.digest) else { return };
        if !queue.asking.remove(&self.place) {
            queue.waiting.remove(&self.place);
        }
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn is_called(waiter: &Waiter<&'static str>) -> bool {
        let called = pin!(waiter.turn()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!(called, waiter.has_turn());
        called
    }

    /// The places of those who have a turn.
    fn called(waiters: &[Waiter<&'static str>]) -> Vec<u64> {
        waiters.iter().filter(|waiter| is_called(waiter)).map(|waiter| waiter.place).collect()
    }

    fn ada(queues: &WaitQueues<&'static str>) -> Waiter<&'static str> {
        queues.join([(0, &Key::from("ada"))])
    }

    #[test]
    fn a_queue_without_refusals_calls_64_at_once() {
        let queues = WaitQueues::new();
        let waiters: Vec<_> = (0..70).map(|_| ada(&queues)).collect();
        assert_eq!(called(&waiters), (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn after_a_refusal_only_the_first_is_called() {
        let queues = WaitQueues::new();
        let mut waiters: Vec<_> = (0..5).map(|_| ada(&queues)).collect();
        // In any order of the answers.
        for refused in [3, 0, 1, 4, 2] {
            waiters[refused].refused("no");
        }
        assert_eq!(called(&waiters), [0]);
        waiters.push(ada(&queues));
        assert_eq!(called(&waiters), [0]);
        // Each that leaves hands its turn to the next. With room for several, one more is called.
        waiters.remove(0).passed(1);
        assert_eq!((called(&waiters), waiters[0].refusal()), (vec![1], Some("no")));
        waiters.remove(0).passed(9);
        assert_eq!((called(&waiters), waiters[0].refusal()), (vec![2, 3], None));
        waiters.remove(0).passed(9);
        assert_eq!(called(&waiters), [3, 4, 5]);
        // The first keeps its turn and its place, the others their places.
        waiters[1].refused("no");
        waiters[0].refused("no");
        assert_eq!(called(&waiters), [3, 5]);
        waiters.remove(0);
        assert_eq!(called(&waiters), [4, 5]);
    }

    #[test]
    fn turns_grow_up_to_the_room_there_is() {
        let queues = WaitQueues::new();
        let mut waiters: Vec<_> = (0..80).map(|_| ada(&queues)).collect();
        waiters.remove(0).passed(64);
        assert_eq!(called(&waiters).len(), 64);
        waiters.remove(0).passed(65);
        assert_eq!(called(&waiters).len(), 65);
        for waiter in &waiters {
            waiter.refused("no");
        }
        for turns in [1, 2, 3, 3, 3] {
            assert_eq!(called(&waiters).len(), turns);
            waiters.remove(0).passed(3);
        }
    }

    #[test]
    fn a_caller_that_leaves_is_never_called() {
        let queues = WaitQueues::new();
        let mut waiters: Vec<_> = (0..6).map(|_| ada(&queues)).collect();
        for waiter in &waiters {
            waiter.refused("no");
        }
        drop(waiters.remove(1));
        drop(waiters.remove(0));
        assert_eq!(called(&waiters), [2], "a turn that was not used goes on");
        drop(waiters.remove(3));
        drop(waiters.remove(0));
        assert_eq!(called(&waiters), [3]);
        drop(waiters.remove(0));
        assert_eq!(called(&waiters), [4]);
    }

    #[test]
    fn a_turn_wakes_its_caller_once() {
        let queues = WaitQueues::new();
        let (first, second) = (ada(&queues), ada(&queues));
        let (wakes, waker) = counted();
        first.refused("no");
        second.refused("no");
        let mut turn = pin!(second.turn());
        assert!(turn.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(turn.poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Wakes>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::<Wakes>::default();
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    #[test]
    fn a_queue_ends_with_its_last_caller() {
        let queues = WaitQueues::new();
        assert!(queues.join_others([(0, &Key::from("ada"))]).is_none());
        let (first, second) = (ada(&queues), ada(&queues));
        first.refused("no");
        drop(first);
        assert!(queues.join_others([(0, &Key::from("ada"))]).is_some());
        drop(second);
        assert!(queues.join_others([(0, &Key::from("ada"))]).is_none());
        assert!(queues.0.lock().is_empty());
        assert_eq!(queues.0.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_set_of_keys_has_a_queue_of_its_own() {
        let queues = WaitQueues::<()>::new();
        let (a, b) = (Key::from("a"), Key::from("b"));
        let sets: [&[(usize, &Key)]; 7] =
            [&[], &[(0, &a)], &[(1, &a)], &[(0, &b)], &[(0, &a), (1, &b)], &[(0, &b), (1, &a)], &[(1, &b)]];
        let join = |set: &&[(usize, &Key)]| queues.join(set.iter().copied());
        let waiters: Vec<_> = sets.iter().map(join).collect();
        assert_eq!(queues.0.used.load(Ordering::Relaxed), sets.len());
        let again: Vec<_> = sets.iter().map(join).collect();
        assert_eq!(queues.0.used.load(Ordering::Relaxed), sets.len());
        drop((waiters, again));
    }
}
