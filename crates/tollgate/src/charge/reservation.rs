//! What was granted and what was used, until it is settled.

use smallvec::{SmallVec, smallvec};
use tollgate_core::{Grant, Key, Policy, Settled};

use crate::decision::GrantStamp;

/// The most grants of a request that are refunded one by one.
const MOST_GRANTS: usize = 128;

/// Whether a grant of so many units makes one with the grant before it: of one window, or of debts
/// in a bucket that follow each other. A refund of both returns what two refunds would.
fn is_one(policy: &Policy, before: Option<GrantStamp>, units: u64, granted: Option<GrantStamp>) -> bool {
    let follows = |before: GrantStamp, granted: GrantStamp| {
        let is_whole = before.share.is_none() && granted.share.is_none();
        is_whole && granted.stamp.after_refund(policy, units) == before.stamp
    };
    before == granted || before.zip(granted).is_some_and(|(before, granted)| follows(before, granted))
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
    /// grants only. Beyond [`MOST_GRANTS`] the oldest counts as used.
    pub(super) fn extend(&mut self, policy: &Policy, units: u64, granted: Option<GrantStamp>) {
        match self.grants.last_mut() {
            Some((latest, of)) if is_one(policy, *of, units, granted) => {
                (*latest, *of) = (latest.saturating_add(units), granted);
            }
            _ => self.grants.push((units, granted)),
        }
        let used = self.used.unwrap_or(0);
        while let [(oldest, granted), _, ..] = self.grants[..]
            && (self.grants.len() > MOST_GRANTS || self.used_up().saturating_add(oldest) <= used)
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
        let grant =
            |(units, granted): &(u64, Option<GrantStamp>)| Some((*granted)?.grant(policy, key, *units));
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
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tollgate_core::algorithm::State;
    use tollgate_core::{Stamp, Timestamp};

    use super::*;

    fn at(us: u64) -> Option<GrantStamp> {
        Some(GrantStamp { stamp: Stamp::new(us, 0), share: None })
    }

    fn windows() -> Policy {
        Policy::new("p", tollgate_core::Quota::per_day(5))
            .with_algorithm(tollgate_core::Algorithm::FIXED_WINDOW)
    }

    #[test]
    fn grants_that_are_used_up_need_no_stamp() {
        let policy = windows();
        let mut reservation = Reservation::new(10, at(0));
        for n in 1..=1_000 {
            reservation.use_up(10);
            reservation.extend(&policy, 10, at(n));
        }
        assert_eq!(
            (reservation.grants.len(), reservation.spent, reservation.reserved()),
            (1, 10_000, 10_010)
        );
        reservation.use_up(4);
        reservation.extend(&policy, 10, at(2_000));
        assert_eq!(
            (reservation.grants.len(), reservation.reserved()),
            (2, 10_020),
            "6 units are not used yet"
        );
        reservation.extend(&policy, 5, at(2_000));
        assert_eq!((reservation.grants.len(), reservation.reserved()), (2, 10_025), "of one window");
    }

    proptest! {
        /// A request that extends its charge while others of its key do, too. Refunds of what is
        /// kept return as much as refunds of all grants, in a bucket that refills meanwhile.
        #[test]
        fn grants_that_follow_each_other_are_refunded_as_one(
            steps in vec((0..300_000_u64, 1..9_u64, 0..4_u64), 1..12),
            until_settled in 0..3_000_000_u64,
        ) {
            let policy = Policy::new("p", tollgate_core::Quota::per_second(7).burst(1_000));
            let (key, mut state) = (Key::from("k"), State::new(&policy));
            let charge = |state: &mut State, us: u64, units: u64| {
                let now = Timestamp::from_micros(us);
                let look = state.look(&policy, now);
                let stamp = state.charge(&policy, now, look, units).status.stamp();
                GrantStamp { stamp, share: None }
            };
            let mut now = 1_000_000;
            let first = charge(&mut state, now, 5);
            let (mut one_by_one, mut kept) = (vec![(5, first)], Reservation::new(5, Some(first)));
            for (gap, units, of_other) in steps {
                now += gap;
                // Half of the times, another request comes between.
                charge(&mut state, now, of_other / 2);
                let granted = charge(&mut state, now, units);
                one_by_one.push((units, granted));
                kept.extend(&policy, units, Some(granted));
            }
            let (now, mut other) = (Timestamp::from_micros(now + until_settled), state.clone());
            for (units, granted) in one_by_one.iter().rev() {
                state.refund(&policy, now, *units, granted.stamp);
            }
            for grant in kept.correction(&policy, &key, 0).0.iter().rev() {
                other.refund(&policy, now, grant.units, grant.stamp);
            }
            prop_assert_eq!(state.look(&policy, now), other.look(&policy, now));
            prop_assert_eq!(kept.reserved(), one_by_one.iter().map(|(units, _)| units).sum::<u64>());
        }
    }

    #[test]
    fn what_is_used_up_counts_whether_it_was_charged_or_not() {
        let policy = windows();
        let mut reservation = Reservation::new(2, None);
        reservation.use_up(5);
        for (units, n) in [(3, 1), (4, 2)] {
            reservation.extend(&policy, units, at(n));
        }
        assert_eq!((reservation.forgiven, reservation.spent, reservation.reserved()), (2, 3, 9));
    }

    #[test]
    fn extensions_without_others_between_them_are_one_grant() {
        let policy = Policy::new("p", tollgate_core::Quota::per_second(7).burst(100_000));
        let mut state = State::new(&policy);
        let mut charge = |us: u64| {
            let now = Timestamp::from_micros(us);
            let look = state.look(&policy, now);
            let stamp = state.charge(&policy, now, look, 1).status.stamp();
            Some(GrantStamp { stamp, share: None })
        };
        let mut reservation = Reservation::new(1, charge(1_000_000));
        for n in 1..50_000 {
            reservation.extend(&policy, 1, charge(1_000_000 + n));
        }
        assert_eq!((reservation.grants.len(), reservation.reserved()), (1, 50_000));
    }

    #[test]
    fn beyond_the_most_grants_the_oldest_count_as_used() {
        let policy = windows();
        let mut reservation = Reservation::new(3, at(0));
        for n in 1..50_000 {
            reservation.extend(&policy, 3, at(n));
        }
        assert_eq!((reservation.grants.len(), reservation.reserved()), (MOST_GRANTS, 150_000));
        let key = Key::from("k");
        let (grants, rest) = reservation.correction(&policy, &key, 0);
        assert_eq!((grants.len(), rest), (MOST_GRANTS, 0));
        let settled = reservation.settled(0, Settled::default());
        assert_eq!(settled.charged, 150_000 - 3 * MOST_GRANTS as u64, "it is reported");
    }

    /// Units are used in the order of their grants: what passed without a charge is forgiven if it
    /// was used, and takes nothing from the units before it.
    #[test]
    fn what_passed_without_a_charge_is_forgiven_in_its_turn() {
        let (policy, key) = (windows(), Key::from("k"));
        for (grants, total, rest, forgiven) in [
            ([(10, None), (5, at(0))], 12, 2, 10),
            ([(10, None), (5, at(0))], 4, 0, 4),
            ([(10, at(0)), (5, None)], 10, 10, 0),
            ([(10, at(0)), (5, None)], 12, 10, 2),
            ([(10, at(0)), (5, None)], 20, 15, 5),
        ] {
            let [(first, of_first), (second, of_second)] = grants;
            let mut reservation = Reservation::new(first, of_first);
            reservation.extend(&policy, second, of_second);
            let (grants, corrected) = reservation.correction(&policy, &key, total);
            assert_eq!((grants.len(), corrected), (1, rest));
            let settled = reservation.settled(total, Settled { charged: rest, ..Settled::default() });
            assert_eq!(settled, Settled { charged: rest, forgiven, ..Settled::default() }, "{total}");
        }
    }
}
