//! The queues of one kind of request, and the calls in flight for them.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bb8_redis::redis::{Cmd, Value};
use tokio::select;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::sleep;
use tollgate_core::Timestamp;

use super::caller::{Deadline, Overdue, span};
use super::context::CallContext;
use super::pace::Pace;
use super::silence::Silences;
use crate::error::{Cause, Error};
use crate::link::Text;

/// The most requests in a call. Larger calls are no cheaper for each request, and the first request
/// would wait for the last.
const MOST_REQUESTS: usize = 128;

/// What one call carries: requests of one kind, and their callers.
pub(super) trait Load: Default + Send + 'static {
    /// What a caller gets.
    type Answer: Send;

    /// The estimated work on the server, where a check of GCRA is 1.
    fn work(&self) -> u32;

    /// How many requests it carries. Merged requests count once.
    fn len(&self) -> usize;

    /// How many callers wait for the answer.
    fn callers(&self) -> usize;

    /// The earliest deadline of a caller.
    fn first_end(&self) -> Option<Timestamp>;

    /// Moves callers whose deadline has passed to `overdue`, with the error that `why` gives.
    /// Returns whether there were any.
    fn take_overdue(
        &mut self,
        overdue: &mut Overdue<Self::Answer>,
        why: &mut dyn FnMut(Deadline) -> Error,
    ) -> bool;

    /// Forgets overdue callers, while the load is queued.
    fn drop_overdue(&mut self);

    /// The load was written: from now on its callers wait for the answer, however late.
    fn forget_deadlines(&mut self);

    /// Removes requests that need not be sent because their callers have left.
    fn drop_abandoned(&mut self);

    /// The command, or `None` if nothing is left to send. `now` is about the time that the server's
    /// clock shows.
    fn command(&self, context: &CallContext, text: Text, now: Timestamp) -> Option<Cmd>;

    /// Answers the callers. `shown` notes the time in the reply.
    fn answer(self, answer: Result<Value, Error>, shown: &dyn Fn(Timestamp));

    /// One load for each part that can be sent alone.
    fn split(self) -> Vec<Self>;
}

/// Requests of one kind: those that are queued, and those in flight.
pub(super) struct Group<L> {
    pub(super) context: Arc<CallContext>,
    /// How many calls are in flight at once, for each hash slot.
    lanes: usize,
    /// How many callers may be queued.
    most_waiting: usize,
    queues: Mutex<Queues<L>>,
    /// Wakes the task that watches deadlines: an earlier deadline was added, or the store is gone.
    wake: Arc<Notify>,
    /// Wakes the group behind this one, once no caller is queued.
    idle: Notify,
    /// `None` unless this group is behind another.
    behind: Option<Behind<L>>,
}

/// What a group waits for before each call. Its callers have deadlines for being sent.
struct Behind<L> {
    ahead: Arc<Group<L>>,
    /// The right to make a call, for one lane at a time.
    turn: Semaphore,
}

pub(super) struct Queues<L> {
    /// By hash slot. Without hash slots there is one.
    of_hash_slot: BTreeMap<u16, HashSlotQueue<L>>,
    /// How many callers are queued.
    waiting: usize,
    /// Calls in flight, by their numbers. Those that are being written are not here.
    pub(super) in_flight: BTreeMap<u64, InFlight<L>>,
    silences: Silences,
    /// When the watching task looks for overdue callers. `None` while there is no such task.
    next_look: Option<Timestamp>,
    pub(super) pace: Pace,
}

/// What a call in flight carries.
pub(super) struct InFlight<L> {
    pub(super) load: L,
    pub(super) hash_slot: u16,
    /// Whether the node has refused the call while the hash slot moves. It will be written again.
    pub(super) is_moving: bool,
}

struct HashSlotQueue<L> {
    loads: VecDeque<Queued<L>>,
    lanes: usize,
    /// When the server last answered a call of this queue.
    answered: Timestamp,
}

struct Queued<L> {
    load: L,
    callers: usize,
}

impl<L: Load> Group<L> {
    pub(super) fn new(context: Arc<CallContext>, lanes: usize, most_waiting: usize, pace: Pace) -> Group<L> {
        let queues = Queues {
            of_hash_slot: BTreeMap::new(),
            waiting: 0,
            in_flight: BTreeMap::new(),
            silences: Silences::default(),
            next_look: None,
            pace,
        };
        Group {
            context,
            lanes,
            most_waiting,
            queues: Mutex::new(queues),
            wake: Arc::default(),
            idle: Notify::new(),
            behind: None,
        }
    }

    /// A group of small calls, one at a time, each of which waits until no caller of `ahead` is
    /// queued.
    pub(super) fn behind(ahead: &Arc<Group<L>>, context: Arc<CallContext>) -> Group<L> {
        let mut group = Group::new(context, 1, ahead.most_waiting, Pace::of_shadow());
        group.behind = Some(Behind { ahead: Arc::clone(ahead), turn: Semaphore::new(1) });
        group
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Waits until a lane may make its next call. The turn ends when this is dropped.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        let Behind { ahead, turn } = self.behind.as_ref()?;
        let turn = turn.acquire().await.ok();
        loop {
            let idle = ahead.idle.notified();
            tokio::pin!(idle);
            // Enabled before the queues are looked at, so that no change in between is missed.
            idle.as_mut().enable();
            if ahead.queues().waiting == 0 {
                return turn;
            }
            idle.await;
        }
    }

