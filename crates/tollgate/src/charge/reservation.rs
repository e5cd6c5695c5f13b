//! What was granted and what was used, until it is settled.

use smallvec::{SmallVec, smallvec};
use tollgate_core::{Grant, Key, Policy, Settled, Share, Stamp};

/// What a refund of granted units needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantStamp {
    pub(crate) stamp: Stamp,
    pub(crate) share: Option<Share>,
}

/// Units of one request, which its work uses in the order of their grants.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Units of grants that are used up. They are charged, and none of them comes back.
    spent: u64,
    /// Units that are used up, and passed without a charge because the store failed.
    forgiven: u64,
    /// The latest grants, oldest first. `None` if they passed without a charge.
    grants: SmallVec<[(u64, Option<GrantStamp>); 1]>,
    /// `None` if nothing was said.
    used: Option<u64>,
}

impl Reservation {
    pub(super) fn new(units: u64, granted: Option<GrantStamp>) -> Reservation {
        Reservation { spent: 0, forgiven: 0, grants: smallvec![(units, granted)], used: None }
    }

    /// Adds a grant. What is used up needs no stamp, so a long stream holds those of its latest
    /// grants only.
    pub(super) fn extend(&mut self, units: u64, granted: Option<GrantStamp>) {
        match self.grants.last_mut() {
            // Two grants of one window.
            Some((latest, of)) if *of == granted => *latest = latest.saturating_add(units),
            _ => self.grants.push((units, granted)),
        }
        let used = self.used.unwrap_or(0);
        while let [(oldest, granted), _, ..] = self.grants[..]
            && self.used_up().saturating_add(oldest) <= used
        {
            let ended = if granted.is_some() { &mut self.spent } else { &mut self.forgiven };
            *ended = ended.saturating_add(oldest);
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
        self.grants.iter().fold(self.used_up(), |sum, (units, _)| sum.saturating_add(*units))
    }

    fn used_up(&self) -> u64 {
        self.spent.saturating_add(self.forgiven)
    }

    /// Of a `total` of used units, those of the grants that were charged, with what exceeds all
    /// grants, and those of the grants that were not.
    fn split(&self, total: u64) -> (u64, u64) {
        let mut left = total.saturating_sub(self.used_up());
        let (mut charged, mut forgiven) = (0, self.forgiven.min(total));
        for (units, granted) in &self.grants {
            let used = left.min(*units);
            left -= used;
            let sum = if granted.is_some() { &mut charged } else { &mut forgiven };
            *sum += used;
        }
        (charged + left, forgiven)
    }

    /// The grants that can be corrected, and to what, for a `total` of used units.
    pub(crate) fn correction<'a>(
        &self,
        policy: &'a Policy,
        key: &'a Key,
        total: u64,
    ) -> (SmallVec<[Grant<'a>; 1]>, u64) {
        let grant = |(units, granted): &(u64, Option<GrantStamp>)| {
            let GrantStamp { stamp, share } = (*granted)?;
            Some(Grant { policy, key, units: *units, stamp, share })
        };
        (self.grants.iter().filter_map(grant).collect(), self.split(total).0)
    }

    /// The whole result, of that of a correction.
    pub(crate) fn settled(&self, total: u64, corrected: Settled) -> Settled {
        let spent = self.spent;
        if self.grants.iter().all(|(_, granted)| granted.is_none()) {
            return Settled { charged: spent, forgiven: total.saturating_sub(spent), ..Settled::default() };
        }
        let forgiven = corrected.forgiven.saturating_add(self.split(total).1);
        Settled { charged: spent.saturating_add(corrected.charged), forgiven, ..corrected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Option<GrantStamp> {
        Some(GrantStamp { stamp: Stamp::new(us, 0), share: None })
    }

    #[test]
    fn grants_that_are_used_up_need_no_stamp() {
        let mut reservation = Reservation::new(10, at(0));
        for n in 1..=1_000 {
            reservation.use_up(10);
            reservation.extend(10, at(n));
        }
        assert_eq!(
            (reservation.grants.len(), reservation.spent, reservation.reserved()),
            (1, 10_000, 10_010)
        );
        reservation.use_up(4);
        reservation.extend(10, at(2_000));
        assert_eq!(
            (reservation.grants.len(), reservation.reserved()),
            (2, 10_020),
            "6 units are not used yet"
        );
        reservation.extend(5, at(2_000));
        assert_eq!((reservation.grants.len(), reservation.reserved()), (2, 10_025), "of one window");
    }

    /// Units are used in the order of their grants: what passed without a charge is forgiven if it
    /// was used, and takes nothing from the units before it.
    #[test]
    fn what_passed_without_a_charge_is_forgiven_in_its_turn() {
        let (policy, key) = (Policy::new("p", tollgate_core::Quota::per_day(5)), Key::from("k"));
        for (grants, total, rest, forgiven) in [
            ([(10, None), (5, at(0))], 12, 2, 10),
            ([(10, None), (5, at(0))], 4, 0, 4),
            ([(10, at(0)), (5, None)], 10, 10, 0),
            ([(10, at(0)), (5, None)], 12, 10, 2),
            ([(10, at(0)), (5, None)], 20, 15, 5),
        ] {
            let [(first, of_first), (second, of_second)] = grants;
            let mut reservation = Reservation::new(first, of_first);
            reservation.extend(second, of_second);
            let (grants, corrected) = reservation.correction(&policy, &key, total);
            assert_eq!((grants.len(), corrected), (1, rest));
            let settled = reservation.settled(total, Settled { charged: rest, ..Settled::default() });
            assert_eq!(settled, Settled { charged: rest, forgiven, ..Settled::default() }, "{total}");
        }
    }
}
