//! Policies for quotas and deadlines that requests bring along.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tollgate_core::{Policy, Quota};

use super::RuleNumber;
use super::item::Item;

/// How many policies of a rule are kept at most, in sets of [`WAYS`] that share a lock.
const SETS: usize = 512;
const WAYS: usize = 8;

/// The policies of one rule that requests brought along lately. A new one takes the place of that
/// in its set which was not used for the longest time. It is made again when it is wanted again:
/// its state is in the store.
#[derive(Debug)]
pub(crate) struct MadePolicies {
    /// Made with the first policy: most rules need none.
    sets: OnceLock<Sets>,
    /// With a seed, so that no caller chooses which quotas share a set.
    hasher: RandomState,
}

type Sets = Box<[Mutex<Vec<Arc<MadePolicy>>>]>;

/// Another table, without policies.
impl Clone for MadePolicies {
    fn clone(&self) -> MadePolicies {
        MadePolicies::new()
    }
}

#[derive(Debug)]
pub(crate) struct MadePolicy {
    wanted: WantedPolicy,
    /// The number of its rule.
    pub(super) rule: RuleNumber,
    pub(super) policy: Policy,
    item: OnceLock<Item>,
}

impl MadePolicy {
    /// What a field says of it.
    pub(crate) fn item(&self) -> &Item {
        self.item.get_or_init(|| Item::new(&self.policy, Bytes::from))
    }
}

/// What a request wants of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WantedPolicy {
    pub(crate) quota: Quota,
    /// The units that it leaves to others.
    pub(crate) leaves: u64,
    /// The longest wait in the queue of a leaky bucket, if it is not that of the rule.
    pub(crate) longest_wait: Option<Duration>,
}

impl MadePolicies {
    pub(crate) fn new() -> MadePolicies {
        MadePolicies { sets: OnceLock::new(), hasher: RandomState::new() }
    }

    /// The policy that is wanted, which `make` makes unless it is kept. `None` if that returns
    /// `None`: nothing is kept then.
    pub(crate) fn find(
        &self,
        rule: RuleNumber,
        wanted: WantedPolicy,
        make: impl FnOnce() -> Option<Policy>,
    ) -> Option<Arc<MadePolicy>> {
        if let Some(found) = find(&mut self.set_of(wanted), wanted) {
            return Some(found);
        }
        // Without the lock, since a store is asked whether it supports the policy.
        let made = Arc::new(MadePolicy { wanted, rule, policy: make()?, item: OnceLock::new() });
        let mut set = self.set_of(wanted);
        if let Some(found) = find(&mut set, wanted) {
            return Some(found);
        }
        set.truncate(WAYS - 1);
        set.insert(0, Arc::clone(&made));
        Some(made)
    }

    fn set_of(&self, wanted: WantedPolicy) -> MutexGuard<'_, Vec<Arc<MadePolicy>>> {
        let set = (self.hasher.hash_one(wanted) >> 32) as usize % SETS;
        let sets = self.sets.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        sets[set].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds a policy, and moves it to the front: the last one was not used for the longest time.
fn find(set: &mut [Arc<MadePolicy>], wanted: WantedPolicy) -> Option<Arc<MadePolicy>> {
    let at = set.iter().position(|made| made.wanted == wanted)?;
    set[..=at].rotate_right(1);
    Some(Arc::clone(&set[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RuleNumber = RuleNumber(0);

    fn wanted(limit: u64) -> WantedPolicy {
        WantedPolicy { quota: Quota::per_minute(limit), leaves: 0, longest_wait: None }
    }

    fn policy(limit: u64) -> Option<Policy> {
        Some(Policy::new("p", Quota::per_minute(limit)))
    }

    fn kept(made: &MadePolicies) -> usize {
        made.sets.get().unwrap().iter().map(|set| set.lock().unwrap().len()).sum()
    }

    #[test]
    fn a_policy_that_is_kept_is_not_made_again() {
        let made = MadePolicies::new();
        let first = made.find(RULE, wanted(5), || policy(5)).expect("it is allowed");
        let again = made.find(RULE, wanted(5), || panic!("made twice")).expect("it is kept");
        assert!(Arc::ptr_eq(&first, &again));
        for (other, limit) in [(wanted(6), 6), (WantedPolicy { leaves: 1, ..wanted(5) }, 5)] {
            let other = made.find(RULE, other, || policy(limit)).expect("it is allowed");
            assert!(!Arc::ptr_eq(&first, &other));
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_kept() {
        let made = MadePolicies::new();
        for limit in 1..100 {
            assert!(made.find(RULE, wanted(limit), || None).is_none());
        }
        assert_eq!(kept(&made), 0);
    }

    #[test]
    fn a_full_table_makes_each_policy_again_and_keeps_the_latest() {
        let made = MadePolicies::new();
        let mut busy = 0;
        for limit in 1..=20_000 {
            let found = made.find(RULE, wanted(limit), || policy(limit)).expect("it is allowed");
            assert_eq!(found.policy.quota().limit(), limit);
            made.find(RULE, wanted(1), || {
                busy += 1;
                policy(1)
            });
        }
        assert!(kept(&made) <= SETS * WAYS);
        assert_eq!(busy, 0, "a policy in use is not the one that goes");
        let mut again = 0;
        for limit in (19_001..=20_000).rev() {
            made.find(RULE, wanted(limit), || {
                again += 1;
                policy(limit)
            });
        }
        assert!(again < 100, "{again} of the latest thousand were made again");
    }

    #[test]
    fn threads_that_make_one_policy_at_once_share_it() {
        for limit in 1..200 {
            let made = MadePolicies::new();
            let found: Vec<_> = std::thread::scope(|scope| {
                let find = || made.find(RULE, wanted(limit), || policy(limit)).expect("it is allowed");
                let threads = [scope.spawn(find), scope.spawn(find), scope.spawn(find)];
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
        }
    }
}
