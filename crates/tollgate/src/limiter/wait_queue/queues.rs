//! The queues of a limiter, and the callers in them.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::Key;

use super::queue_table::{LOOK_AGAIN, LockedQueues, QueueTable};
use super::sync::Arc;
use crate::table::digest::{Digest, Secret};

/// All queues of a limiter and its clones. `T` is what a refusal says.
pub(crate) struct WaitQueues<T>(Arc<SharedQueues<T>>);

struct SharedQueues<T> {
    secret: Secret,
    arrivals: AtomicU64,
    table: QueueTable<T>,
}

impl<T> WaitQueues<T> {
    pub(crate) fn new() -> WaitQueues<T> {
        WaitQueues(Arc::new(SharedQueues {
            secret: Secret::random(),
            arrivals: AtomicU64::new(0),
            table: QueueTable::new(),
        }))
    }

    /// The number of a caller that arrives now. It keeps its place by that in every queue.
    pub(crate) fn arrival(&self) -> u64 {
        self.0.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Joins the queue of each key, with a number that tells its quotas apart.
    pub(crate) fn join<'a>(
        &self,
        arrival: u64,
        keys: impl IntoIterator<Item = (usize, &'a Key)>,
    ) -> Waiter<T> {
        let mut waiter = self.waiter(arrival, keys);
        waiter.enter();
        waiter
    }

    /// [`WaitQueues::join`], if others are in one of the queues.
    pub(crate) fn join_others<'a>(
        &self,
        arrival: u64,
        keys: impl IntoIterator<Item = (usize, &'a Key)>,
    ) -> Option<Waiter<T>> {
        if self.0.table.len() == 0 {
            return None;
        }
        let mut waiter = self.waiter(arrival, keys);
        let is_used = |locked: &mut LockedQueues<'_, T>| {
            waiter.queues.iter().any(|digest| locked.queues.contains_key(digest))
        };
        if !self.0.table.change(is_used) {
            return None;
        }
        waiter.enter();
        Some(waiter)
    }

    /// The place of a caller that wants these keys from now on. In every queue it is that of its
    /// arrival.
    pub(crate) fn join_from<'a>(
        &self,
        mut place: Waiter<T>,
        keys: impl IntoIterator<Item = (usize, &'a Key)>,
    ) -> Waiter<T> {
        if !Arc::ptr_eq(&place.shared, &self.0) {
            return self.join(self.arrival(), keys);
        }
        let mut next = self.waiter(place.arrival, keys);
        let former = mem::take(&mut place.queues);
        self.0.table.change(|locked| {
            let left = former.into_iter().filter(|digest| !next.queues.contains(digest));
            left.for_each(|digest| locked.leave(next.arrival, digest));
        });
        next.enter();
        next
    }

    /// Made before the lock, because keys can be long.
    fn waiter<'a>(&self, arrival: u64, keys: impl IntoIterator<Item = (usize, &'a Key)>) -> Waiter<T> {
        let digest = |(number, key): (usize, &Key)| self.0.secret.digest(number as u64, key.as_encoded());
        let queues = keys.into_iter().map(digest).collect();
        Waiter { shared: Arc::clone(&self.0), arrival, queues, at: None }
    }

    /// The number of queues.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.table.len()
    }
}

impl<T> Clone for WaitQueues<T> {
    fn clone(&self) -> WaitQueues<T> {
        WaitQueues(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for WaitQueues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitQueues({})", self.0.table.len())
    }
}

/// A caller that asks with a turn in each of its queues, and waits in one of them. It leaves them
/// when this is dropped.
///
/// It takes its turns in the slowest queue first, and keeps them while it waits in a faster one:
/// what it waited for is not taken by others meanwhile. It holds up no faster queue while it waits
/// in a slower one. An older caller always gets a turn, so no two wait for each other.
pub(crate) struct Waiter<T> {
    shared: Arc<SharedQueues<T>>,
    arrival: u64,
    queues: SmallVec<[Digest; 2]>,
    /// The queue in which it waits, or has waited for its turn. `None` if it may ask.
    at: Option<usize>,
}

impl<T: Clone> Waiter<T> {
    /// A latest refusal of its queues. The closure sees which queue it is of, and what it says.
    pub(crate) fn refusal(&self, is_wanted: impl Fn(usize, &T) -> bool) -> Option<T> {
        self.shared.table.change(|locked| {
            let refusal = |digest| Some(&locked.queues.get(digest)?.refusal.as_ref()?.1);
            let mut each = self.queues.iter().map(refusal).enumerate();
            each.find_map(|(at, refusal)| refusal.filter(|refusal| is_wanted(at, refusal)).cloned())
        })
    }
}

impl<T> Waiter<T> {
    #[cfg(test)]
    pub(crate) fn arrival(&self) -> u64 {
        self.arrival
    }

    /// The queue in which it waits.
    pub(crate) fn at(&self) -> Option<usize> {
        self.at
    }

