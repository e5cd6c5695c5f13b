//! What is simulated.

use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota, Share};

/// How a fleet counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every decision by the store.
    Exact,
    /// Leases.
    Leased,
    /// Each process grants its share of the quota by itself.
    LocalShare,
}

/// What goes wrong, in parts of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Requests to the store that are lost on their way.
    pub lost_requests: u32,
    /// Answers of the store that are lost. It has decided nevertheless.
    pub lost_answers: u32,
    /// Requests of callers at which their process crashes, and is replaced.
    pub crashes: u32,
    /// The part of the time in which the store answers fifty times slower.
    pub slow: u32,
    /// The part of the time in which no process reaches the store.
    pub partition: u32,
}

/// A fleet, its limit, its load and its faults.
#[derive(Clone, Debug)]
pub struct Plan {
    pub mode: Mode,
    pub nodes: u16,
    pub quota: Quota,
    pub algorithm: Algorithm,
    pub lease_units: u32,
    pub life: Duration,
    /// Requests of the whole fleet in a second.
    pub rate: u32,
    pub length: Duration,
    pub keys: u32,
    /// The time from a process to the store and back, without faults.
    pub round_trip: Duration,
    pub faults: Faults,
    pub seed: u64,
}

impl Plan {
    /// The policy that is enforced.
    ///
    /// # Panics
    /// If the algorithm does not take the quota.
    pub fn policy(&self) -> Policy {
        Policy::new("fleet", self.quota).with_algorithm(self.algorithm)
    }

    pub(super) fn seconds_us(&self) -> u64 {
        u64::try_from(self.length.as_micros()).unwrap_or(u64::MAX)
    }

    /// What one process enforces: its share, if each decides by itself.
    pub(super) fn policy_of_a_node(&self) -> Policy {
        match self.mode {
            Mode::LocalShare => {
                self.policy().share(Share::new(1, self.nodes)).unwrap_or_else(|_| self.policy())
            }
            Mode::Exact | Mode::Leased => self.policy(),
        }
    }
}
