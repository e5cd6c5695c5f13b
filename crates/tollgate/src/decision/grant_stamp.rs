//! What tells the units that were granted from others.

use tollgate_core::{Grant, Key, Policy, Share, Stamp, Verdict};

/// What a correction of granted units needs, apart from the ask that they were granted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantStamp {
    pub(crate) stamp: Stamp,
    pub(crate) share: Option<Share>,
}

impl GrantStamp {
    /// That of the ask at a place. `None` if a failure policy let it pass.
    pub(crate) fn of(verdict: &Verdict, at: usize) -> Option<GrantStamp> {
        let status = verdict.each().get(at)?;
        Some(GrantStamp { stamp: status.stamp(), share: verdict.share() })
    }

    /// The units that a correction is about.
    pub(crate) fn grant<'a>(self, policy: &'a Policy, key: &'a Key, units: u64) -> Grant<'a> {
        let GrantStamp { stamp, share } = self;
        Grant { policy, key, units, stamp, share }
    }
}