    /// Whether it has its turn in the queue in which it waits.
    pub(crate) fn has_turn(&self) -> bool {
        self.poll_turn(None).is_ready()
    }

    /// Waits for its turn in the queue in which it waits.
    pub(crate) async fn turn(&self) {
        poll_fn(|cx| self.poll_turn(Some(cx.waker()))).await;
    }

    fn poll_turn(&self, wakes: Option<&Waker>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Ready(()) };
        let digest = self.queues[at];
        self.shared.table.change(|locked| {
            locked.looks_again(self.arrival, &self.queues, locked.now + LOOK_AGAIN);
            if let Some(wakes) = wakes
                && let Some(queue) = locked.queues.get_mut(&digest)
                && let Some(caller) = queue.waiting.get_mut(&self.arrival)
            {
                caller.waker = Some(wakes.clone());
            }
            let waits = |locked: &LockedQueues<'_, T>| {
                locked.queues.get(&digest).is_some_and(|queue| queue.waiting.contains_key(&self.arrival))
            };
            if waits(locked) {
                locked.pass_by_overdue(digest);
            }
            if waits(locked) { Poll::Pending } else { Poll::Ready(()) }
        })
    }

    /// Keeps its turns until then, since it looks at its queues no earlier.
    pub(crate) fn is_busy_until(&self, then: Instant) {
        self.shared.table.change(|locked| locked.looks_again(self.arrival, &self.queues, then));
    }

    /// Takes its turn in each queue, to ask. If one has none for it, it waits there, and returns
    /// `false`.
    pub(crate) fn enter(&mut self) -> bool {
        let Waiter { shared, arrival, queues, at } = self;
        *at = shared.table.change(|locked| {
            let order = locked.slowest_first(queues);
            let blocked = order.iter().position(|at| !locked.is_free_for(*arrival, queues[*at]));
            let (taken, left) = order.split_at(blocked.unwrap_or(order.len()));
            let now = locked.now;
            for at in taken {
                let queue = locked.queue(queues[*at]);
                queue.waiting.remove(arrival);
                queue.asking.insert(*arrival, now);
            }
            for at in left {
                locked.leave(*arrival, queues[*at]);
            }
            left.first().inspect(|at| locked.wait(*arrival, queues[**at])).copied()
        });
        at.is_none()
    }

    /// This caller was refused by some queues, each for so long. It waits in that one, and keeps
    /// its place. Until a caller passes, only the first of these queues has a turn.
    pub(crate) fn refused(&mut self, at: usize, by: impl IntoIterator<Item = (usize, Duration, T)>) {
        self.shared.table.change(|locked| {
            // Before the queues of others, which end if this caller has left them.
            locked.queue(self.queues[at]);
            for (by, lasts, refusal) in by {
                if let Some(queue) = locked.queues.get_mut(&self.queues[by]) {
                    queue.turns = 1;
                    queue.refusal = Some((lasts, refusal));
                }
            }
            if let Some(waited) = self.at.filter(|waited| *waited != at) {
                locked.leave(self.arrival, self.queues[waited]);
            }
            let faster =
                locked.slowest_first(&self.queues).into_iter().skip_while(|slow| *slow != at).skip(1);
            for at in faster {
                locked.leave(self.arrival, self.queues[at]);
            }
            locked.wait(self.arrival, self.queues[at]);
        });
        self.at = Some(at);
    }

    /// This caller was refused for so long because the store failed, for an unknown one of its
    /// keys. It waits in the queue that holds up the fewest others.
    pub(crate) fn failed(&mut self, lasts: Duration, refusal: T) {
        let others = |digest: &Digest, locked: &LockedQueues<'_, T>| {
            locked.queues.get(digest).map_or(0, |queue| queue.asking.len() + queue.waiting.len())
        };
        let fewest = self.shared.table.change(|locked| {
            (0..self.queues.len()).min_by_key(|at| others(&self.queues[*at], locked)).unwrap_or(0)
        });
        self.refused(fewest, [(fewest, lasts, refusal)]);
    }

    /// This caller passed, and so would `room` others now, of each queue. If that is more than have
    /// a turn, there is one turn more. If it is several, the latest refusal no longer holds.
    pub(crate) fn passed(mut self, room: impl Fn(usize) -> usize) {
        let queues = mem::take(&mut self.queues);
        self.shared.table.change(|locked| {
            for (at, digest) in queues.into_iter().enumerate() {
                if let Some(queue) = locked.queues.get_mut(&digest) {
                    if room(at) > queue.turns {
                        queue.turns += 1;
                    }
                    if room(at) > 1 {
                        queue.refusal = None;
                    }
                }
                locked.leave(self.arrival, digest);
            }
        });
    }
}

impl<T> Drop for Waiter<T> {
    fn drop(&mut self) {
        let queues = mem::take(&mut self.queues);
        if !queues.is_empty() {
            self.shared.table.change(|locked| {
                queues.into_iter().for_each(|digest| locked.leave(self.arrival, digest));
            });
        }
    }
}
