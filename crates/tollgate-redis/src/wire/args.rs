//! Translates a check into a script's arguments, and the script's answer into a state.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::algorithm::State;
use tollgate_core::{Algorithm, Policy, Stamp, Timestamp};

use super::layout::SlidingLogLayout;
use super::numbers::Doubles;
use super::script::Part;

/// A policy and a cost, as arguments of a script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptArgs {
    pub(crate) policy: Policy,
    /// The cost of one acquisition.
    pub(crate) cost: u64,
    pub(crate) part: Part,
}

/// More than any bucket holds, and the last integer up to which doubles are exact.
const NEVER_US: u64 = 1 << 53;

/// How many arguments are sent with every algorithm. Unused ones are zero.
const ARGUMENTS: usize = 11;

impl ScriptArgs {
    pub(crate) fn new(policy: &Policy, cost: u64, log: SlidingLogLayout) -> ScriptArgs {
        ScriptArgs { policy: policy.clone(), cost, part: Part::of(policy, log) }
    }

    /// Whether another check has the same arguments, and can share them.
    pub(crate) fn matches(&self, policy: &Policy, cost: u64) -> bool {
        self.cost == cost && self.policy == *policy
    }

    /// The cost in time. `None` if it can never pass.
    fn emission(&self) -> Option<(u64, u32)> {
        self.policy.numbers().emission(self.cost)
    }

    /// Whether the cost is a positive number of whole microseconds, so that gcra_whole.lua can add
    /// it to TAT with `INCRBY`. It makes no debt. The horizon is bounded so that a TAT beyond it is
    /// still an exact double, even at [`Timestamp::MAX`](tollgate_core::Timestamp::MAX).
    pub(crate) fn has_whole_cost(&self) -> bool {
        matches!(self.part, Part::Gcra | Part::LeakyBucket)
            && self.policy.numbers().horizon().0 < NEVER_US / 2
            && self.policy.numbers().horizon() <= self.policy.numbers().reach()
            && matches!(self.emission(), Some((1.., 0)))
    }

    /// The server's work for one such check at worst, relative to a check of GCRA.
    ///
    /// Measured per set, in calls of 20 to 100 sets to Redis 8.2 and Valkey 9.1: GCRA 1.6 to 2.3
    /// µs, a window 1.5 to 3.5 µs, a log or a ring 5 to 10 µs. The denial of a cost above 1
    /// searches for the run that it waits for, by halves: 18 to 41 µs with 1,000 runs.
    pub(crate) fn work(&self) -> u32 {
        let tracking = u32::from(self.tracks_usage());
        tracking
            + match (self.part, self.runs()) {
                (Part::Gcra | Part::LeakyBucket, _) => 1,
                (_, None) => 2,
                (_, Some(_)) if self.cost <= 1 => 5,
                (_, Some(runs)) => 5 + 2 * runs.ilog2(),
            }
    }

    /// The same for a refund; for requests in flight a release, or a renewal if the cost is 0.
    ///
    /// Measured in calls of 8 to 128 to Redis 8.2, while a check of GCRA took 1.6 µs: a refund of a
    /// bucket 4 µs, or 10 µs if it has a group of its own; a renewal 14 to 18 µs; a release 3 to
    /// 5 µs, and 1.5 µs for each further slot. The refund of a log took 35 to 130 µs, and more for
    /// each of up to 1,024 runs that it writes again: 1.2 to 1.7 µs, in a sorted set up to 3 µs.
    pub(crate) fn refund_work(&self) -> u32 {
        let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let most = Algorithm::REFUNDABLE_TIMES as u64;
        match (self.part, self.runs().map(|runs| bounded(runs.min(most)))) {
            (Part::InFlight, _) if self.cost == 0 => 10,
            (Part::InFlight, _) => bounded(self.cost).saturating_add(3),
            (_, None) => self.work() + 5,
            (Part::SlidingLogSortedSet, Some(runs)) => self.work() + 20 + 2 * runs,
            (_, Some(runs)) => self.work() + 20 + runs,
        }
    }

