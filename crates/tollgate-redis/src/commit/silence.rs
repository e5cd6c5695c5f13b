//! Which failure a missed deadline is. One silence of a node is one failure, however many callers
//! and calls wait for it.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::Timestamp;

use super::caller::{Deadline, span};
use crate::error::next_call;

/// The last silence of each node.
#[derive(Default)]
pub(super) struct Silences(BTreeMap<u64, Silence>);

/// A time in which a node answered no call.
struct Silence {
    /// When the first caller that it made late had asked.
    since: Timestamp,
    /// When the node answered again.
    ended: Option<Timestamp>,
    number: u64,
}

/// An ended silence is forgotten after this time. By then no caller of it waits.
const KEPT: Duration = Duration::from_secs(600);

impl Silences {
    /// The number of the failure that a missed deadline is: that of the silence in which it passed.
    ///
    /// A stall of the node, such as a fork or a slow command of another client, makes many callers
    /// late at once. A silence of twice the caller's limit or more is no stall. From then on each
    /// late caller is a failure of its own, without a number, so that a circuit breaker opens.
    pub(super) fn number(&mut self, node: u64, deadline: Deadline, now: Timestamp) -> Option<u64> {
        let limit = span(deadline.asked, deadline.until);
        let new = || Silence { since: deadline.asked, ended: None, number: next_call() };
        let silence = self.0.entry(node).or_insert_with(new);
        if silence.ended.is_some_and(|ended| ended < deadline.asked) {
            *silence = new();
        }
        let lasts = silence.ended.is_none() && span(silence.since, now) >= limit.saturating_mul(2);
        (!lasts).then_some(silence.number)
    }

    /// Notes that a node has answered a call.
    pub(super) fn answered(&mut self, node: impl FnOnce() -> u64, now: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        if let Some(silence) = self.0.get_mut(&node()) {
            silence.ended.get_or_insert(now);
        }
        self.0.retain(|_, silence| silence.ended.is_none_or(|ended| span(ended, now) < KEPT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_US: u64 = 50_000;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(us)
    }

    /// The failure of a caller that asked then and was late `after` its deadline.
    fn late(silences: &mut Silences, asked: u64, after: u64) -> Option<u64> {
        let deadline = Deadline { asked: at(asked), until: at(asked + LIMIT_US) };
        silences.number(0, deadline, at(asked + LIMIT_US + after))
    }

    #[test]
    fn all_callers_of_a_stall_share_one_failure() {
        let mut silences = Silences::default();
        let first = late(&mut silences, 1_000, 0);
        assert!(first.is_some());
        for asked in (1_000..30_000).step_by(500) {
            assert_eq!(late(&mut silences, asked, 100), first);
        }
        silences.answered(|| 0, at(81_000));
        // Asked before the node answered again, on another connection.
        assert_eq!(late(&mut silences, 80_000, 0), first);
        let next = late(&mut silences, 200_000, 0);
        assert!(next.is_some() && next != first, "the next stall");
    }

    #[test]
    fn in_a_silence_that_lasts_each_late_caller_is_a_failure() {
        let mut silences = Silences::default();
        let first = late(&mut silences, 1_000, 0);
        assert_eq!(late(&mut silences, 50_000, 0), first);
        assert_eq!(late(&mut silences, 51_000, 0), None);
        assert_eq!(late(&mut silences, 51_001, 0), None);
    }

    #[test]
    fn nodes_are_silent_each_for_itself() {
        let mut silences = Silences::default();
        let deadline = Deadline { asked: at(1_000), until: at(1_000 + LIMIT_US) };
        let mut number = |node| silences.number(node, deadline, deadline.until);
        let (a, b) = (number(1), number(2));
        assert_ne!(a, b);
        assert_eq!((number(1), number(2)), (a, b));
        silences.answered(|| 1, at(60_000));
        silences.answered(|| 2, at(1_000_000_000));
        assert_eq!(silences.0.len(), 1, "silences of ten minutes ago are forgotten");
    }
}
