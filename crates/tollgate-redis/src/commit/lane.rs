//! A lane makes one call after another; a call carries a load to the server.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use bb8_redis::redis::{Cmd, Value};
use tokio::time::sleep;

use super::caller::{Overdue, span};
use super::group::{Group, InFlight, Load, Queues};
use crate::error::{Cause, Error, next_call};
use crate::link::{CallConnection, Moving, Text};

/// A call in flight. The task that watches deadlines finds its load by the number.
struct Call<L: Load> {
    group: Arc<Group<L>>,
    number: u64,
    /// How many of its callers still count as queued.
    waiting: usize,
}

impl<L: Load> Call<L> {
    /// The next load of a hash slot, if any is queued.
    fn next(group: &Arc<Group<L>>, hash_slot: u16) -> Option<Call<L>> {
        let mut queues = group.queues();
        let load = queues.pop(hash_slot)?;
        group.notify_if_idle(&queues);
        Some(Call::new(group, &mut queues, hash_slot, load, 0))
    }

    fn new(
        group: &Arc<Group<L>>,
        queues: &mut Queues<L>,
        hash_slot: u16,
        load: L,
        waiting: usize,
    ) -> Call<L> {
        let number = next_call();
        queues.in_flight.insert(number, InFlight { load, hash_slot, is_moving: false });
        queues.count_waiting(waiting);
        Call { group: Arc::clone(group), number, waiting }
    }

    /// Sends the load. `moving` says what to do while its hash slot moves: see
    /// [`CallConnection::run`].
    async fn send(
        &self,
        connection: Result<CallConnection<'_>, Error>,
        hash_slot: u16,
        moving: Moving<'_>,
    ) -> Result<Value, Error> {
        // Known only after the load was written, without those that have left.
        let work = AtomicU32::new(0);
        let build = |text: Text| {
            let (command, written) = self.write(text)?;
            work.store(written, Ordering::Relaxed);
            command
        };
        let connection = connection.map_err(|error| error.of_call(self.number))?;
        let sent = self.group.context.waits.now();
        let answer = connection.run(hash_slot, &build, moving).await;
        if answer.as_ref().err().is_none_or(Error::is_reply) {
            self.group.answered(hash_slot, work.into_inner(), sent);
        }
        answer.map_err(|error| {
            let silence = error.is_unanswered().then(|| self.group.silence(hash_slot, sent)).flatten();
            error.of_call(silence.unwrap_or(self.number))
        })
    }

    /// Writes the command, and returns the work that it carries. Writing takes a while, and other
    /// callers need the queues: so the load is taken out meanwhile.
    fn write(&self, text: Text) -> Option<(Option<Cmd>, u32)> {
        let context = &self.group.context;
        let mut call = self.group.queues().in_flight.remove(&self.number)?;
        let mut command;
        loop {
            let mut overdue = Overdue::new(context.waits.now());
            call.load.take_overdue(&mut overdue, &mut |_| Cause::Queued.into());
            overdue.notify();
            call.load.drop_abandoned();
            command = call.load.command(context, text, context.server_time(call.hash_slot));
            // A deadline that passes while we write is no failure of the server: it is not sent.
            let now = context.waits.now();
            if call.load.first_end().is_none_or(|end| end > now) {
                break;
            }
        }
        call.is_moving = false;
        if self.group.is_behind() {
            call.load.forget_deadlines();
        }
        let (work, until) = (call.load.work(), call.load.first_end());
        let mut queues = self.group.queues();
        queues.in_flight.insert(self.number, call);
        self.group.watch_until(queues, until);
        Some((command, work))
    }

    /// Notes that the node refuses the call while its hash slot moves.
    fn note_moving(&self) {
        if let Some(call) = self.group.queues().in_flight.get_mut(&self.number) {
            call.is_moving = true;
        }
    }

    fn has_one_caller(&self) -> bool {
        self.group.queues().in_flight.get(&self.number).is_some_and(|call| call.load.callers() == 1)
    }

