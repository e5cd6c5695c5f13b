//! Policies for quotas that requests bring along.

use std::sync::OnceLock;

use tollgate_core::{Policy, Quota};

/// How many are kept at most. A power of two.
const PLACES: usize = 4_096;

/// How many places a new policy tries. With three of four places taken, few need as many.
const TRIES: usize = 64;

/// A table that only grows, so that a request finds its policy without a lock. A policy is made
/// once for each rule, quota and headroom.
#[derive(Clone, Debug)]
pub(crate) struct MadePolicies(Box<[OnceLock<Made>]>);

#[derive(Clone, Debug)]
struct Made {
    wanted: WantedPolicy,
    /// `None` if the rule or the store does not allow it.
    policy: Option<Policy>,
}

/// What a request wants of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedPolicy {
    /// The number of the rule.
    pub(crate) rule: usize,
    pub(crate) quota: Quota,
    /// The units that it leaves to others.
    pub(crate) leaves: u64,
}

impl MadePolicies {
    /// A table without places, unless requests bring quotas.
    pub(crate) fn new(is_needed: bool) -> MadePolicies {
        let places = if is_needed { PLACES } else { 0 };
        MadePolicies((0..places).map(|_| OnceLock::new()).collect())
    }

    /// How many policies there may be.
    pub(crate) fn places(&self) -> usize {
        self.0.len()
    }

    /// The place of a policy, which is made at its first use. `None` if there is none, or if the
    /// table is full.
    pub(crate) fn place(&self, wanted: WantedPolicy, make: impl FnOnce() -> Option<Policy>) -> Option<usize> {
        let mut make = Some(make);
        let first = wanted.hash();
        for place in (0..TRIES).map(|offset| (first + offset) % self.0.len()) {
            let made = self.0[place].get_or_init(|| {
                // Called at most once: the first place that is free ends the search.
                let policy = make.take().and_then(|make| make());
                Made { wanted, policy }
            });
            if made.wanted == wanted {
                return made.policy.as_ref().map(|_| place);
            }
        }
        None
    }

    /// The policy at a place, and the number of its rule.
    ///
    /// # Panics
    /// If none was made there.
    pub(crate) fn at(&self, place: usize) -> (usize, &Policy) {
        let made = self.0[place].get().and_then(|made| Some((made.wanted.rule, made.policy.as_ref()?)));
        made.expect("a request has asked for it")
    }
}

impl WantedPolicy {
    /// Quotas are those of tokens that were checked: no caller makes them collide.
    fn hash(&self) -> usize {
        let WantedPolicy { rule, quota, leaves } = self;
        let numbers = [*rule as u64, quota.limit(), quota.given_burst().unwrap_or(0), *leaves];
        // The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
        let hash = numbers
            .into_iter()
            .fold(0_u64, |hash, number| (hash.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (hash >> 40) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(limit: u64) -> WantedPolicy {
        WantedPolicy { rule: 0, quota: Quota::per_minute(limit), leaves: 0 }
    }

    fn policy(limit: u64) -> Option<Policy> {
        Some(Policy::new("p", Quota::per_minute(limit)))
    }

    #[test]
    fn a_policy_is_made_once() {
        let made = MadePolicies::new(true);
        let place = made.place(wanted(5), || policy(5)).expect("room");
        assert_eq!(made.place(wanted(5), || panic!("made twice")), Some(place));
        assert_ne!(made.place(wanted(6), || policy(6)), Some(place));
        assert_ne!(made.place(WantedPolicy { rule: 1, ..wanted(5) }, || policy(5)), Some(place));
        assert_ne!(made.place(WantedPolicy { leaves: 1, ..wanted(5) }, || policy(5)), Some(place));
        assert_eq!(made.at(place).1.quota(), Quota::per_minute(5));
        assert_eq!(made.place(wanted(7), || None), None);
        assert_eq!(made.place(wanted(7), || panic!("tried twice")), None);
    }

    #[test]
    fn a_full_table_makes_no_more_and_keeps_what_it_has() {
        let made = MadePolicies::new(true);
        let first: Vec<_> = (1..=100_000).map(|limit| made.place(wanted(limit), || policy(limit))).collect();
        let kept = first.iter().flatten().count();
        assert!((PLACES * 3 / 4..=PLACES).contains(&kept), "{kept}");
        assert!(first[..PLACES * 3 / 4].iter().all(Option::is_some));
        for (limit, place) in (1..).zip(&first) {
            assert_eq!(made.place(wanted(limit), || unreachable!()).is_some(), place.is_some());
            if let Some(place) = place {
                assert_eq!(made.at(*place).1.quota().limit(), limit);
            }
        }
    }

    #[test]
    fn threads_that_make_one_policy_at_once_get_the_same_place() {
        for limit in 1..200 {
            let made = MadePolicies::new(true);
            let places: Vec<_> = std::thread::scope(|scope| {
                let place = || made.place(wanted(limit), || policy(limit));
                let threads = [scope.spawn(place), scope.spawn(place), scope.spawn(place)];
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            assert!(places[0].is_some() && places.iter().all(|place| *place == places[0]));
        }
    }
}
