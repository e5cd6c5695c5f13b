//! About the time that a server's clock shows, for calendar windows, and its steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::Timestamp;

/// A clock that is off by more than this has stepped: no reply waits that long to be read.
const STEP: Duration = Duration::from_secs(10);

/// The time in the last reply of each hash slot's server, and that of this process then. Without a
/// Cluster there is one hash slot.
#[derive(Default)]
pub(crate) struct ServerClocks(Mutex<BTreeMap<u16, (Timestamp, Timestamp)>>);

impl ServerClocks {
    /// About the time that a hash slot's clock shows at `own`, which this process takes for it
    /// before the first reply.
    pub(super) fn now(&self, hash_slot: u16, own: Timestamp) -> Timestamp {
        let reply = self.hash_slots().get(&hash_slot).copied();
        reply.map_or(own, |(now, then)| now.saturating_add(own.saturating_since(then)))
    }

    /// Notes the time in a reply, and the time of this process. Returns whether the clock stepped.
    pub(super) fn answered(&self, hash_slot: u16, now: Timestamp, own: Timestamp) -> bool {
        let earlier = self.hash_slots().insert(hash_slot, (now, own));
        earlier.is_some_and(|(shown, then)| {
            let expected = shown.saturating_add(own.saturating_since(then));
            now.saturating_since(expected).max(expected.saturating_since(now)) > STEP
        })
    }

    fn hash_slots(&self) -> MutexGuard<'_, BTreeMap<u16, (Timestamp, Timestamp)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reply_sets_the_time_also_if_the_clock_stepped_back() {
        let (clocks, at) = (ServerClocks::default(), Timestamp::from_micros);
        assert_eq!(clocks.now(7, at(5)), at(5));
        for (shown, own) in [(1_000, 20), (400, 30)] {
            clocks.answered(7, at(shown), at(own));
            assert_eq!(clocks.now(7, at(own + 3)), at(shown + 3));
        }
        assert_eq!(clocks.now(8, at(5)), at(5));
    }

    #[test]
    fn a_clock_steps_if_it_is_off_by_more_than_ten_seconds() {
        let (clocks, at) =
            (ServerClocks::default(), |seconds: u64| Timestamp::from_micros(seconds * 1_000_000));
        let steps = [
            (1_000, 20),
            (1_010, 20),
            (1_400, 410),
            (1_411, 410),
            (1_410, 420),
            (1_399, 420),
            (3_000, 1_000),
        ]
        .map(|(shown, own)| clocks.answered(3, at(shown), at(own)));
        assert_eq!(steps, [false, false, false, true, true, true, true]);
        assert!(!clocks.answered(4, at(9), at(1_000)), "another server");
    }
}
