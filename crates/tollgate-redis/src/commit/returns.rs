//! Refunds, releases, renewals and resets on their way to their queues, in parts that one call
//! carries.

use std::collections::VecDeque;

use super::pace::MOST_WORK_OF_REFUNDS;
use super::refund_batch::RefundEntry;
use super::return_kind::ReturnKind;

/// Entries of one kind and one hash slot of a Cluster.
struct ReturnParts {
    hash_slot: u16,
    kind: ReturnKind,
    parts: VecDeque<ReturnPart>,
}

#[derive(Default)]
struct ReturnPart {
    entries: Vec<RefundEntry>,
    work: u32,
}

/// Entries to be sent, in parts of the most work that a call carries. The parts of one hash slot
/// and one kind are sent one after the other, so that others get their turn between them.
#[derive(Default)]
pub(crate) struct Returns(Vec<ReturnParts>);

impl Returns {
    pub(crate) fn add(&mut self, hash_slot: u16, entry: RefundEntry) {
        let kind = entry.kind();
        let at = self.0.iter().position(|parts| (parts.hash_slot, parts.kind) == (hash_slot, kind));
        let at = at.unwrap_or_else(|| {
            self.0.push(ReturnParts { hash_slot, kind, parts: VecDeque::new() });
            self.0.len() - 1
        });
        let (parts, work) = (&mut self.0[at].parts, entry.work());
        if parts.back().is_none_or(|last| last.work.saturating_add(work) > MOST_WORK_OF_REFUNDS) {
            parts.push_back(ReturnPart::default());
        }
        if let Some(last) = parts.back_mut() {
            last.work = last.work.saturating_add(work);
            last.entries.push(entry);
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &RefundEntry> {
        self.0.iter().flat_map(|parts| &parts.parts).flat_map(|part| &part.entries)
    }

    /// How many calls the entries need at least.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|parts| parts.parts.len()).sum()
    }

    /// Sends the next part of each hash slot and kind by `send`, and returns what it returned, or
    /// `None` at the end.
    pub(crate) fn send_next<T>(&mut self, send: impl FnMut(u16, Vec<RefundEntry>) -> T) -> Option<Vec<T>> {
        let mut send = send;
        self.0.retain(|parts| !parts.parts.is_empty());
        let next = |parts: &mut ReturnParts| Some((parts.hash_slot, parts.parts.pop_front()?.entries));
        let sent: Vec<T> =
            self.0.iter_mut().filter_map(next).map(|(hash_slot, part)| send(hash_slot, part)).collect();
        (!sent.is_empty()).then_some(sent)
    }

    /// Drops the parts behind those that were sent last and failed.
    pub(crate) fn drop_behind<T, E>(&mut self, answers: &[Result<T, E>]) {
        for (parts, answer) in self.0.iter_mut().zip(answers) {
            if answer.is_err() {
                parts.parts.clear();
            }
        }
    }
}

impl FromIterator<(u16, RefundEntry)> for Returns {
    fn from_iter<I: IntoIterator<Item = (u16, RefundEntry)>>(entries: I) -> Returns {
        let mut returns = Returns::default();
        entries.into_iter().for_each(|(hash_slot, entry)| returns.add(hash_slot, entry));
        returns
    }
}