    /// The most runs of a log. `None` for other algorithms.
    fn runs(&self) -> Option<u64> {
        let limit = self.policy.quota().limit();
        match self.part {
            Part::SlidingBuckets => Some(limit.min(u64::from(self.buckets()) + 1)),
            part => part.is_log().then_some(limit),
        }
    }

    /// Whether a charge records the usage of the key.
    pub(crate) fn tracks_usage(&self) -> bool {
        self.policy.numbers().tracks_usage() && self.cost > 0
    }

    /// Appends what track.lua needs to know of a check.
    pub(crate) fn write_tracking(&self, numbers: &mut Doubles) {
        numbers.push(self.width() as u64);
        numbers.push(if self.tracks_usage() { self.cost.min(NEVER_US) } else { 0 });
    }

    /// Appends the algorithm and its arguments, for a server whose clock shows about this time.
    /// Only calendar windows need it.
    pub(crate) fn write(&self, numbers: &mut Doubles, now: Timestamp) {
        self.write_with(numbers, now, self.emission().unwrap_or((NEVER_US, 0)));
    }

    /// The same for refunds, whose units follow.
    pub(crate) fn write_refunds(&self, numbers: &mut Doubles, now: Timestamp) {
        self.write_with(numbers, now, (0, 0));
    }

    /// Appends the refund of a grant with this stamp: its units, and their span. That is at most
    /// the horizon, since TAT never lies further ahead of a grant. Slots have no span. Instead of
    /// it stands whether a renewal `claims` the slot again.
    pub(crate) fn write_refund(&self, numbers: &mut Doubles, stamp: Stamp, claims: bool) {
        let (span, parts) = match self.part {
            Part::InFlight => (claims.into(), 0),
            _ => self.emission().unwrap_or_else(|| self.policy.numbers().horizon()),
        };
        for number in [self.cost, stamp.micros(), stamp.fraction().into(), span, parts.into()] {
            numbers.push(number);
        }
    }

    /// Appends the zeros that refund.lua reads as resets.
    pub(crate) fn write_resets(numbers: &mut Doubles) {
        (0..1 + ARGUMENTS).for_each(|_| numbers.push(0));
    }

    fn write_with(&self, numbers: &mut Doubles, now: Timestamp, emission: (u64, u32)) {
        let policy = &self.policy;
        let (limit, window) = (policy.quota().limit(), micros(policy.quota().window()));
        // A larger cost is refused anyway.
        let cost = self.cost.min(NEVER_US);
        let mut put = |args: &[u64]| {
            numbers.push(self.part.number().into());
            let zeros = std::iter::repeat(&0);
            args.iter().chain(zeros).take(ARGUMENTS).for_each(|argument| numbers.push(*argument));
        };
        match self.part {
            Part::FixedWindow => {
                let is_aligned = policy.algorithm() == Algorithm::FIXED_WINDOW_ALIGNED;
                put(&[limit, window, is_aligned.into(), cost]);
            }
            Part::CalendarWindow => {
                let Algorithm::CalendarWindow { boundaries } = policy.algorithm() else { return put(&[]) };
                let [first, second, third, last] = boundaries.around(now);
                put(&[limit, window, cost, first, second, third, last]);
            }
            Part::Block => put(&[limit, window, cost, policy.numbers().charges_nothing().into()]),
            Part::SlidingWindow | Part::SlidingLogList | Part::SlidingLogSortedSet => {
                put(&[limit, window, cost]);
            }
            Part::SlidingBuckets => {
                let buckets = self.buckets().into();
                put(&[limit, window.div_ceil(buckets), buckets, cost]);
            }
            Part::InFlight => put(&[limit, window, cost, random_number()]),
            Part::Gcra | Part::LeakyBucket => {
                let (horizon, horizon_parts) = policy.numbers().horizon();
                let (reach, reach_parts) = policy.numbers().reach();
                let (span, span_parts) = emission;
                put(&[
                    policy.numbers().parts().into(),
                    horizon,
                    horizon_parts.into(),
                    reach,
                    reach_parts.into(),
                    span,
                    span_parts.into(),
                    cost,
                    limit,
                    policy.numbers().version_burst(),
                    window,
                ]);
            }
        }
    }

