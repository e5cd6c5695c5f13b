//! Requests in flight: units that come back when their requests end.
//!
//! Each unit in use has an identity, so a second release frees nothing. A state in memory keeps
//! units until they are released. A store that shares them ends each after its time to live, and
//! restores what is in use.

use std::collections::BTreeSet;

use crate::policy::{Algorithm, Policy};
use crate::store::verdict::Stamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitsInFlight {
    /// The identities of units in use.
    held: BTreeSet<(u64, u32)>,
    /// The second part of the next identity.
    next: u32,
    timed: Option<Timed>,
}

/// What a store knows whose units end with their time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timed {
    /// Units in use.
    used: u64,
    /// When as many times to live have ended as a refused request needs, unless they are renewed. 0
    /// if that is not known.
    ends: u64,
}

/// No time: a unit that no time to live ends.
const NEVER: u64 = u64::MAX;

impl UnitsInFlight {
    /// Without units, whose identities have numbers from this one on.
    pub(super) fn numbered_from(first: u32) -> UnitsInFlight {
        UnitsInFlight { next: first, ..UnitsInFlight::default() }
    }

    /// With units in use whose identities the store keeps.
    pub(super) fn restore(used: u64, ends: u64, next: u64) -> UnitsInFlight {
        UnitsInFlight { held: BTreeSet::new(), next: turn(next), timed: Some(Timed { used, ends }) }
    }

    /// The units that are left.
    pub(super) fn look(&self, policy: &Policy) -> u64 {
        policy.quota().limit().saturating_sub(self.used())
    }

    /// Takes units, whose identities are in a row.
    pub(super) fn charge(&mut self, now: u64, units: u64) -> Stamp {
        let stamp = Stamp { us: now, frac: self.next };
        for _ in 0..units {
            match &mut self.timed {
                Some(timed) => timed.used += 1,
                None => {
                    self.held.insert((now, self.next));
                }
            }
            self.next = self.next.wrapping_add(1);
        }
        stamp
    }

    /// Until the earliest time to live ends. In memory none ends, so the wait says how long one is.
    pub(super) fn wait(&self, policy: &Policy, now: u64, units: u64) -> u64 {
        let ttl = policy.quota().window_us();
        match self.timed {
            _ if units <= self.look(policy) => 0,
            Some(Timed { ends, .. }) if ends > 0 => ends.saturating_sub(now).clamp(1, ttl),
            _ => ttl,
        }
    }

    pub(super) fn reset_after(&self, policy: &Policy) -> u64 {
        match self.timed {
            _ if self.used() == 0 => 0,
            Some(_) => policy.quota().window_us(),
            None => NEVER,
        }
    }

    pub(super) fn refund(&mut self, units: u64, stamp: Stamp) {
        for turn in 0..units.min(Algorithm::MAX_IN_FLIGHT) {
            let number = after(stamp, turn).frac;
            if !self.held.remove(&(stamp.us, number)) && self.held.is_empty() {
                // However many units are named.
                break;
            }
        }
    }

    fn used(&self) -> u64 {
        self.timed.map_or(self.held.len() as u64, |timed| timed.used)
    }
}

/// The stamp of the rest of a grant, without its first units.
pub(super) fn after(stamp: Stamp, units: u64) -> Stamp {
    Stamp { us: stamp.us, frac: stamp.frac.wrapping_add(turn(units)) }
}

/// The number of a turn has 32 bits, and wraps.
fn turn(number: u64) -> u32 {
    u32::try_from(number % (1 << 32)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::in_flight("exports", 3)
    }

    #[test]
    fn a_second_release_frees_nothing() {
        let (policy, mut slots) = (policy(), UnitsInFlight::default());
        let (first, second) = (slots.charge(5, 1), slots.charge(5, 1));
        assert_ne!(first, second);
        slots.refund(1, first);
        slots.refund(1, first);
        assert_eq!(slots.look(&policy), 2);
        slots.refund(1, second);
        assert_eq!((slots.look(&policy), slots.reset_after(&policy)), (3, 0));
    }

    #[test]
    fn a_grant_of_several_is_released_in_parts() {
        let (policy, mut slots) = (policy(), UnitsInFlight::default());
        let stamp = slots.charge(5, 3);
        slots.refund(1, stamp);
        slots.refund(1, stamp);
        assert_eq!(slots.look(&policy), 1);
        slots.refund(2, stamp.after_refund(&policy, 1));
        assert_eq!(slots.look(&policy), 3);
    }

    #[test]
    fn turns_wrap() {
        let mut slots = UnitsInFlight::restore(0, 0, u64::from(u32::MAX));
        let stamp = slots.charge(5, 2);
        assert_eq!((stamp.fraction(), after(stamp, 1).fraction()), (u32::MAX, 0));
        assert_eq!(slots.charge(5, 1).fraction(), 1);
    }

    #[test]
    fn what_a_time_to_live_ends_is_waited_for() {
        let policy = policy();
        let ttl = policy.quota().window_us();
        let full = UnitsInFlight::restore(3, 1_000, 0);
        assert_eq!((full.look(&policy), full.wait(&policy, 400, 1), full.wait(&policy, 400, 0)), (0, 600, 0));
        assert_eq!(UnitsInFlight::restore(3, 0, 0).wait(&policy, 400, 1), ttl);
        assert_eq!(UnitsInFlight::restore(9, 5_000_000_000, 0).wait(&policy, 400, 1), ttl);
    }
}
