//! Which caller asks which process, and when.

use tollgate_conformance::random::Random;

use super::Plan;

/// A request of a caller.
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) node: usize,
    pub(super) key: u32,
    /// The process crashes first.
    pub(super) crash: bool,
}

/// Requests in bursts: most come alone, some in a flood at one process.
pub(super) struct Traffic {
    random: Random,
    now: u64,
    end: u64,
    gap: u64,
    keys: u32,
    crashes: u64,
    flood: (u32, usize, u32),
}

impl Traffic {
    pub(super) fn new(plan: &Plan) -> Traffic {
        Traffic {
            random: Random::new(plan.seed),
            now: 0,
            end: plan.seconds_us(),
            gap: (1_000_000 / u64::from(plan.rate.max(1))).max(1),
            keys: plan.keys.max(1),
            crashes: plan.faults.crashes.into(),
            flood: (0, 0, 0),
        }
    }

    /// The next request. `None` after the end.
    pub(super) fn next(&mut self) -> Option<Event> {
        let (left, node, key) = self.flood;
        let crash = self.random.below(1_000) < self.crashes;
        if left > 0 {
            self.flood.0 -= 1;
            return Some(Event { at: self.now, node, key, crash });
        }
        // Twice the mean at most, at random.
        self.now += self.random.below(2 * self.gap + 1);
        let node = usize::try_from(self.random.below(1 << 32)).unwrap_or(0);
        let key = self.skewed();
        if self.random.below(50) == 0 {
            self.flood = (self.random.units(1, 40), node, key);
            self.now += u64::from(self.flood.0) * self.gap;
        }
        (self.now < self.end).then_some(Event { at: self.now, node, key, crash })
    }

    /// A key: half of the requests are of the first, a quarter of the second, and so on.
    fn skewed(&mut self) -> u32 {
        self.random.next_u64().trailing_zeros() % self.keys
    }
}