    /// The number of sub-windows. At least 1, also for algorithms without any.
    fn buckets(&self) -> u32 {
        match self.policy.algorithm() {
            Algorithm::SlidingBuckets { buckets } => buckets,
            _ => 1,
        }
    }

    /// How many numbers a state has in a script's answer.
    fn width(&self) -> usize {
        match self.part {
            Part::Gcra | Part::LeakyBucket if self.policy.numbers().parts() == 1 => 1,
            Part::Block => 1,
            Part::Gcra | Part::LeakyBucket | Part::FixedWindow | Part::CalendarWindow => 2,
            Part::SlidingWindow | Part::InFlight => 3,
            Part::SlidingBuckets | Part::SlidingLogList | Part::SlidingLogSortedSet => 4,
        }
    }

    /// Takes a state from a script's answer.
    pub(crate) fn read(&self, answer: &mut impl Iterator<Item = i64>) -> Option<State> {
        let mut numbers = [0; 4];
        let width = self.width();
        for number in &mut numbers[..width] {
            *number = answer.next()?.max(0).cast_unsigned();
        }
        Some(State::restore(&self.policy, &numbers[..width]))
    }
}

/// A number of 32 bits, for the first unit that a call takes.
fn random_number() -> u64 {
    // The random hash keys of the standard library need no dependency.
    RandomState::new().hash_one(0_u64) >> 32
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Quota;

    use super::super::script::{Parts, Scripts};
    use super::*;

    #[test]
    fn work_grows_with_the_logarithm_of_the_runs_and_not_with_the_cost() {
        let work = |algorithm, limit, cost| {
            let policy = Policy::new("p", Quota::per_day(limit)).with_algorithm(algorithm);
            ScriptArgs::new(&policy, cost, SlidingLogLayout::List).work()
        };
        for cost in [0, 1, 100_000, u64::MAX] {
            assert_eq!(work(Algorithm::Gcra, 100_000, cost), 1);
            assert_eq!(work(Algorithm::FIXED_WINDOW, 100_000, cost), 2);
        }
        for cost in [2, 100_000, u64::MAX] {
            assert_eq!(work(Algorithm::SLIDING_LOG, 100_000, cost), 5 + 2 * 16);
            assert_eq!(work(Algorithm::SlidingBuckets { buckets: 1_000 }, 100_000, cost), 5 + 2 * 9);
            assert_eq!(work(Algorithm::SLIDING_BUCKETS, 1, cost), 5);
        }
        assert_eq!(work(Algorithm::SLIDING_LOG, 100_000, 1), 5);
    }

    #[test]
    fn the_work_of_a_refund_grows_with_the_runs_that_are_written_again() {
        let work = |algorithm, limit| {
            let policy = Policy::new("p", Quota::per_day(limit)).with_algorithm(algorithm);
            ScriptArgs::new(&policy, 1, SlidingLogLayout::List).refund_work()
        };
        assert_eq!(work(Algorithm::Gcra, 100_000), 6);
        assert_eq!(work(Algorithm::SLIDING_LOG, 100_000), 25 + 1_024);
        assert_eq!(work(Algorithm::SLIDING_LOG, 100), 25 + 100);
        assert_eq!(work(Algorithm::SLIDING_BUCKETS, 100_000), 25 + 11);
        let policy = Policy::new("p", Quota::per_day(100_000)).with_algorithm(Algorithm::SLIDING_LOG);
        let sorted_set = ScriptArgs::new(&policy, 1, SlidingLogLayout::SortedSet);
        assert_eq!(sorted_set.refund_work(), 25 + 2_048);
        let mut log = Parts::default();
        log.add(Part::SlidingLogList);
        let bound = format!("local NEWEST = {} ", Algorithm::REFUNDABLE_TIMES);
        assert!(Scripts::new(false).refund(log).text.contains(&bound), "Lua has another bound");
    }

    #[test]
    fn a_renewal_is_ten_checks_of_work_and_a_release_grows_with_its_slots() {
        let work = |cost| {
            let policy = Policy::in_flight("p", 1_000_000);
            ScriptArgs::new(&policy, cost, SlidingLogLayout::List).refund_work()
        };
        assert_eq!([0, 1, 1_000, u64::MAX].map(work), [10, 4, 1_003, u32::MAX]);
    }
}
