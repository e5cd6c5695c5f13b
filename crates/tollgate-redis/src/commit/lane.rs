//! Lanes: each makes one call after another, and what a call is for.

use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use super::{Commit, Queues, SETS, lock};
use crate::batch::Batch;

/// What a call is under way for, where the watcher finds it.
pub(super) struct Call {
    commit: Arc<Commit>,
    number: u64,
    batch: Arc<Mutex<Batch>>,
    /// How many of its callers count as waiting still.
    waiting: usize,
}

impl Call {
    fn new(commit: &Arc<Commit>, queues: &mut Queues, batch: Batch, waiting: usize) -> Call {
        let batch = Arc::new(Mutex::new(batch));
        queues.last_number += 1;
        queues.under_way.insert(queues.last_number, Arc::clone(&batch));
        queues.waiting += waiting;
        Call { commit: Arc::clone(commit), number: queues.last_number, batch, waiting }
    }

    pub(super) fn batch(&self) -> MutexGuard<'_, Batch> {
        lock(&self.batch)
    }

    /// By itself, beside all lanes.
    async fn run(self, slot: u16) {
        let connection = self.commit.link.connection(slot).await;
        let answer = self.commit.send(connection, slot, &self, true).await;
        self.end().answer(answer);
    }

    fn end(self) -> Batch {
        mem::take(&mut *self.batch())
    }

    /// A call for each of its sets. They do not hold up the calls behind them, and so their callers count as waiting.
    fn split(self) -> Vec<Call> {
        self.batch().drop_the_gone(self.commit.waits.now());
        // In one breath: there is no moment at which the watcher would find their callers nowhere.
        let mut queues = self.commit.queues();
        let batch = mem::take(&mut *self.batch());
        let call = |batch: Batch| {
            let callers = batch.callers();
            Call::new(&self.commit, &mut queues, batch, callers)
        };
        batch.split().map(call).collect()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut queues = self.commit.queues();
        queues.under_way.remove(&self.number);
        queues.waiting -= self.waiting;
    }
}

/// One call after another, until nothing waits.
pub(super) struct Lane {
    commit: Arc<Commit>,
    slot: u16,
    /// Whether it is that of a caller who is alone, so far.
    is_alone: bool,
    /// Whether it has left its queue already.
    left: bool,
}

impl Lane {
    pub(super) fn new(commit: Arc<Commit>, slot: u16, is_alone: bool) -> Lane {
        Lane { commit, slot, is_alone, left: false }
    }

    pub(super) async fn run(mut self) {
        while let Some(has_room) = self.stay() {
            if has_room && !mem::take(&mut self.is_alone) {
                // Those who were just answered, and who arrive at the same time, ask while this call can still carry them.
                step_back().await;
            }
            // A connection first: until there is one, checks go on gathering.
            let connection = self.commit.link.connection(self.slot).await;
            let Some(call) = self.next() else { continue };
            match self.commit.send(connection, self.slot, &call, false).await {
                Err(error) if error.is_torn_apart() => {
                    // Nothing was executed. Apart, so that nobody waits for those whose own keys are apart.
                    for call in call.split() {
                        self.commit.runtime.spawn(call.run(self.slot));
                    }
                }
                answer => call.end().answer(answer),
            }
        }
    }

    /// If something waits, whether what comes next can join it. Where nothing does, the lane is closed in the same breath: whoever
    /// comes next opens one.
    fn stay(&mut self) -> Option<bool> {
        let mut queues = self.commit.queues();
        if let Some(queue) = queues.of_slot.get(&self.slot)
            && let Some((first, _)) = queue.batches.front()
        {
            return Some(queue.batches.len() == 1 && first.len() < SETS);
        }
        queues.leave(self.slot);
        self.left = true;
        None
    }

    fn next(&self) -> Option<Call> {
        let mut queues = self.commit.queues();
        let queue = queues.of_slot.get_mut(&self.slot)?;
        let (batch, callers) = queue.batches.pop_front()?;
        queue.taken = batch.len();
        queues.waiting -= callers;
        queues.is_crowded = callers > 1;
        Some(Call::new(&self.commit, &mut queues, batch, 0))
    }
}

/// Lets those tasks run first that are ready to, and no others: `yield_now` would wait for a moment when its worker has nothing
/// to do, and until then no other worker could take this one over.
async fn step_back() {
    let mut is_last = false;
    poll_fn(|cx| {
        if mem::replace(&mut is_last, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for Lane {
    /// Where the runtime stops in the midst of a call.
    fn drop(&mut self) {
        if !self.left {
            self.commit.queues().leave(self.slot);
        }
    }
}
