//! What was granted and what was used, until it is settled.

use smallvec::{SmallVec, smallvec};
use tollgate_core::{Grant, Key, Policy, Settled, Share, Stamp};

/// What a refund of granted units needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantStamp {
    pub(crate) stamp: Stamp,
    pub(crate) share: Option<Share>,
}

/// Units of one request.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Units that passed without a charge, because the store failed.
    uncharged: u64,
    /// Units of grants that are used up. They are charged, and none of them comes back.
    spent: u64,
    /// The latest grants, oldest first.
    grants: SmallVec<[(u64, GrantStamp); 1]>,
    /// `None` if nothing was said.
    used: Option<u64>,
}

impl Reservation {
    pub(super) fn new(units: u64, granted: Option<GrantStamp>) -> Reservation {
        let mut reservation = Reservation { uncharged: 0, spent: 0, grants: smallvec![], used: None };
        reservation.add(units, granted);
        reservation
    }

    fn add(&mut self, units: u64, granted: Option<GrantStamp>) {
        match granted {
            Some(granted) => self.grants.push((units, granted)),
            None => self.uncharged = self.uncharged.saturating_add(units),
        }
    }

    /// Adds a grant. What is used up needs no stamp, so a long stream holds those of its latest
    /// grants only.
    pub(super) fn extend(&mut self, units: u64, granted: Option<GrantStamp>) {
        self.add(units, granted);
        let used = self.used.unwrap_or(0);
        while let [(oldest, _), _, ..] = self.grants[..]
            && self.without_stamp().saturating_add(oldest) <= used
        {
            self.spent += oldest;
            self.grants.remove(0);
        }
    }

    pub(super) fn use_up(&mut self, units: u64) {
        self.used = Some(self.used.unwrap_or(0).saturating_add(units));
    }

    pub(super) fn used(&self) -> Option<u64> {
        self.used
    }

    pub(super) fn reserved(&self) -> u64 {
        self.grants.iter().fold(self.without_stamp(), |sum, (units, _)| sum.saturating_add(*units))
    }

    fn without_stamp(&self) -> u64 {
        self.uncharged.saturating_add(self.spent)
    }

    /// The grants that can be corrected, and to what, for a `total` of used units.
    pub(crate) fn correction<'a>(
        &self,
        policy: &'a Policy,
        key: &'a Key,
        total: u64,
    ) -> (SmallVec<[Grant<'a>; 1]>, u64) {
        let grant = |(units, granted): &(u64, GrantStamp)| Grant {
            policy,
            key,
            units: *units,
            stamp: granted.stamp,
            share: granted.share,
        };
        (self.grants.iter().map(grant).collect(), total.saturating_sub(self.without_stamp()))
    }

    /// The whole result, of that of a correction.
    pub(crate) fn settled(&self, total: u64, corrected: Settled) -> Settled {
        if self.grants.is_empty() {
            return Settled { charged: 0, debt: 0, forgiven: total };
        }
        Settled {
            charged: self.spent.saturating_add(corrected.charged),
            forgiven: corrected.forgiven.saturating_add(self.uncharged.min(total)),
            ..corrected
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_that_are_used_up_need_no_stamp() {
        let granted = Some(GrantStamp { stamp: Stamp::default(), share: None });
        let mut reservation = Reservation::new(10, granted);
        for _ in 0..1_000 {
            reservation.use_up(10);
            reservation.extend(10, granted);
        }
        assert_eq!(
            (reservation.grants.len(), reservation.spent, reservation.reserved()),
            (1, 10_000, 10_010)
        );
        reservation.use_up(4);
        reservation.extend(10, granted);
        assert_eq!(
            (reservation.grants.len(), reservation.reserved()),
            (2, 10_020),
            "6 units are not used yet"
        );
    }

    #[test]
    fn what_passed_without_a_charge_is_forgiven_first() {
        let mut reservation = Reservation::new(10, None);
        reservation.extend(5, Some(GrantStamp { stamp: Stamp::default(), share: None }));
        let (policy, key) = (Policy::new("p", tollgate_core::Quota::per_day(5)), Key::from("k"));
        let (grants, total) = reservation.correction(&policy, &key, 12);
        assert_eq!((grants.len(), total), (1, 2));
        let settled = reservation.settled(12, Settled { charged: 2, ..Settled::default() });
        assert_eq!(settled, Settled { charged: 2, debt: 0, forgiven: 10 });
    }
}
