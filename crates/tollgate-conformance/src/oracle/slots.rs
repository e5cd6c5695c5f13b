//! Requests in flight: a list of the units in use.

use tollgate_core::{Policy, Renewal, Stamp, Timestamp};

/// The expected answers of one key under policies of
/// [`Algorithm::InFlight`](tollgate_core::Algorithm::InFlight).
#[derive(Debug)]
pub struct SlotOracle {
    /// Each unit with the end of its lease, in microseconds.
    held: Vec<(Stamp, i128)>,
    /// `None` for a store that keeps units until they are released.
    lease: Option<i128>,
}

impl SlotOracle {
    /// The oracle of an unused key. `is_leased` says whether units end with their lease.
    pub fn new(policy: &Policy, is_leased: bool) -> SlotOracle {
        let lease = policy.quota().window().as_micros();
        let lease = is_leased.then(|| i128::try_from(lease).expect("it is bounded"));
        SlotOracle { held: Vec::new(), lease }
    }

    /// Returns how many units are left at `now`.
    pub fn left(&mut self, policy: &Policy, now: Timestamp) -> u64 {
        self.held.retain(|(_, ends)| *ends > i128::from(now.as_micros()));
        policy.quota().limit().saturating_sub(self.held.len() as u64)
    }

    /// Returns until when a refused request waits, at `now`, if leases end.
    pub fn first_end(&self, policy: &Policy, now: Timestamp) -> Option<u64> {
        self.lease?;
        let mut ends: Vec<i128> = self.held.iter().map(|(_, ends)| *ends).collect();
        ends.sort_unstable();
        let limit = usize::try_from(policy.quota().limit()).expect("it is small");
        // So many have to end before one is free.
        let missing = (ends.len() + 1).saturating_sub(limit);
        let last = ends.get(missing.checked_sub(1)?)?;
        u64::try_from(last - i128::from(now.as_micros())).ok()
    }

    /// Takes a unit, for which there is room.
    pub fn claim(&mut self, stamp: Stamp, now: Timestamp) {
        self.held.push((stamp, self.end(now)));
    }

    /// Releases a unit. Returns whether it was in use.
    pub fn release(&mut self, stamp: Stamp) -> bool {
        let before = self.held.len();
        self.held.retain(|(of, _)| *of != stamp);
        self.held.len() < before
    }

    /// Renews a unit that its holder has not released.
    pub fn renew(&mut self, policy: &Policy, stamp: Stamp, now: Timestamp) -> Renewal {
        let left = self.left(policy, now);
        let is_held = self.release(stamp);
        if !is_held && left == 0 {
            return Renewal::Lost;
        }
        self.claim(stamp, now);
        Renewal::Held
    }

    fn end(&self, now: Timestamp) -> i128 {
        self.lease.map_or(i128::MAX, |lease| i128::from(now.as_micros()) + lease)
    }
}
