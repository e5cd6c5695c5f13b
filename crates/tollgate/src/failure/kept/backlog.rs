//! The list of corrections that are kept.

use std::collections::HashMap;
use std::mem;

use tokio::task::JoinHandle;
use tollgate_core::{Key, Policy, Timestamp};

use super::outstanding::{Corrections, Due, Outstanding};

/// What became of the corrections that a store [keeps](super::super::Answering::keep_corrections).
/// Those that merge count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorrectionCounts {
    /// Are kept now.
    pub waiting: usize,
    /// Were executed by the store after they were kept.
    pub sent: u64,
    /// Were dropped because what they correct was over.
    pub expired: u64,
    /// Were not kept because there was no room. Their units are
    /// [forgiven](crate::store::Settled::forgiven), or stay charged.
    pub refused: u64,
    /// Were sent after they were kept, and not answered: they may have been executed.
    pub unknown: u64,
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: HashMap<Outstanding, Due>,
    /// Are being sent. Those that were not executed wait again.
    sending: HashMap<Outstanding, Due>,
    counts: CorrectionCounts,
    /// Sends what waits.
    task: Option<JoinHandle<()>>,
}

impl Backlog {
    /// Adds corrections, or none of them if that would be more than `most`.
    pub(super) fn add(&mut self, corrections: Corrections, now: Timestamp, most: usize) -> bool {
        let new =
            corrections.iter().filter(|(correction, ..)| !self.waiting.contains_key(correction)).count();
        if self.waiting.len() + self.sending.len() + new > most {
            self.counts.refused += corrections.len() as u64;
            return false;
        }
        for (correction, units, stamp) in corrections {
            let until = correction.ends(stamp, now);
            self.wait(correction, Due { units, until }, now);
        }
        true
    }

    pub(super) fn is_being_sent(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// `None` without a runtime: a later correction may bring one.
    pub(super) fn sent_by(&mut self, task: Option<JoinHandle<()>>) {
        self.task = task;
    }

    /// Whether nothing is left to send, so that the next correction needs a new task.
    pub(super) fn stops_if_empty(&mut self) -> bool {
        let is_empty = self.waiting.is_empty();
        if is_empty {
            self.task = None;
        }
        is_empty
    }

    pub(super) fn forget(&mut self, key: &Key, policies: &[&Policy]) {
        let stays =
            |correction: &Outstanding| !policies.iter().any(|policy| correction.concerns(policy, key));
        self.waiting.retain(|correction, _| stays(correction));
        self.sending.retain(|correction, _| stays(correction));
    }

    pub(super) fn counts(&self) -> CorrectionCounts {
        CorrectionCounts { waiting: self.waiting.len() + self.sending.len(), ..self.counts }
    }

    /// Begins to send what waits and is not over.
    pub(super) fn begin(&mut self, now: Timestamp) -> Vec<(Outstanding, u64)> {
        // Left by a task whose runtime has stopped. They may have been executed.
        self.counts.unknown += mem::take(&mut self.sending).len() as u64;
        let before = self.waiting.len();
        self.waiting.retain(|_, due| due.until > now);
        self.counts.expired += (before - self.waiting.len()) as u64;
        self.sending = mem::take(&mut self.waiting);
        let each = self.sending.iter().map(|(correction, due)| (correction.clone(), due.units));
        let mut due: Vec<(Outstanding, u64)> = each.collect();
        // After charges by a larger quota, those by a smaller one may be beyond its debt.
        due.sort_unstable_by_key(|(correction, _)| correction.capacity());
        due
    }

    /// Whether it is still to be sent.
    pub(super) fn is_due(&self, correction: &Outstanding) -> bool {
        self.sending.contains_key(correction)
    }

    pub(super) fn done(&mut self, correction: &Outstanding) {
        self.sending.remove(correction);
    }

    pub(super) fn count_unknown(&mut self) {
        self.counts.unknown += 1;
    }

    /// Lets wait again what was not executed.
    pub(super) fn end(&mut self, executed: u64, now: Timestamp) {
        self.counts.sent += executed;
        for (correction, due) in mem::take(&mut self.sending) {
            self.wait(correction, due, now);
        }
    }

    /// Lets a correction wait, with what waits already. What is over does not merge.
    fn wait(&mut self, correction: Outstanding, due: Due, now: Timestamp) {
        let waiting = self.waiting.entry(correction).or_default();
        if waiting.until <= now {
            *waiting = due;
        } else if due.until > now {
            waiting.units = waiting.units.saturating_add(due.units);
            waiting.until = waiting.until.max(due.until);
        }
    }
}
