//! What is simulated.

use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota, Share};

/// How a fleet counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every decision by the store.
    Exact,
    /// Leases.
    Leases,
    /// Each process grants its share of the quota by itself.
    LocalShare,
}

/// Which keys callers ask for, and which process each of them reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Every process gets the same number of requests, of all keys alike.
    Even,
    /// By Zipf's law: the n-th process gets 1/n of what the first one gets, and so do keys. Some
    /// requests come as a flood at one process.
    Skewed,
}

/// What goes wrong, in parts of a million.
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
    /// The processes at the start.
    pub nodes: u16,
    /// The processes that join later, at even intervals.
    pub joins: u16,
    pub quota: Quota,
    pub algorithm: Algorithm,
    pub lease_units: u32,
    pub life: Duration,
    /// Requests of the whole fleet in a second.
    pub rate: u32,
    pub length: Duration,
    pub keys: u32,
    pub load: Load,
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

    /// The length in microseconds.
    pub fn length_us(&self) -> u64 {
        u64::try_from(self.length.as_micros()).unwrap_or(u64::MAX)
    }

    /// What one process enforces: its share, if each decides by itself.
    pub(super) fn policy_of_a_node(&self) -> Policy {
        match self.mode {
            Mode::LocalShare => {
                self.policy().share(Share::new(1, self.nodes)).unwrap_or_else(|_| self.policy())
            }
            Mode::Exact | Mode::Leases => self.policy(),
        }
    }
}
