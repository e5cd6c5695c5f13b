//! Which caller asks which process, and when.

use tollgate_conformance::random::Random;

use super::{Load, Plan};

/// A request of a caller.
pub(super) struct Event {
    pub(super) at: u64,
    /// The process, by its share of the load: 0 is the busiest of a skewed load.
    pub(super) node: usize,
    pub(super) key: u32,
    /// The process crashes first.
    pub(super) crash: bool,
}

/// Requests at random times. A skewed load has floods: many requests of one key at one process.
pub(super) struct Traffic {
    random: Random,
    load: Load,
    now_ns: u64,
    end_ns: u64,
    gap_ns: u64,
    keys: u32,
    crashes: u64,
    flood: (u32, usize, u32),
}

impl Traffic {
    pub(super) fn new(plan: &Plan) -> Traffic {
        Traffic {
            random: Random::new(plan.seed),
            load: plan.load,
            now_ns: 0,
            end_ns: plan.length_us() * 1_000,
            gap_ns: 1_000_000_000 / u64::from(plan.rate.max(1)),
            keys: plan.keys.max(1),
            crashes: plan.faults.crashes.into(),
            flood: (0, 0, 0),
        }
    }

    /// The next request at one of `nodes` processes. `None` after the end.
    pub(super) fn next(&mut self, nodes: usize) -> Option<Event> {
        let (left, node, key) = self.flood;
        let crash = self.random.below(1_000_000) < self.crashes;
        if left > 0 {
            self.flood.0 -= 1;
            return Some(Event { at: self.now_ns / 1_000, node, key, crash });
        }
        // Twice the mean at most, at random.
        self.now_ns += self.random.below(2 * self.gap_ns + 1);
        let node = self.one_of(nodes);
        let key = u32::try_from(self.one_of(self.keys as usize)).unwrap_or(0);
        if self.load == Load::Skewed && self.random.below(50) == 0 {
            self.flood = (self.random.small(1, 40), node, key);
            self.now_ns += u64::from(self.flood.0) * self.gap_ns;
        }
        (self.now_ns < self.end_ns).then_some(Event { at: self.now_ns / 1_000, node, key, crash })
    }

    /// A number below `n`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a rank")]
    fn one_of(&mut self, n: usize) -> usize {
        match self.load {
            Load::Even => usize::try_from(self.random.below(n as u64)).unwrap_or(0),
            // The logarithm of the rank is uniform.
            Load::Skewed => {
                let uniform = self.random.below(1 << 32) as f64 / (1_u64 << 32) as f64;
                let rank = ((n + 1) as f64).powf(uniform);
                (rank as usize).clamp(1, n) - 1
            }
        }
    }
}
