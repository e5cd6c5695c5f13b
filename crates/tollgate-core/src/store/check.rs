//! The input of a store: checks, how often to acquire them, and grants to refund.

use crate::key::Key;
use crate::policy::Policy;
use crate::policy::share::Share;
use crate::store::verdict::Stamp;

/// A policy, a key and the cost of a request. A set of checks is decided together: all or nothing.
///
/// If a set names a pair of policy and key twice, the costs are added.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The quota and its algorithm.
    pub policy: &'a Policy,
    /// The key that uses the quota.
    pub key: &'a Key,
    /// The units of one request. 0 only looks, and always passes. More than
    /// [`Policy::largest_cost`] never passes.
    pub cost: u64,
}

impl<'a> Check<'a> {
    /// A check of `cost` units for `key` under `policy`.
    pub fn new(policy: &'a Policy, key: &'a Key, cost: u64) -> Check<'a> {
        Check { policy, key, cost }
    }
}

/// A [`Check`] that outlives the call, for a wrapper that needs it after the answer.
#[derive(Clone, Debug)]
pub struct OwnedCheck {
    policy: Policy,
    key: Key,
    cost: u64,
}

impl From<&Check<'_>> for OwnedCheck {
    #[inline]
    fn from(check: &Check<'_>) -> OwnedCheck {
        OwnedCheck { policy: check.policy.clone(), key: check.key.clone(), cost: check.cost }
    }
}

impl OwnedCheck {
    /// Returns the check.
    pub fn check(&self) -> Check<'_> {
        Check::new(&self.policy, &self.key, self.cost)
    }
}

/// How often to acquire a set: `min` times or not at all, and up to `max` times if there is room.
///
/// ```
/// use tollgate_core::Times;
///
/// assert_eq!(Times::ONCE, Times::between(1, 1));
/// assert_eq!(Times::LOOK.max(), 0);
/// assert_eq!(Times::up_to(8).min(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Times {
    min: u32,
    max: u32,
}

impl Times {
    /// A plain check.
    pub const ONCE: Times = Times { min: 1, max: 1 };

    /// Charges nothing and reports what a plain check would get.
    pub const LOOK: Times = Times { min: 0, max: 0 };

    /// As often as there is room, up to `max` times; denied if there is none. 0 only looks.
    pub const fn up_to(max: u32) -> Times {
        Times { min: if max == 0 { 0 } else { 1 }, max }
    }

    /// At least `min` times and at most `max` times. A `max` below `min` counts as `min`.
    pub const fn between(min: u32, max: u32) -> Times {
        Times { min, max: if max < min { min } else { max } }
    }

    /// The fewest grants. With less room, the set is denied.
    pub const fn min(self) -> u32 {
        self.min
    }

    /// The most grants; 0 looks.
    pub const fn max(self) -> u32 {
        self.max
    }
}

/// Granted units to give back: see [`Store::refund`](crate::Store::refund).
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The policy that granted them.
    pub policy: &'a Policy,
    /// The key that they were granted to.
    pub key: &'a Key,
    /// The number of units to give back: at most the number granted.
    pub units: u64,
    /// The [`Status::stamp`](crate::Status::stamp) of the grant.
    pub stamp: Stamp,
    /// The [`Verdict::share`](crate::Verdict::share) of the grant.
    pub share: Option<Share>,
}
