//! How much a key is used on this node.

use std::time::Duration;

use tollgate_core::Timestamp;

/// An exponentially weighted moving average of the units that a key asks for in one life of a
/// lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    units: f32,
    until: Timestamp,
}

impl Demand {
    pub(super) fn new(units: u32, now: Timestamp) -> Demand {
        Demand { units: to_f32(units), until: now }
    }

    /// Adds units that were asked for at some time since the last call, by `now`.
    #[expect(clippy::float_arithmetic, reason = "an estimate, which decides nothing")]
    pub(super) fn add(&mut self, units: u32, now: Timestamp, life: Duration) {
        let elapsed = now.as_micros().saturating_sub(self.until.as_micros());
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let lives = elapsed as f32 / life.as_micros() as f32;
        let kept = (-lives).exp();
        // Spread evenly over the elapsed time, so that the average does not depend on how often it
        // is updated.
        let weight = if lives > 0.001 { (1.0 - kept) / lives } else { 1.0 };
        self.units = self.units * kept + to_f32(units) * weight;
        self.until = self.until.max(now);
    }

    /// Units in one life of a lease, rounded up.
    pub(super) fn units(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let units = self.units.ceil() as u32;
        units
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn to_f32(units: u32) -> f32 {
    units as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 + ms * 1_000)
    }

    #[test]
    fn a_steady_rate_is_estimated_whatever_the_interval_of_updates() {
        for (every_ms, units) in [(1, 5), (20, 100), (100, 500), (400, 2_000)] {
            let mut demand = Demand::new(0, at(0));
            for n in 1..=40 * 100 / every_ms {
                demand.add(units, at(n * every_ms), LIFE);
            }
            let estimate = demand.units();
            assert!((490..=510).contains(&estimate), "{units} each {every_ms} ms: {estimate}");
        }
    }

    #[test]
    fn a_key_that_falls_silent_is_forgotten_within_ten_lives() {
        let mut demand = Demand::new(1_000, at(0));
        demand.add(0, at(1_000), LIFE);
        assert!(demand.units() <= 1, "{demand:?}");
    }

    #[test]
    fn a_clock_that_steps_back_does_not_raise_the_estimate() {
        let mut demand = Demand::new(10, at(500));
        demand.add(1, at(0), LIFE);
        assert_eq!(demand.units(), 11);
    }
}
