//! Whether the server's clock is behind a time that it has shown before.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Timestamp;

/// What the replies of each slot showed of its server's clock. Without a Cluster there is one slot.
///
/// After a failover the clock of the new master may be slow. A TAT that the old one stored is then
/// too far ahead, and only this shows it: it could also be that of another version of a policy.
#[derive(Default)]
pub(crate) struct ServerClocks(Mutex<BTreeMap<u16, Shown>>);

/// What a slot's clock has shown.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    /// The latest time.
    latest: Timestamp,
    /// The time in the last reply, and that of this process then. `None` before the first.
    reply: Option<(Timestamp, Timestamp)>,
    /// Whether a later reply had an older time, and none has reached the latest since.
    pub(super) is_behind: bool,
}

impl ServerClocks {
    /// What a slot has shown before a call is written.
    pub(super) fn before(&self, slot: u16) -> Shown {
        let never = Shown { latest: Timestamp::EPOCH, reply: None, is_behind: false };
        self.slots().get(&slot).copied().unwrap_or(never)
    }

    /// Notes the time in the reply to a call, before which the slot had shown `before`, and the
    /// time of this process. Returns whether the clock is behind, and the call was written for one
    /// that runs forward.
    ///
    /// Calls in flight may be answered in any order, so a reply is only compared with replies from
    /// before its call.
    pub(super) fn answered(&self, slot: u16, before: Shown, now: Timestamp, own: Timestamp) -> bool {
        let mut slots = self.slots();
        let shown = slots.entry(slot).or_insert(before);
        shown.reply = Some((now, own));
        if now >= shown.latest {
            (shown.latest, shown.is_behind) = (now, false);
        } else if now < before.latest {
            shown.is_behind = true;
        }
        shown.is_behind && !before.is_behind
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<u16, Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    /// About the time that the clock shows at `own`, which this process takes for it before the
    /// first reply.
    pub(super) fn at(&self, own: Timestamp) -> Timestamp {
        self.reply.map_or(own, |(now, then)| now.saturating_add(own.saturating_since(then)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(clocks: &ServerClocks, before: Shown, us: u64) -> bool {
        clocks.answered(7, before, Timestamp::from_micros(us), Timestamp::EPOCH)
    }

    #[test]
    fn a_clock_is_behind_from_an_older_reply_until_the_latest_time_is_reached() {
        let clocks = ServerClocks::default();
        assert!(!answered(&clocks, clocks.before(7), 1_000));
        assert!(answered(&clocks, clocks.before(7), 400));
        assert!(clocks.before(7).is_behind && !clocks.before(8).is_behind);
        assert!(!answered(&clocks, clocks.before(7), 999), "the call was written for it");
        assert!(clocks.before(7).is_behind);
        assert!(!answered(&clocks, clocks.before(7), 1_000));
        assert!(!clocks.before(7).is_behind);
    }

    #[test]
    fn replies_to_calls_in_flight_come_in_any_order() {
        let clocks = ServerClocks::default();
        answered(&clocks, clocks.before(7), 1_000);
        let sent = clocks.before(7);
        assert!(!answered(&clocks, sent, 1_200));
        assert!(!answered(&clocks, sent, 1_100), "executed before the one above");
        assert!(answered(&clocks, clocks.before(7), 1_199));
    }

    #[test]
    fn the_last_reply_sets_the_time_also_if_the_clock_stepped_back() {
        let (clocks, at) = (ServerClocks::default(), Timestamp::from_micros);
        assert_eq!(clocks.before(7).at(at(5)), at(5));
        for (shown, own) in [(1_000, 20), (400, 30)] {
            clocks.answered(7, clocks.before(7), at(shown), at(own));
            assert_eq!(clocks.before(7).at(at(own + 3)), at(shown + 3));
        }
        assert_eq!(clocks.before(8).at(at(5)), at(5));
    }
}