    /// Runs the call outside of any lane.
    async fn run_alone(self, hash_slot: u16) {
        let connection = self.group.context.link.connection(hash_slot).await;
        let answer = self.send(connection, hash_slot, Some(&|| self.note_moving())).await;
        self.answer(answer);
    }

    /// Answers the callers.
    fn answer(self, answer: Result<Value, Error>) {
        let call = self.group.queues().in_flight.remove(&self.number);
        let Some(InFlight { load, hash_slot, .. }) = call else { return };
        let context = &self.group.context;
        load.answer(answer, &|now| context.answered(hash_slot, now));
    }

    /// A call for each part of the load. They do not hold up the calls behind them, so their
    /// callers count as queued.
    fn split(self) -> Vec<Call<L>> {
        // Under one lock, so that the task that watches deadlines finds every caller at all times.
        let mut queues = self.group.queues();
        let Some(InFlight { load, hash_slot, .. }) = queues.in_flight.remove(&self.number) else {
            return Vec::new();
        };
        let call = |load: L| {
            let callers = load.callers();
            Call::new(&self.group, &mut queues, hash_slot, load, callers)
        };
        load.split().into_iter().map(call).collect()
    }
}

impl<L: Load> Drop for Call<L> {
    fn drop(&mut self) {
        let mut queues = self.group.queues();
        // Dropped after the lock, which the callers that it notifies may need.
        let _load = queues.in_flight.remove(&self.number);
        queues.uncount_waiting(self.waiting);
        self.group.notify_if_idle(&queues);
        drop(queues);
    }
}

/// Makes one call after another, until nothing is queued.
pub(super) struct Lane<L: Load> {
    group: Arc<Group<L>>,
    hash_slot: u16,
    is_closed: bool,
}

impl<L: Load> Lane<L> {
    pub(super) fn new(group: Arc<Group<L>>, hash_slot: u16) -> Lane<L> {
        Lane { group, hash_slot, is_closed: false }
    }

    pub(super) async fn run(mut self) {
        let group = Arc::clone(&self.group);
        let mut next = self.next_has_room();
        while let Some(has_room) = next {
            if has_room {
                // Callers that were just answered often ask again at once, and this call can still
                // carry them: 1.2 × as many decisions (peers, 64 tasks).
                yield_once().await;
            }
            // First a connection: until there is one, requests go on gathering.
            let connection = group.context.link.connection(self.hash_slot).await;
            let turn = group.turn().await;
            let began = group.context.waits.now();
            let Some(call) = Call::next(&group, self.hash_slot) else {
                drop(connection);
                next = self.next_has_room();
                continue;
            };
            let answer = call.send(connection, self.hash_slot, None).await;
            // A lone caller that asks again at once would find a lane that is still open, and start
            // another, which opens one connection too many. Where there are several, another lane
            // is wanted: 1.6 × as many decisions (peers, 64 tasks, the store alone).
            let is_alone = call.has_one_caller();
            if is_alone {
                next = self.next_has_room();
            }
            match answer {
                Err(error) if error.is_try_again() => {
                    // Nothing was executed. Each part goes alone, so that only the keys that move
                    // are held up.
                    for call in call.split() {
                        group.context.runtime.spawn(call.run_alone(self.hash_slot));
                    }
                }
                answer => call.answer(answer),
            }
            if !is_alone {
                next = self.next_has_room();
            }
            if turn.is_some() {
                // At most half of the time is that of rules in shadow, and less on a busy server.
                sleep(span(began, group.context.waits.now())).await;
            }
        }
    }

    /// [`Group::next_has_room`]. After `None` the lane is closed.
    fn next_has_room(&mut self) -> Option<bool> {
        let next = self.group.next_has_room(self.hash_slot);
        self.is_closed = next.is_none();
        next
    }
}

impl<L: Load> Drop for Lane<L> {
    /// Closes the lane if its runtime stops during a call.
    fn drop(&mut self) {
        if !self.is_closed {
            self.group.close_lane(self.hash_slot);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_that_are_ready_run_before_a_call_takes_its_load() {
        let ready = tokio::spawn(async {});
        yield_once().await;
        assert!(ready.is_finished());
    }
}
