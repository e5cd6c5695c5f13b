//! About the time that a server's clock shows, for calendar windows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Timestamp;

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

    /// Notes the time in a reply, and the time of this process.
    pub(super) fn answered(&self, hash_slot: u16, now: Timestamp, own: Timestamp) {
        self.hash_slots().insert(hash_slot, (now, own));
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
}
