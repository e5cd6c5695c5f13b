//! A lane makes one call after another; a call carries a load to the server.

use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bb8_redis::redis::Value;

use super::caller::Overdue;
use super::group::{Group, Load, Queues, lock};
use crate::error::{Cause, Error, next_call};
use crate::link::{Connection, Text};

/// A load in flight, where the task that watches deadlines finds it.
struct Call<L: Load> {
    group: Arc<Group<L>>,
    number: u64,
    load: Arc<Mutex<L>>,
    /// How many of its callers still count as queued.
    waiting: usize,
}

impl<L: Load> Call<L> {
    /// The next load of a slot, if any is queued.
    fn next(group: &Arc<Group<L>>, slot: u16) -> Option<Call<L>> {
        let mut queues = group.queues();
        let load = queues.pop(slot)?;
        Some(Call::new(group, &mut queues, load, 0))
    }

    fn new(group: &Arc<Group<L>>, queues: &mut Queues<L>, load: L, waiting: usize) -> Call<L> {
        let (load, number) = (Arc::new(Mutex::new(load)), next_call());
        queues.in_flight.insert(number, Arc::clone(&load));
        queues.count_waiting(waiting);
        Call { group: Arc::clone(group), number, load, waiting }
    }

    /// Sends the load. While its slot moves, the server may answer `TRYAGAIN`. A load that is one
    /// part cannot be split further, so the call is repeated in here for a while.
    async fn send(
        &self,
        connection: Result<Connection<'_>, Error>,
        slot: u16,
        is_one_part: bool,
    ) -> Result<Value, Error> {
        let target = &self.group.target;
        // Known only after the load was written, without those that have left.
        let work = AtomicU32::new(0);
        let build = |text: Text| {
            let mut overdue = Overdue::new(target.waits.now());
            let mut load = lock(&self.load);
            load.take_overdue(&mut overdue, &|_| Cause::Queued.into());
            load.drop_abandoned();
            work.store(load.work(), Ordering::Relaxed);
            let command = load.command(target, text);
            drop(load);
            overdue.notify();
            command
        };
        let connection = connection.map_err(|error| error.of_call(self.number))?;
        let sent = target.waits.now();
        let answer = connection.run(slot, &build, is_one_part).await;
        if answer.as_ref().err().is_none_or(Error::is_reply) {
            self.group.answered(slot, work.into_inner(), sent);
        }
        answer.map_err(|error| error.of_call(self.number))
    }

    /// Runs the call outside of any lane.
    async fn run_alone(self, slot: u16) {
        let connection = self.group.target.link.connection(slot).await;
        let answer = self.send(connection, slot, true).await;
        self.end().answer(answer);
    }

    fn end(self) -> L {
        mem::take(&mut *lock(&self.load))
    }

    /// A call for each part of the load. They do not hold up the calls behind them, so their
    /// callers count as queued.
    fn split(self) -> Vec<Call<L>> {
        // Under one lock, so that the task that watches deadlines finds every caller at all times.
        let mut queues = self.group.queues();
        let load = mem::take(&mut *lock(&self.load));
        let call = |load: L| {
            let callers = load.callers();
            Call::new(&self.group, &mut queues, load, callers)
        };
        load.split().into_iter().map(call).collect()
    }
}

impl<L: Load> Drop for Call<L> {
    fn drop(&mut self) {
        let mut queues = self.group.queues();
        queues.in_flight.remove(&self.number);
        queues.uncount_waiting(self.waiting);
    }
}

/// Makes one call after another, until nothing is queued.
pub(super) struct Lane<L: Load> {
    group: Arc<Group<L>>,
    slot: u16,
    is_closed: bool,
}

impl<L: Load> Lane<L> {
    pub(super) fn new(group: Arc<Group<L>>, slot: u16) -> Lane<L> {
        Lane { group, slot, is_closed: false }
    }

    pub(super) async fn run(mut self) {
        while let Some(has_room) = self.group.next_has_room(self.slot) {
            if has_room {
                // Callers that were just answered often ask again at once, and this call can still
                // carry them: 1.2 × as many decisions (peers, 64 tasks).
                yield_once().await;
            }
            // First a connection: until there is one, requests go on gathering.
            let connection = self.group.target.link.connection(self.slot).await;
            let Some(call) = Call::next(&self.group, self.slot) else { continue };
            match call.send(connection, self.slot, false).await {
                Err(error) if error.is_try_again() => {
                    // Nothing was executed. Each part goes alone, so that only the keys that move
                    // are held up.
                    for call in call.split() {
                        self.group.target.runtime.spawn(call.run_alone(self.slot));
                    }
                }
                answer => call.end().answer(answer),
            }
        }
        self.is_closed = true;
    }
}

impl<L: Load> Drop for Lane<L> {
    /// Closes the lane if its runtime stops during a call.
    fn drop(&mut self) {
        if !self.is_closed {
            self.group.close_lane(self.slot);
        }
    }
}

/// Lets tasks run that are ready. `tokio::task::yield_now` would wait until the worker is idle, and
/// meanwhile no other worker could take this task over.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
