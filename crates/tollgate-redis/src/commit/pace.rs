//! How much work one call may carry, controlled by how late the calls before it were.

use std::time::Duration;

/// The most work in a call, for which the server takes 4 to 8 ms at worst. A check of GCRA is 1:
/// see `ScriptArgs::work`.
const MOST_WORK: u32 = 4_096;

/// The most work in a call of rules in shadow, which takes 0.5 to 1 ms at worst.
const MOST_WORK_IN_SHADOW: u32 = 512;

/// The most work in a call of refunds, releases or renewals, which takes about 2 ms.
pub(super) const MOST_WORK_OF_REFUNDS: u32 = 1_024;

/// The least that the limit shrinks to, as a part of the most, so that a slow server is not slowed
/// further by the price of many calls. Smaller calls are not late because of their work.
const LEAST_PART: u32 = 16;

/// How much longer than the round trip a call may take. Calls of several lanes share the server.
const TARGET: Duration = Duration::from_millis(10);

/// Limits the work in a call, so that a slow server gets smaller calls and answers in time.
///
/// The limit shrinks if a call is late, and grows with each call in time. A rate of work learned
/// from the times of calls would take the jitter of small calls for work.
///
/// All hash slots of a Cluster share one. If a master is more than 10 ms further away than the
/// nearest, its calls count as late, and the limit may stay at its [least](LEAST_PART). For checks
/// that is more than a full call of GCRA, but only 50 checks of a log.
#[derive(Debug)]
pub(super) struct Pace {
    /// The least time of a call lately.
    round_trip_ns: u64,
    most_work: u32,
    /// The largest value of `most_work`.
    limit: u32,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { round_trip_ns: u64::MAX, most_work: MOST_WORK, limit: MOST_WORK }
    }

    /// That of calls of rules in shadow.
    pub(super) fn of_shadow() -> Pace {
        Pace { most_work: MOST_WORK_IN_SHADOW, limit: MOST_WORK_IN_SHADOW, ..Pace::new() }
    }

    /// That of calls of refunds, releases or renewals. Checks of other callers wait behind them.
    pub(super) fn of_refunds() -> Pace {
        Pace { most_work: MOST_WORK_OF_REFUNDS, limit: MOST_WORK_OF_REFUNDS, ..Pace::new() }
    }

    /// Learns from a call that was answered.
    pub(super) fn learn(&mut self, work: u32, took: Duration) {
        let [took_ns, target_ns] =
            [took, TARGET].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        // Rises slowly, so that a route that has become longer is noticed.
        self.round_trip_ns = self.round_trip_ns.saturating_add(self.round_trip_ns / 1024).min(took_ns);
        if took_ns - self.round_trip_ns <= target_ns {
            self.most_work = (self.most_work + self.most_work / 8).min(self.limit);
        } else if work >= self.least_work() {
            self.most_work = (self.most_work.min(work) / 4 * 3).max(self.least_work());
        }
    }

    fn least_work(&self) -> u32 {
        self.limit / LEAST_PART
    }

    /// The most work that the next call may carry.
    pub(super) fn most_work(&self) -> u32 {
        self.most_work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LEAST_WORK: u32 = MOST_WORK / LEAST_PART;

    /// A call of as much work as allowed to a server that is 1 ms away.
    fn full_call(pace: &mut Pace, for_each: Duration) {
        let work = pace.most_work();
        pace.learn(work, MS + work * for_each);
    }

    #[test]
    fn calls_shrink_while_the_server_is_slow_and_grow_again() {
        let mut pace = Pace::new();
        pace.learn(1, MS);
        for _ in 0..50 {
            full_call(&mut pace, MS / 50);
        }
        assert!((350..=600).contains(&pace.most_work()), "{pace:?}: 10 ms are 500 of work");
        (0..50).for_each(|_| full_call(&mut pace, MS));
        assert_eq!(pace.most_work(), LEAST_WORK);
        (0..50).for_each(|_| full_call(&mut pace, Duration::ZERO));
        assert_eq!(pace.most_work(), MOST_WORK);
    }

    #[test]
    fn a_call_that_takes_exactly_the_target_longer_is_not_late() {
        let mut pace = Pace::new();
        pace.learn(1, Duration::ZERO);
        pace.learn(MOST_WORK, TARGET);
        assert_eq!(pace.most_work(), MOST_WORK);
        pace.learn(MOST_WORK, TARGET + Duration::from_nanos(1));
        assert!(pace.most_work() < MOST_WORK);
    }

    #[test]
    fn a_call_in_time_lets_the_next_carry_an_eighth_more() {
        let mut pace = Pace::new();
        pace.learn(1, MS);
        (0..50).for_each(|_| full_call(&mut pace, MS));
        full_call(&mut pace, Duration::ZERO);
        assert_eq!(pace.most_work(), LEAST_WORK + LEAST_WORK / 8);
    }

    #[test]
    fn calls_in_shadow_carry_at_most_an_eighth() {
        let mut pace = Pace::of_shadow();
        (0..50).for_each(|_| full_call(&mut pace, Duration::ZERO));
        assert_eq!(pace.most_work(), MOST_WORK / 8);
        (0..50).for_each(|_| full_call(&mut pace, MS));
        assert_eq!(pace.most_work(), LEAST_WORK / 8);
    }

    #[test]
    fn jitter_of_small_calls_is_not_taken_for_work() {
        let mut pace = Pace::new();
        for call in 0..1_000 {
            pace.learn(300, MS + call % 10 * MS);
            pace.learn(10, 100 * MS);
        }
        assert_eq!(pace.most_work(), MOST_WORK, "{pace:?}");
    }

    #[test]
    fn a_long_round_trip_is_not_taken_for_a_slow_server() {
        let mut pace = Pace::new();
        for work in [1, 1_024, 64, 128, 3] {
            pace.learn(work, 80 * MS + work * MS / 2_000);
            assert_eq!(pace.most_work(), MOST_WORK, "{pace:?}");
        }
        // The route becomes three times as long.
        (0..2_000).for_each(|_| pace.learn(300, 241 * MS));
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
