//! What became of units that were used.

use crate::store::check::Grant;

/// What became of units that were used: see [`Store::settle`](crate::Store::settle).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The units that are charged. More than were used if a store failed that should have given
    /// some back, or if grants were taken for used up before.
    pub charged: u64,
    /// How many of them exceed what was left of the quota. Later requests wait until they are paid.
    pub debt: u64,
    /// The units that no caller pays: those beyond the most debt, and those that no store was asked
    /// to charge.
    pub forgiven: u64,
    /// The units of a correction that was sent and not answered. Either they are charged now, or
    /// they are not: units that were used beyond the grant, or units of the grant that were not
    /// used.
    pub unknown: u64,
    /// The units of a correction that the store did not execute, and that is sent once it answers
    /// again. Dropped if that is too late.
    pub kept: u64,
}

impl Settled {
    /// That of grants whose charge stays as it is, although `total` units were used.
    pub fn unchanged(grants: &[Grant<'_>], total: u64) -> Settled {
        let charged = granted(grants);
        Settled { charged, forgiven: total.saturating_sub(charged), ..Settled::default() }
    }

    /// That of grants whose correction to `total` may have been executed, but was not answered.
    pub fn unanswered(grants: &[Grant<'_>], total: u64) -> Settled {
        let granted = granted(grants);
        Settled { charged: granted.min(total), unknown: granted.abs_diff(total), ..Settled::default() }
    }

    /// That of grants whose correction to `total` was not executed, and is sent later.
    pub fn kept(grants: &[Grant<'_>], total: u64) -> Settled {
        let Settled { charged, unknown: kept, .. } = Settled::unanswered(grants, total);
        Settled { charged, kept, ..Settled::default() }
    }
}

/// The sum of the units.
pub(super) fn granted(grants: &[Grant<'_>]) -> u64 {
    grants.iter().fold(0, |sum, grant| sum.saturating_add(grant.units))
}
