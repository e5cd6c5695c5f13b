//! Group commit: while a call is under way, checks gather; the next call carries them.
//!
//! There is no timer, and nothing waits that could be sent: a check that finds a lane free starts a call at once. Under load
//! calls grow by themselves, and the price of a round trip is shared by all that travel in it.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bb8_redis::redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};
use tollgate_core::Clock;

use crate::batch::{Answer, Ask, Batch};
use crate::caller::{Caller, Overdue};
use crate::error::Cause;
use crate::link::{Connection, Link, Text};
use crate::script::{Script, Scripts};
use crate::{Error, SlidingLogLayout};

/// How many sets a call carries at most: more would hardly make it cheaper, and the first would wait for the last.
const SETS: usize = 128;

pub(crate) struct Commit {
    pub(crate) link: Link,
    pub(crate) scripts: Scripts,
    /// The clock of a test; the server's where there is none.
    pub(crate) clock: Option<Clock>,
    pub(crate) log: SlidingLogLayout,
    /// Where calls run, so that a caller that goes away leaves none half done.
    pub(crate) runtime: Handle,
    /// How many calls may be under way at once, to a slot.
    lanes: usize,
    most_waiting: usize,
    hasher: RandomState,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    /// By slot; without slots, one.
    of_slot: BTreeMap<u16, Queue>,
    /// Callers in all queues.
    waiting: usize,
    /// The shortest time that callers have for their answers.
    shortest: Option<Duration>,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<(Batch, usize)>,
    /// Calls under way.
    lanes: usize,
}

impl Commit {
    pub(crate) fn new(
        link: Link,
        scripts: Scripts,
        clock: Option<Clock>,
        log: SlidingLogLayout,
        lanes: usize,
        most_waiting: usize,
    ) -> Commit {
        let runtime = Handle::current();
        // To a slot of a cluster one call goes at a time: while it is under way, the next gathers.
        let lanes = if link.has_slots() { 1 } else { lanes };
        let (hasher, queues) = (RandomState::new(), Mutex::default());
        Commit { link, scripts, clock, log, runtime, lanes, most_waiting, hasher, queues }
    }

    /// There will be callers who have so long for their answers.
    pub(crate) fn expect(&self, limit: Duration) {
        let mut queues = self.queues();
        queues.shortest = Some(queues.shortest.map_or(limit, |shortest| shortest.min(limit)));
    }

    /// Takes up a set whose keys are all in this slot. It is answered until then, if there is an end.
    pub(crate) fn ask(
        self: &Arc<Self>,
        slot: u16,
        ask: Ask<'_>,
        until: Option<Instant>,
    ) -> Result<oneshot::Receiver<Answer>, Error> {
        // Whatever can be done before nobody else can do anything.
        let hash = self.hasher.hash_one(&ask.keys);
        let (caller, answer) = Caller::new(until);
        let mut queues = self.queues();
        if queues.waiting >= self.most_waiting {
            return Err(Cause::Overloaded.into());
        }
        queues.waiting += 1;
        let queue = queues.of_slot.entry(slot).or_default();
        if queue.batches.back().is_none_or(|(batch, _)| batch.len() >= SETS) {
            queue.batches.push_back(Default::default());
        }
        if let Some((batch, callers)) = queue.batches.back_mut() {
            batch.push(ask, hash, self.log, caller);
            *callers += 1;
        }
        if queue.lanes < self.lanes {
            queue.lanes += 1;
            drop(queues);
            let lane = Lane { commit: Arc::clone(self), slot, left: false, shortest: None, look: None };
            self.runtime.spawn(lane.run());
        }
        Ok(answer)
    }

    async fn send(
        &self,
        connection: Result<Connection<'_>, Error>,
        slot: u16,
        batch: &Mutex<Batch>,
        alone: bool,
    ) -> Result<Value, Error> {
        let script = self.scripts.acquire(lock(batch).parts());
        let build = |text| {
            let now = self.clock.as_ref().map(Clock::now);
            self.command(script, text, |cmd| lock(batch).write(cmd, now))
        };
        connection?.run(slot, &build, alone).await
    }

