//! Group commit: while a call is under way, checks gather; the next call carries them.
//!
//! There is no timer, and nothing waits that could be sent: a check that finds a lane free starts a call, which leaves as soon as
//! those tasks have run that are ready to. Under load calls grow by themselves, and the price of a round trip is shared by all
//! that travel in it. Who is alone, as the one before was, drives his lane himself: no task has to be started and woken for it.

mod lane;

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bb8_redis::redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep;
use tollgate_core::{Clock, Timestamp};

use crate::Error;
use crate::awaited::{Awaited, OwnLane};
use crate::batch::{Ask, Batch};
use crate::caller::{Caller, Overdue, Told, span};
use crate::error::Cause;
use crate::link::{Connection, Link, Text};
use crate::wire::names::Names;
use crate::wire::script::{Script, Scripts};
use lane::{Call, Lane};

/// How many sets a call carries at most: more would hardly make it cheaper, and the first would wait for the last.
const SETS: usize = 128;

pub(crate) struct Commit {
    pub(crate) link: Link,
    pub(crate) scripts: Scripts,
    /// The clock of a test; the server's where there is none.
    pub(crate) clock: Option<Clock>,
    /// By which waits are measured: always the system's.
    pub(crate) waits: Clock,
    pub(crate) names: Names,
    /// Where calls run to their end, so that a caller that goes away leaves none half done.
    pub(crate) runtime: Handle,
    /// How many calls may be under way at once, to a slot.
    lanes: usize,
    most_waiting: usize,
    hasher: RandomState,
    queues: Mutex<Queues>,
    /// For the watcher: somebody's time ends before it would look, or there is no store any more.
    earlier: Arc<Notify>,
}

#[derive(Default)]
struct Queues {
    /// By slot; without slots, one.
    of_slot: BTreeMap<u16, Queue>,
    /// Callers in all queues.
    waiting: usize,
    /// What calls are under way for, each by a number of its own.
    under_way: BTreeMap<u64, Arc<Mutex<Batch>>>,
    last_number: u64,
    /// The lane of a caller who was alone; until somebody else comes.
    own: Option<OwnLane>,
    /// Calls that go by no lane.
    beside: usize,
    /// Whether the latest call was for several callers: more are to come then.
    is_crowded: bool,
    /// When the watcher looks for callers whose time is over. None if there is no watcher, since nobody's time ends.
    look: Option<Timestamp>,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<(Batch, usize)>,
    /// Calls under way.
    lanes: usize,
    /// How many sets the latest of them took: for so many the next is given room at once.
    taken: usize,
}

impl Commit {
    pub(crate) fn new(
        link: Link,
        scripts: Scripts,
        clock: Option<Clock>,
        names: Names,
        lanes: usize,
        most_waiting: usize,
    ) -> Commit {
        let runtime = Handle::current();
        // To a slot of a cluster one call goes at a time: while it is under way, the next gathers.
        let lanes = if link.has_slots() { 1 } else { lanes };
        let (hasher, queues) = (RandomState::new(), Mutex::default());
        let (waits, earlier) = (Clock::system(), Arc::default());
        Commit { link, scripts, clock, waits, names, runtime, lanes, most_waiting, hasher, queues, earlier }
    }

    /// Takes up a set whose keys are all in this slot. It is answered until then, if there is an end.
    pub(crate) fn ask(
        self: &Arc<Self>,
        slot: u16,
        ask: Ask<'_>,
        until: Option<Timestamp>,
    ) -> Result<Awaited<Told>, Error> {
        // Whatever can be done before nobody else can do anything.
        let hash = ask.hash(&self.hasher);
        let (caller, answer) = Caller::new(until);
        let mut queues = self.queues();
        if queues.waiting >= self.most_waiting {
            return Err(Cause::Overloaded.into());
        }
        let (is_alone, other) = (queues.are_quiet(), queues.own.take());
        let queue = queues.line_up(slot, |batch| batch.push(&ask, hash, self.names.log, caller));
        let opens = queue.lanes < self.lanes;
        queue.lanes += usize::from(opens);
        // In a box, which is moved about for less than what it holds.
        let lane = || Box::pin(Lane::new(Arc::clone(self), slot, is_alone).run());
        let own = (opens && is_alone).then(|| OwnLane::new(lane(), self.runtime.clone()));
        queues.own.clone_from(&own);
        let look = queues.look;
        let ends_first = until.is_some_and(|until| look.is_none_or(|look| until < look));
        if ends_first {
            queues.look = until;
        }
        drop(queues);
        if ends_first && look.is_some() {
            self.earlier.notify_one();
        } else if ends_first {
            self.runtime.spawn(Commit::watch(Arc::downgrade(self), Arc::clone(&self.earlier)));
        }
        if let Some(other) = other {
            other.leave();
        }
        if let Some(own) = &own {
            own.start();
            if self.queues().under_way.is_empty() {
                // It waits for a connection, or is over.
                own.leave();
            }
        } else if opens {
            self.runtime.spawn(lane());
        }
        Ok(Awaited::new(answer, own))
    }

