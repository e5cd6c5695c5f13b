//! When units are given back, and by which task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::Timestamp;

use super::account::Unspent;
use crate::table::digest::Digest;
use crate::table::sharded::lock;

/// Ends within this part of a life are handled together.
const END_TOGETHER: u32 = 16;

/// Units are refunded again after this time, if nothing of their refund was executed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// For how long units are refunded again. Then they stay charged.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// The ends of leases, and the units that are refunded again. One task at a time returns them. If
/// its runtime is not driven, a task of another runtime takes over.
pub(super) struct Agenda {
    life: Duration,
    state: Mutex<AgendaState>,
    /// From this time another task takes over, in microseconds, so that most requests need no lock.
    overdue_from: AtomicU64,
}

#[derive(Default)]
struct AgendaState {
    /// The ends of leases, the next one first.
    ends: BinaryHeap<Reverse<(Timestamp, Digest)>>,
    /// Units of which nothing was refunded, and when that is tried again.
    unrefunded: Vec<(Digest, Unspent)>,
    retry: Timestamp,
    /// The number of the task that returns units, and when it began. `None` if none does.
    turn: u64,
    began: Option<Timestamp>,
}

impl Agenda {
    pub(super) fn new(life: Duration) -> Agenda {
        Agenda { life, state: Mutex::default(), overdue_from: AtomicU64::new(u64::MAX) }
    }

    /// Adds the end of a lease.
    pub(super) fn add(&self, ends: Timestamp, of: Digest) {
        self.change(|state| state.ends.push(Reverse((ends, of))));
    }

    /// Takes the key of a lease that ends by `time`.
    pub(super) fn next_ended(&self, time: Timestamp) -> Option<Digest> {
        self.change(|state| {
            state.ends.peek().filter(|Reverse((ends, _))| *ends <= time)?;
            state.ends.pop().map(|Reverse((_, digest))| digest)
        })
    }

    /// Keeps units for another refund, unless that was tried for too long.
    pub(super) fn keep(&self, of: Digest, unspent: Unspent, now: Timestamp) {
        if now < unspent.since.saturating_add(RETRY_FOR) {
            self.change(|state| {
                if state.unrefunded.is_empty() {
                    state.retry = now.saturating_add(RETRY_AFTER);
                }
                state.unrefunded.push((of, unspent));
            });
        }
    }

    /// Takes the units whose refund is tried again by `time`.
    pub(super) fn take_kept(&self, time: Timestamp) -> Vec<(Digest, Unspent)> {
        self.change(|state| if state.retry <= time { mem::take(&mut state.unrefunded) } else { Vec::new() })
    }

    /// The units that are refunded again.
    pub(super) fn kept_units(&self) -> u64 {
        lock(&self.state).unrefunded.iter().map(|(_, unspent)| u64::from(unspent.units)).sum()
    }

    /// Drops the units of a key that were kept.
    pub(super) fn forget(&self, of: &Digest) {
        self.change(|state| state.unrefunded.retain(|(kept, _)| kept != of));
    }

    /// How long until there is something to give back. `None` if there is nothing.
    pub(super) fn next(&self, now: Timestamp) -> Option<Duration> {
        let due = lock(&self.state).due()?;
        Some(due.saturating_since(now))
    }

    /// Whether a task has to begin to return units: none does, or it is late.
    #[inline]
    pub(super) fn is_overdue(&self, now: impl FnOnce() -> Timestamp) -> bool {
        match self.overdue_from.load(Ordering::Acquire) {
            u64::MAX => false,
            0 => true,
            from => from <= now().as_micros(),
        }
    }

    /// Makes the caller the task that returns units, if one is needed. Returns its number.
    pub(super) fn begin(&self, now: Timestamp) -> Option<u64> {
        self.change(|state| {
            if !self.is_overdue(|| now) {
                return None;
            }
            state.turn += 1;
            state.began = Some(now);
            Some(state.turn)
        })
    }

