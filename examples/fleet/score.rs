//! The figures of one simulated fleet.

use tollgate::store::{Check, Store, Times};
use tollgate::time::Clock;
use tollgate::{Key, ManualClock, MemoryStore, Timestamp};

use crate::sim::bounds::{Closest, closest};
use crate::sim::{Admission, Mode, Outcome, Plan, answer_of};

/// What a fleet did, and how near it came to its bound.
pub(crate) struct Score {
    pub(crate) mode: Mode,
    pub(crate) nodes: u32,
    /// Sorted by time.
    pub(crate) admitted: Vec<Admission>,
    /// Requests that the policy would have refused at their time, had it counted all of them.
    pub(crate) over: usize,
    /// The most units that were held at once.
    pub(crate) stranded: u64,
    pub(crate) round_trips: u64,
    pub(crate) decisions: u64,
    pub(crate) failed: u64,
    pub(crate) closest: Closest,
}

impl Score {
    pub(crate) fn new(plan: &Plan, mut outcome: Outcome) -> Score {
        outcome.admitted.sort_unstable_by_key(|one| one.at);
        Score {
            mode: plan.mode,
            nodes: outcome.nodes,
            over: over(plan, &outcome.admitted),
            stranded: outcome.stranded.iter().map(|(_, held)| *held).max().unwrap_or(0),
            round_trips: outcome.round_trips,
            decisions: outcome.admitted.len() as u64 + outcome.denied + outcome.failed,
            failed: outcome.failed,
            closest: closest(plan, &outcome),
            admitted: outcome.admitted,
        }
    }

    pub(crate) fn round_trips_per_decision(&self) -> f64 {
        self.round_trips as f64 / self.decisions.max(1) as f64
    }
}

/// Repeats the admissions, in their order, at one store that decides exactly.
fn over(plan: &Plan, admitted: &[Admission]) -> usize {
    let (clock, policy) = (ManualClock::new(Timestamp::from_micros(0)), plan.policy());
    let store = MemoryStore::builder().clock(Clock::from(&clock)).build();
    let is_refused = |one: &&Admission| {
        clock.set(Timestamp::from_micros(one.at));
        let key = Key::from(u64::from(one.key));
        !answer_of(store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE)).is_granted()
    };
    admitted.iter().filter(is_refused).count()
}
