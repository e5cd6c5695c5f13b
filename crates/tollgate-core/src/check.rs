//! What is asked of a store.

use crate::{Key, Policy, Share, Stamp};

/// One policy, one key and what a request costs there. A set of these is decided together: all or nothing.
///
/// A set should name each pair of policy and key once. Where it names one twice, the costs are added up, as if
/// the pair had been named once with the sum.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The quota and its algorithm.
    pub policy: &'a Policy,
    /// Whose share of the quota.
    pub key: &'a Key,
    /// Units that one request takes; 0 only looks, and always passes.
    pub cost: u32,
}

impl<'a> Check<'a> {
    /// `cost` units of what `policy` grants to `key`.
    pub fn new(policy: &'a Policy, key: &'a Key, cost: u32) -> Check<'a> {
        Check { policy, key, cost }
    }
}

/// How often a set is to be acquired: at least `min` times or not at all, and up to `max` times if there is room.
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

    /// Charges nothing, and tells what a plain check would meet.
    pub const LOOK: Times = Times { min: 0, max: 0 };

    /// As often as there is room, up to `max` times; denied if there is none. 0 only looks.
    pub const fn up_to(max: u32) -> Times {
        Times { min: if max == 0 { 0 } else { 1 }, max }
    }

    /// At least `min` times, at most `max`; a `max` below `min` counts as `min`.
    pub const fn between(min: u32, max: u32) -> Times {
        Times { min, max: if max < min { min } else { max } }
    }

    /// The fewest grants; with less room than that, the set is denied.
    pub const fn min(self) -> u32 {
        self.min
    }

    /// The most grants; 0 looks.
    pub const fn max(self) -> u32 {
        self.max
    }
}

/// Units that were granted and are given back: see [`Store::refund`](crate::Store::refund).
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The policy that granted them.
    pub policy: &'a Policy,
    /// The key they were granted to.
    pub key: &'a Key,
    /// How many units come back: at most what was granted.
    pub units: u32,
    /// [`Status::stamp`](crate::Status::stamp) of the grant.
    pub stamp: Stamp,
    /// [`Verdict::share`](crate::Verdict::share) of the verdict that granted them.
    pub share: Option<Share>,
}
