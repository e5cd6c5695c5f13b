//! What leases save, and what they hold.

use std::time::Duration;

/// What the leases of a process have saved, and what they hold: see
/// [`Leases::stats`](super::Leases::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Checks that the store decided.
    pub asked: u64,
    /// Fetches of leases, each of one round trip.
    pub fetches: u64,
    /// Units that were fetched.
    pub fetched_units: u64,
    /// Refunds of leases that ended before they were spent, each of one round trip.
    pub refunds: u64,
    /// Units that were refunded.
    pub refunded_units: u64,
    /// Units that are held now and not spent yet. No other process can use them (they are
    /// *stranded*) until their lease ends.
    pub held_units: u64,
}

impl LeaseStats {
    /// Units that leases granted.
    pub fn leased_units(&self) -> u64 {
        self.fetched_units.saturating_sub(self.refunded_units).saturating_sub(self.held_units)
    }

    /// Decisions for each round trip to the store, if each request costs one unit. `None` before
    /// the first round trip.
    pub fn decisions_per_round_trip(&self) -> Option<f64> {
        let trips = self.asked + self.fetches + self.refunds;
        #[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "decides nothing")]
        let ratio = (self.asked + self.leased_units()) as f64 / trips as f64;
        (trips > 0).then_some(ratio)
    }
}

/// The units that a process holds of one key: see [`Leases::held`](super::Leases::held).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLease {
    /// Units that are not spent yet.
    pub units: u64,
    /// The time until the last of them can no longer be spent.
    pub ends_in: Duration,
}
