//! How much work one call may carry, learned from the calls before it.

use std::time::Duration;

/// The most work in a call, for which the server takes 4 to 8 ms at worst. A check of GCRA is 1:
/// see `Terms::work`.
const MOST_WORK: u32 = 4_096;

/// The least that the limit shrinks to, so that a slow server is not slowed further by the price of
/// many calls.
const LEAST_WORK: u32 = 64;

/// How long the work of one call may occupy the server.
const TARGET: Duration = Duration::from_millis(5);

/// Limits the work in a call, so that a slow server gets smaller calls and answers in time.
///
/// The time of a call is that of the round trip, which is the least time seen lately, and that of
/// its work.
#[derive(Debug)]
pub(super) struct Pace {
    round_trip_ns: u64,
    work_ns: u64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { round_trip_ns: u64::MAX, work_ns: 0 }
    }

    /// Learns from a call that was answered.
    pub(super) fn learn(&mut self, work: u32, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 64);
        // Rises slowly, so that a route that has become longer is noticed.
        self.round_trip_ns = self.round_trip_ns.saturating_add(self.round_trip_ns / 1024).min(took_ns);
        // The time of a small call says more about the network than about the work.
        if work >= LEAST_WORK {
            let work_ns = (took_ns - self.round_trip_ns) / u64::from(work);
            self.work_ns = (self.work_ns * 7 + work_ns) / 8;
        }
    }

    /// The most work that the next call may carry.
    pub(super) fn most_work(&self) -> u32 {
        let target_ns = u64::try_from(TARGET.as_nanos()).unwrap_or(u64::MAX);
        let work = target_ns.checked_div(self.work_ns).unwrap_or(u64::MAX);
        u32::try_from(work).unwrap_or(u32::MAX).clamp(LEAST_WORK, MOST_WORK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn calls_shrink_while_the_server_is_slow_and_grow_again() {
        let mut pace = Pace::new();
        assert_eq!(pace.most_work(), MOST_WORK);
        pace.learn(1, MS);
        (0..50).for_each(|_| pace.learn(500, 26 * MS));
        assert!((90..=120).contains(&pace.most_work()), "{pace:?}: 0.05 ms a check");
        (0..50).for_each(|_| pace.learn(64, 500 * MS));
        assert_eq!(pace.most_work(), LEAST_WORK);
        (0..100).for_each(|_| pace.learn(64, MS));
        assert_eq!(pace.most_work(), MOST_WORK);
    }

    #[test]
    fn a_long_round_trip_is_not_taken_for_a_slow_server() {
        let mut pace = Pace::new();
        for work in [1, 1_024, 64, 128, 3] {
            pace.learn(work, 80 * MS + work * MS / 2_000);
            assert_eq!(pace.most_work(), MOST_WORK, "{pace:?}");
        }
        // The route becomes three times as long.
        (0..2_000).for_each(|_| pace.learn(100, 241 * MS));
        assert_eq!(pace.most_work(), MOST_WORK, "{pace:?}");
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut pace = Pace::new();
        for took in [Duration::ZERO, Duration::MAX, MS, Duration::MAX] {
            pace.learn(0, took);
            pace.learn(u32::MAX, took);
            assert!((LEAST_WORK..=MOST_WORK).contains(&pace.most_work()));
        }
    }
}
