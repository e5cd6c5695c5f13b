//! One correction: what it changes, and how long that makes sense.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;
use tollgate_core::{Grant, Key, Policy, Share, Stamp, Store, Timestamp, credit, unused_units};

/// Corrections with their units, and the stamp of the newest grant that each corrects.
pub(in crate::failure) type Corrections = SmallVec<[(Outstanding, u64, Stamp); 1]>;

/// What is corrected. Charges merge by policy and key, refunds by their grant too. Those by another
/// quota do not: it bounds the debt, and says how much time a unit is.
#[derive(Clone, Debug)]
pub(in crate::failure) struct Outstanding {
    policy: Policy,
    key: Key,
    /// Of the grant that is refunded. `None` of a charge.
    stamp: Option<Stamp>,
    share: Option<Share>,
}

impl Outstanding {
    fn new(grant: &Grant<'_>, stamp: Option<Stamp>) -> Outstanding {
        Outstanding { policy: grant.policy.clone(), key: grant.key.clone(), stamp, share: grant.share }
    }

    pub(super) fn concerns(&self, policy: &Policy, key: &Key) -> bool {
        self.key == *key && self.policy.scope() == policy.scope()
    }

    /// The most units of debt that a charge may leave, as far as that depends on the quota.
    pub(super) fn capacity(&self) -> u64 {
        self.policy.capacity()
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn is_credit(&self) -> bool {
        self.stamp == Some(Stamp::NEWEST)
    }

    /// When it changes nothing any more. The times of the store count as those of this process. If
    /// that is a time from `now` on, it is up to an eighth longer, so that few of a key do not
    /// merge.
    pub(super) fn ends(&self, stamp: Stamp, now: Timestamp) -> Timestamp {
        let ends = |now| stamp.counts_until(&self.policy, now).as_micros();
        let (end, now) = (ends(now), now.as_micros());
        if ends(Timestamp::from_micros(now + 1)) == end {
            return Timestamp::from_micros(end);
        }
        let step = ((end - now) / 8).max(1);
        Timestamp::from_micros(end.next_multiple_of(step))
    }

    pub(super) async fn send<S: Store>(&self, store: &S, units: u64) -> Result<(), S::Error> {
        let Outstanding { policy, key, stamp, share } = self;
        let grant = |units, stamp| Grant { policy, key, units, stamp, share: *share };
        match stamp {
            Some(Stamp::NEWEST) => credit(store, policy, key, units).await,
            Some(stamp) => store.refund(&[grant(units, *stamp)]).await,
            // To a grant of no units, which no refund looks for.
            None => store.settle(&[grant(0, Stamp::default())], units).await.map(|_| ()),
        }
    }
}

impl PartialEq for Outstanding {
    fn eq(&self, other: &Outstanding) -> bool {
        self.concerns(&other.policy, &other.key)
            && self.policy.quota() == other.policy.quota()
            && self.stamp == other.stamp
            && self.share == other.share
    }
}

impl Eq for Outstanding {}

impl Hash for Outstanding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.policy.numbers().scope_hash(), &self.key, self.stamp).hash(state);
    }
}

/// That of refunds.
pub(in crate::failure) fn refunds(grants: &[Grant<'_>]) -> Corrections {
    of_refunds(grants.iter().filter(|grant| grant.units > 0).copied())
}

/// That of a settlement. None of what a policy without debt would have to charge.
pub(in crate::failure) fn corrections(grants: &[Grant<'_>], total: u64) -> Corrections {
    let granted = grants.iter().fold(0_u64, |sum, grant| sum.saturating_add(grant.units));
    if total > granted {
        let newest = grants.last().filter(|newest| newest.policy.numbers().with_debt().is_some());
        let charge = |newest: &Grant<'_>| (Outstanding::new(newest, None), total - granted, newest.stamp);
        return newest.map(charge).into_iter().collect();
    }
    of_refunds(unused_units(grants, total))
}

fn of_refunds<'a>(grants: impl Iterator<Item = Grant<'a>>) -> Corrections {
    grants.map(|grant| (Outstanding::new(&grant, Some(grant.stamp)), grant.units, grant.stamp)).collect()
}