    /// Tells callers whose time is over: those whom a call is for that is under way, and those who gather meanwhile.
    ///
    /// Returns when to look again: with the first of those who are left, or with the first of those who may come.
    fn tell_overdue(&self, slot: u16, under_way: Option<&Mutex<Batch>>, shortest: Duration) -> Instant {
        let now = Instant::now();
        let mut overdue = Overdue::new(now, now + shortest);
        if let Some(batch) = under_way {
            lock(batch).take_overdue(&mut overdue);
        }
        let mut queues = self.queues();
        let mut left = 0;
        if let Some(queue) = queues.of_slot.get_mut(&slot) {
            queue.batches.retain_mut(|(batch, callers)| {
                let stays = !batch.take_overdue(&mut overdue) || !batch.is_abandoned();
                left += if stays { 0 } else { *callers };
                stays
            });
        }
        queues.waiting -= left;
        drop(queues);
        overdue.tell()
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// A call of a script.
    pub(crate) fn command(&self, script: &Script, text: Text, write: impl FnOnce(&mut Cmd)) -> Cmd {
        let mut cmd = Cmd::new();
        match text {
            Text::Hash => cmd.arg("EVALSHA").arg(script.hash.as_str()),
            Text::Whole => cmd.arg("EVAL").arg(script.text.as_str()),
        };
        write(&mut cmd);
        cmd
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call after another, until nothing waits.
struct Lane {
    commit: Arc<Commit>,
    slot: u16,
    /// Whether it has left its queue already.
    left: bool,
    /// The shortest time that callers have, if theirs ends at all.
    shortest: Option<Duration>,
    /// When to look for those whose time is over.
    look: Option<Pin<Box<Sleep>>>,
}

impl Lane {
    async fn run(mut self) {
        let commit = Arc::clone(&self.commit);
        while self.stay() {
            // A connection first: until there is one, checks go on gathering.
            let connection = self.attend(None, commit.link.connection()).await;
            let Some(mut batch) = self.next() else { continue };
            batch.drop_the_gone();
            if batch.is_empty() {
                continue;
            }
            let alone = batch.len() == 1;
            let batch = Mutex::new(batch);
            let answer = self.attend(Some(&batch), commit.send(connection, self.slot, &batch, alone)).await;
            let batch = batch.into_inner().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Err(error) if error.is_torn_apart() && !alone => {
                    // Nothing was executed. Apart, so that nobody waits for those whose own keys are apart.
                    for batch in batch.split() {
                        let lane = Lane { commit: Arc::clone(&commit), left: true, look: None, ..self };
                        commit.runtime.spawn(lane.run_once(Mutex::new(batch)));
                    }
                }
                answer => batch.answer(answer),
            }
        }
    }

    async fn run_once(mut self, batch: Mutex<Batch>) {
        let commit = Arc::clone(&self.commit);
        let slot = self.slot;
        let send = async { commit.send(commit.link.connection().await, slot, &batch, true).await };
        let answer = self.attend(Some(&batch), send).await;
        batch.into_inner().unwrap_or_else(PoisonError::into_inner).answer(answer);
    }

    /// Waits for what is under way, and tells callers meanwhile when their time is over: one timer of a lane in the place of one
    /// of each caller.
    async fn attend<T>(&mut self, batch: Option<&Mutex<Batch>>, under_way: impl Future<Output = T>) -> T {
        let Some(shortest) = self.shortest else { return under_way.await };
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(shortest)));
        let mut under_way = pin!(under_way);
        loop {
            select! {
                biased;
                result = &mut under_way => return result,
                () = look.as_mut() => {
                    look.as_mut().reset(self.commit.tell_overdue(self.slot, batch, shortest));
                }
            }
        }
    }

    /// Whether something waits. Where nothing does, the lane is closed in the same breath: whoever comes next opens one.
    fn stay(&mut self) -> bool {
        let mut queues = self.commit.queues();
        if queues.of_slot.get(&self.slot).is_some_and(|queue| !queue.batches.is_empty()) {
            self.shortest = queues.shortest;
            return true;
        }
        queues.leave(self.slot);
        self.left = true;
        false
    }

    fn next(&self) -> Option<Batch> {
        let mut queues = self.commit.queues();
        let (batch, callers) = queues.of_slot.get_mut(&self.slot)?.batches.pop_front()?;
        queues.waiting -= callers;
        Some(batch)
    }
}

impl Drop for Lane {
    /// Where the runtime stops in the midst of a call.
    fn drop(&mut self) {
        if !self.left {
            self.commit.queues().leave(self.slot);
        }
    }
}

impl Queues {
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