    /// How long the task of this number waits before it returns units. `None` ends it: there is
    /// nothing to return, or another task has taken over.
    pub(super) fn next_of(&self, turn: u64, now: Timestamp) -> Option<Duration> {
        self.change(|state| {
            if state.turn != turn {
                return None;
            }
            let Some(due) = state.due() else {
                state.began = None;
                return None;
            };
            let left = due.saturating_since(now);
            Some(left.max(self.life / END_TOGETHER))
        })
    }

    /// The task of this number has ended, if it has begun at all.
    pub(super) fn ended(&self, turn: u64) {
        self.change(|state| {
            if state.turn == turn {
                state.began = None;
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut AgendaState) -> T) -> T {
        let mut state = lock(&self.state);
        let changed = change(&mut state);
        let overdue_from = match (state.due(), state.began) {
            (None, _) => u64::MAX,
            (Some(_), None) => 0,
            // Not for a worker that is held up for a moment.
            (Some(due), Some(began)) => {
                let late = self.life / 4 + Duration::from_millis(10);
                due.max(began).saturating_add(late).as_micros()
            }
        };
        self.overdue_from.store(overdue_from, Ordering::Release);
        changed
    }
}

impl AgendaState {
    /// When there is something to give back.
    fn due(&self) -> Option<Timestamp> {
        let ends = self.ends.peek().map(|Reverse((ends, _))| *ends);
        let retry = (!self.unrefunded.is_empty()).then_some(self.retry);
        ends.into_iter().chain(retry).min()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Key, Policy, Quota, Stamp};

    use super::*;
    use crate::table::digest::Secret;

    const LIFE: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 + ms * 1_000)
    }

    fn digest() -> Digest {
        Secret::random().digest(0, b"ada")
    }

    fn unspent(since: Timestamp) -> Unspent {
        let (policy, key) = (Policy::new("p", Quota::per_day(1)), Key::from("ada"));
        Unspent { policy, key, units: 1, stamp: Stamp::default(), since }
    }

    #[test]
    fn another_task_takes_over_only_if_an_end_is_overdue() {
        let agenda = Agenda::new(LIFE);
        assert_eq!(agenda.begin(at(0)), None, "there is nothing to return");
        agenda.add(at(100), digest());
        assert_eq!(agenda.begin(at(0)), Some(1));
        assert_eq!(agenda.begin(at(134)), None, "it may be held up for a moment");
        assert_eq!(agenda.begin(at(135)), Some(2));
        assert_eq!(agenda.begin(at(136)), None, "the second has just begun");
        assert_eq!(agenda.next_of(1, at(136)), None, "the turn of the first is over");
        agenda.ended(1);
        assert_eq!(agenda.begin(at(136)), None, "the second goes on");
        assert_eq!(agenda.next_of(2, at(136)), Some(LIFE / END_TOGETHER));
        agenda.ended(2);
        assert_eq!(agenda.begin(at(136)), Some(3), "its runtime has ended");
        assert!(agenda.next_ended(at(136)).is_some());
        assert_eq!(agenda.next_of(3, at(136)), None, "all is returned");
        assert!(!agenda.is_overdue(|| at(10_000)));
    }

    #[test]
    fn refunds_are_tried_again_each_second_for_a_minute() {
        let (agenda, of) = (Agenda::new(LIFE), digest());
        agenda.keep(of, unspent(at(0)), at(0));
        agenda.keep(of, unspent(at(500)), at(500));
        assert!(agenda.take_kept(at(999)).is_empty());
        assert_eq!(agenda.next(at(900)), Some(LIFE), "the second does not put off the first");
        assert_eq!(agenda.take_kept(at(1_000)).len(), 2);
        agenda.keep(of, unspent(at(0)), at(59_999));
        assert!(agenda.next(at(59_999)).is_some());
        agenda.forget(&of);
        assert_eq!(agenda.next(at(59_999)), None);
        agenda.keep(of, unspent(at(0)), at(60_000));
        assert_eq!(agenda.next(at(60_000)), None, "it stays charged");
    }
}