    /// For as long as a call goes by no lane: meanwhile nobody is alone, and holds what it waits for.
    pub(crate) fn beside(&self) -> Beside<'_> {
        let mut queues = self.queues();
        queues.beside += 1;
        let own = queues.own.take();
        drop(queues);
        if let Some(own) = own {
            own.leave();
        }
        Beside(self)
    }

    async fn send(
        &self,
        connection: Result<Connection<'_>, Error>,
        slot: u16,
        call: &Call,
        alone: bool,
    ) -> Result<Value, Error> {
        let script = self.scripts.acquire(call.batch().parts());
        let build = |text| {
            let mut batch = call.batch();
            batch.drop_the_gone(self.waits.now());
            let now = self.clock.as_ref().map(Clock::now);
            let keys = batch.keys();
            (keys > 0).then(|| self.command(script, text, keys, |cmd| batch.write(cmd, &self.names, now)))
        };
        connection?.run(slot, &build, alone).await
    }

    /// Tells callers when their time is over: one task with one timer, in the place of a timer for each. It ends when there is
    /// nobody whose time does.
    async fn watch(commit: Weak<Commit>, earlier: Arc<Notify>) {
        let look = || {
            let commit = commit.upgrade()?;
            commit.tell_overdue().map(|next| span(commit.waits.now(), next))
        };
        while let Some(wait) = look() {
            select! {
                () = sleep(wait) => {}
                () = earlier.notified() => {}
            }
        }
    }

    /// Tells callers whose time is over: those whom calls are under way for, and those who wait for the next.
    ///
    /// Returns when the time of the first ends who is left.
    fn tell_overdue(&self) -> Option<Timestamp> {
        let mut overdue = Overdue::new(self.waits.now());
        let mut guard = self.queues();
        let queues = &mut *guard;
        for batch in queues.under_way.values() {
            lock(batch).take_overdue(&mut overdue);
        }
        for queue in queues.of_slot.values_mut() {
            queue.batches.retain_mut(|(batch, callers)| {
                if batch.take_overdue(&mut overdue) {
                    let told = batch.drop_the_told();
                    *callers -= told;
                    queues.waiting -= told;
                }
                *callers > 0
            });
        }
        queues.look = overdue.next();
        drop(guard);
        let next = overdue.next();
        overdue.tell();
        next
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// A call of a script, on so many keys.
    pub(crate) fn command(
        &self,
        script: &Script,
        text: Text,
        keys: usize,
        write: impl FnOnce(&mut Cmd),
    ) -> Cmd {
        // Room for most: so it grows but seldom.
        let mut cmd = Cmd::with_capacity(keys + 5, 64 * keys + 256);
        match text {
            Text::Hash => cmd.arg("EVALSHA").arg(script.hash.as_str()),
            Text::Whole => cmd.arg("EVAL").arg(script.text.as_str()),
        };
        cmd.arg(keys);
        write(&mut cmd);
        cmd
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Commit {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}

pub(crate) struct Beside<'a>(&'a Commit);

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.queues().beside -= 1;
    }
}

impl Queues {
    /// Whether nobody else asks, nor has lately.
    fn are_quiet(&self) -> bool {
        self.waiting == 0 && self.under_way.is_empty() && self.beside == 0 && !self.is_crowded
    }

    /// Puts one more caller into a batch that waits for a lane of that slot.
    fn line_up(&mut self, slot: u16, push: impl FnOnce(&mut Batch)) -> &mut Queue {
        self.waiting += 1;
        let queue = self.of_slot.entry(slot).or_default();
        if queue.batches.back().is_none_or(|(batch, _)| batch.len() >= SETS) {
            queue.batches.push_back((Batch::with_room_for(queue.taken), 0));
        }
        if let Some((batch, callers)) = queue.batches.back_mut() {
            push(batch);
            *callers += 1;
        }
        queue
    }

    fn leave(&mut self, slot: u16) {
        let Entry::Occupied(mut queue) = self.of_slot.entry(slot) else { return };
        queue.get_mut().lanes -= 1;
        if queue.get().lanes == 0 {
            // Those who are left behind, if any, are told by their senders that nobody will answer.
            let left = queue.remove().batches;
            self.waiting -= left.iter().map(|(_, callers)| callers).sum::<usize>();
        }
    }
}