    /// Wakes the group behind this one, if no caller is queued.
    pub(super) fn notify_if_idle(&self, queues: &Queues<L>) {
        if queues.waiting == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Queues a request with one caller, which `add` puts into a load. `work` is the least that it
    /// adds. Returns whether a lane is free, which the caller of this function then starts.
    pub(super) fn push(
        self: &Arc<Self>,
        hash_slot: u16,
        deadline: Option<Deadline>,
        work: u32,
        add: impl FnOnce(&mut L),
    ) -> Result<bool, Error> {
        let mut queues = self.queues();
        if queues.waiting >= self.most_waiting {
            return Err(Cause::Overloaded.into());
        }
        let queue = queues.push(hash_slot, work, add);
        let starts_lane = queue.lanes < self.lanes;
        queue.lanes += usize::from(starts_lane);
        self.watch_until(queues, deadline.map(|deadline| deadline.until));
        Ok(starts_lane)
    }

    /// Has the watching task look at this deadline, too.
    pub(super) fn watch_until(
        self: &Arc<Self>,
        mut queues: MutexGuard<'_, Queues<L>>,
        until: Option<Timestamp>,
    ) {
        let former_look = queues.next_look;
        let is_earliest = until.is_some_and(|until| former_look.is_none_or(|look| until < look));
        if is_earliest {
            queues.next_look = until;
        }
        drop(queues);
        match former_look {
            _ if !is_earliest => {}
            Some(_) => self.wake.notify_one(),
            None => {
                self.context.runtime.spawn(Group::watch(Arc::downgrade(self), Arc::clone(&self.wake)));
            }
        }
    }

    /// Whether the next load of a hash slot can still grow. `None` if nothing is queued: then the
    /// lane is closed under the same lock, so that the next request opens another.
    pub(super) fn next_has_room(&self, hash_slot: u16) -> Option<bool> {
        let mut queues = self.queues();
        let most_work = queues.pace.most_work();
        if let Some(queue) = queues.of_hash_slot.get(&hash_slot)
            && let Some(first) = queue.loads.front()
        {
            return Some(queue.loads.len() == 1 && !is_full(&first.load, most_work));
        }
        let left = queues.close_lane(hash_slot);
        self.notify_if_idle(&queues);
        drop(queues);
        drop(left);
        None
    }

    /// Closes a lane whose runtime stops.
    pub(super) fn close_lane(&self, hash_slot: u16) {
        let left = self.queues().close_lane(hash_slot);
        // After the lock, which the callers that this notifies may need.
        drop(left);
    }

    /// Notes that the server answered a call of this hash slot, after `work`.
    pub(super) fn answered(&self, hash_slot: u16, work: u32, sent: Timestamp) {
        let now = self.context.waits.now();
        let mut queues = self.queues();
        queues.pace.learn(work, span(sent, now));
        queues.silences.answered(|| self.context.link.node(hash_slot), now);
        if let Some(queue) = queues.of_hash_slot.get_mut(&hash_slot) {
            queue.answered = now;
        }
    }

    /// Notifies callers at their deadlines: one task with one timer instead of a timer for each
    /// caller. Ends when no caller has a deadline.
    async fn watch(group: Weak<Self>, wake: Arc<Notify>) {
        let look = || {
            let group = group.upgrade()?;
            group.watch_once().map(|next| span(group.context.waits.now(), next))
        };
        while let Some(wait) = look() {
            select! {
                // If this process was held up, answers have arrived meanwhile: they are read first.
                () = sleep(wait) => yield_now().await,
                () = wake.notified() => {}
            }
        }
    }

    /// Notifies callers whose deadline has passed. Returns when to look again, which is noted for
    /// the watching task.
    fn watch_once(&self) -> Option<Timestamp> {
        let (mut queues, overdue) = self.take_overdue();
        let next = overdue.next();
        queues.next_look = next;
        drop(queues);
        overdue.notify();
        next
    }

    /// Notifies callers whose deadline has passed, for a caller that cannot wait for the watching
    /// task.
    pub(super) fn notify_overdue(&self) {
        let (queues, overdue) = self.take_overdue();
        drop(queues);
        overdue.notify();
    }

    /// Takes callers whose deadline has passed, in flight and queued. The queues stay locked.
    fn take_overdue(&self) -> (MutexGuard<'_, Queues<L>>, Overdue<L::Answer>) {
        let now = self.context.waits.now();
        let mut overdue = Overdue::new(now);
        let mut guard = self.queues();
        let Queues { of_hash_slot, waiting, in_flight, silences, .. } = &mut *guard;
        let is_behind = self.is_behind();
        let mut silence = |hash_slot: u16, deadline: Deadline| {
            if is_behind {
                // It was not sent in time, and that is no failure of the server.
                return Cause::Queued.into();
            }
            let number = silences.number(self.context.link.node(hash_slot), deadline, now);
            Error::from(Cause::Late).of_silence(number)
        };
        for InFlight { load, hash_slot, is_moving, .. } in in_flight.values_mut() {
            let mut why = |deadline: Deadline| match is_moving {
                true => Cause::Moving.into(),
                false => silence(*hash_slot, deadline),
            };
            load.take_overdue(&mut overdue, &mut why);
        }
        for (hash_slot, queue) in of_hash_slot {
            // The server was silent for as long as this caller waited: that is a failure of the
            // server. If it answered others meanwhile, the queue was too long, and the failure is
            // ours.
            let answered = queue.answered;
            let mut why = |deadline: Deadline| {
                if deadline.asked > answered { silence(*hash_slot, deadline) } else { Cause::Queued.into() }
            };
            queue.loads.retain_mut(|queued| {
                if queued.load.take_overdue(&mut overdue, &mut why) {
                    queued.load.drop_overdue();
                    let left = queued.load.callers();
                    *waiting -= queued.callers - left;
                    queued.callers = left;
                }
                queued.callers > 0
            });
        }
        (guard, overdue)
    }

    /// Why a set was not charged by a deadline, whose parts in these hash slots were sent after
    /// `began`.
    pub(super) fn why_late(&self, hash_slots: &[u16], began: Timestamp, deadline: Deadline) -> Error {
        let now = self.context.waits.now();
        let mut guard = self.queues();
        let Queues { of_hash_slot, in_flight, silences, .. } = &mut *guard;
        let is_moving = |slot: u16| in_flight.values().any(|call| call.hash_slot == slot && call.is_moving);
        let is_silent = |slot: &u16| {
            of_hash_slot.get(slot).is_some_and(|queue| began > queue.answered) && !is_moving(*slot)
        };
        match hash_slots.iter().copied().find(is_silent) {
            Some(silent) => {
                let number = silences.number(self.context.link.node(silent), deadline, now);
                Error::from(Cause::Late).of_silence(number)
            }
            None if hash_slots.iter().any(|slot| is_moving(*slot)) => Cause::Moving.into(),
            None => Cause::Late.into(),
        }
    }

    /// The number of the silence in which a call was not answered in time, if it does not last.
    pub(super) fn silence(&self, hash_slot: u16, sent: Timestamp) -> Option<u64> {
        let now = self.context.waits.now();
        let node = self.context.link.node(hash_slot);
        self.queues().silences.number(node, Deadline { asked: sent, until: now }, now)
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Queues<L>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_full<L: Load>(load: &L, most_work: u32) -> bool {
    load.len() >= MOST_REQUESTS || load.work() >= most_work
}

impl<L> Drop for Group<L> {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl<L: Load> Queues<L> {
    fn push(&mut self, hash_slot: u16, work: u32, add: impl FnOnce(&mut L)) -> &mut HashSlotQueue<L> {
        self.waiting += 1;
        let most_work = self.pace.most_work();
        let queue = self.of_hash_slot.entry(hash_slot).or_insert_with(HashSlotQueue::new);
        let has_room = |load: &L| !is_full(load, most_work) && load.work().saturating_add(work) <= most_work;
        if !queue.loads.back().is_some_and(|last| has_room(&last.load)) {
            queue.loads.push_back(Queued { load: L::default(), callers: 0 });
        }
        if let Some(last) = queue.loads.back_mut() {
            add(&mut last.load);
            last.callers += 1;
        }
        queue
    }

    /// Takes the next load of a hash slot out of the queue.
    pub(super) fn pop(&mut self, hash_slot: u16) -> Option<L> {
        let Queued { load, callers } = self.of_hash_slot.get_mut(&hash_slot)?.loads.pop_front()?;
        self.waiting -= callers;
        Some(load)
    }

    /// Makes `callers` of a load that is sent alone count as queued, since it does not hold up the
    /// calls behind it.
    pub(super) fn count_waiting(&mut self, callers: usize) {
        self.waiting += callers;
    }

    pub(super) fn uncount_waiting(&mut self, callers: usize) {
        self.waiting -= callers;
    }

    /// Returns the loads that are left if it was the last lane: then the runtime is stopping.
    /// Dropping them notifies their callers.
    fn close_lane(&mut self, hash_slot: u16) -> VecDeque<Queued<L>> {
        let Entry::Occupied(mut queue) = self.of_hash_slot.entry(hash_slot) else { return VecDeque::new() };
        queue.get_mut().lanes -= 1;
        if queue.get().lanes > 0 {
            return VecDeque::new();
        }
        let left = queue.remove().loads;
        self.waiting -= left.iter().map(|queued| queued.callers).sum::<usize>();
        left
    }
}

impl<L> HashSlotQueue<L> {
    fn new() -> HashSlotQueue<L> {
        HashSlotQueue { loads: VecDeque::new(), lanes: 0, answered: Timestamp::EPOCH }
    }
}
