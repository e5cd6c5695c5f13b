//! Requests in flight: a list of the units in use.

use tollgate_core::{Policy, Renewal, Stamp, Timestamp};

/// The expected answers of one key under policies of
/// [`Algorithm::InFlight`](tollgate_core::Algorithm::InFlight). The store chooses the identities.
#[derive(Debug)]
pub struct SlotOracle {
    /// Each unit with the end of its time to live, in microseconds.
    held: Vec<(Stamp, i128)>,
    /// Whether units end with their time to live. Otherwise a store keeps them until they are
    /// released.
    has_ttl: bool,
    /// The latest end of a time to live that has ended.
    ended: i128,
}

impl SlotOracle {
    /// The oracle of an unused key. `has_ttl` says whether units end with their time to live.
    pub fn new(has_ttl: bool) -> SlotOracle {
        SlotOracle { held: Vec::new(), has_ttl, ended: 0 }
    }

    fn ttl(&self, policy: &Policy) -> Option<i128> {
        let ttl = policy.quota().window().as_micros();
        self.has_ttl.then(|| i128::try_from(ttl).expect("it is bounded"))
    }

    /// Returns how many units are left at `now`.
    pub fn left(&mut self, policy: &Policy, now: Timestamp) -> u64 {
        for (_, ends) in self.held.extract_if(.., |(_, ends)| *ends <= micros(now)) {
            self.ended = self.ended.max(ends);
        }
        policy.quota().limit().saturating_sub(self.held.len() as u64)
    }

    /// Returns the latest end of a time to live that has ended. If the clock steps back beyond that
    /// time, a store may count the unit again, or not.
    pub fn ended(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.ended).expect("it was a time"))
    }

    /// Refuses a request for want of this many units, which are no more than the limit. Returns the
    /// wait in microseconds, if times to live end: one time to live at most.
    ///
    /// A unit that was taken with this time to live, and not renewed, ends one time to live from
    /// `now` at the latest. If it would end later, the clock has stepped back.
    pub fn refuse(&mut self, policy: &Policy, units: u64, now: Timestamp) -> Option<u64> {
        let ttl = self.ttl(policy)?;
        let latest = micros(now) + ttl;
        let mut ends: Vec<i128> = Vec::new();
        for (stamp, end) in &mut self.held {
            if *end == i128::from(stamp.micros()) + ttl {
                *end = latest.min(*end);
            }
            ends.push(latest.min(*end));
        }
        ends.sort_unstable();
        let spare = usize::try_from(policy.quota().limit().checked_sub(units)?).expect("it is small");
        // The units are free when as many times to live have ended.
        let ended = ends.len().checked_sub(spare)?;
        let last = ends.get(ended.checked_sub(1)?)?;
        u64::try_from(last - micros(now)).ok()
    }

    /// Takes a unit, for which there is room.
    pub fn claim(&mut self, policy: &Policy, stamp: Stamp, now: Timestamp) {
        let ends = self.ttl(policy).map_or(i128::MAX, |ttl| micros(now) + ttl);
        self.held.push((stamp, ends));
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
        self.claim(policy, stamp, now);
        Renewal::Held
    }

    /// Whether no unit is in use at `now`.
    pub fn is_unused(&mut self, policy: &Policy, now: Timestamp) -> bool {
        self.left(policy, now);
        self.held.is_empty()
    }

    /// Forgets all units.
    pub fn reset(&mut self) {
        self.held.clear();
    }
}

fn micros(t: Timestamp) -> i128 {
    i128::from(t.as_micros())
}
