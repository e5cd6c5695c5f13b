//! A fallback: another store decides, by a share of each quota, while the store fails.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    After, BlockStart, Check, End, Grant, Key, OwnedCheck, Policy, PolicyError, RenewalReport, Reply,
    Settled, Share, Source, Store, Then, Times, Unsent, Verdict, Wait,
};

use super::outage::undecided;
use super::substitute::{GrantSet, Substitute};

/// Another store, and its share of each quota: see
/// [`fall_back_to`](crate::StoreExt::fall_back_to).
#[derive(Clone, Debug)]
pub struct ByShare<F> {
    store: F,
    share: Share,
    /// Whether a share below one unit is one unit, and not none.
    at_least_one: bool,
}

type CheckSet<'a> = SmallVec<[Check<'a>; 4]>;

impl<F> ByShare<F> {
    pub(crate) fn new(store: F, share: Share) -> ByShare<F> {
        ByShare { store, share, at_least_one: false }
    }

    pub(super) fn at_least_one(self) -> ByShare<F> {
        ByShare { at_least_one: true, ..self }
    }

    /// The share of a policy. `None` if it is less than one unit, and none is granted then.
    fn share_of(&self, policy: &Policy) -> Option<Policy> {
        match self.at_least_one {
            true => policy.share_of_at_least_one(self.share).ok(),
            false => policy.share(self.share).ok(),
        }
    }

    /// Each grant with the policy that made it.
    fn shares<'a>(&self, grants: &'a [Grant<'a>]) -> SmallVec<[(&'a Grant<'a>, Policy); 1]> {
        grants.iter().filter_map(|grant| Some((grant, self.share_of(grant.policy)?))).collect()
    }
}

impl<F: Store<Error = Infallible>> Substitute for ByShare<F> {
    /// The set is borrowed, and is needed again if the store fails.
    type Kept = (SmallVec<[OwnedCheck; 1]>, Times);
    type Acquire = Then<F::Acquire, Reported>;

    fn keep(&self, set: &[Check<'_>], times: Times) -> Self::Kept {
        (set.iter().map(OwnedCheck::from).collect(), times)
    }

    fn decide(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, Self::Acquire> {
        let share = |check: &Check<'_>| match check.cost {
            // It passes, however small the share is.
            0 => check.policy.share_of_at_least_one(self.share).ok(),
            _ => self.share_of(check.policy),
        };
        let shares: Option<SmallVec<[Policy; 1]>> = set.iter().map(share).collect();
        let Some(shares) = shares else { return Reply::Now(undecided(0, Source::Fallback)) };
        let checks: CheckSet<'_> =
            set.iter().zip(&shares).map(|(check, policy)| Check { policy, ..*check }).collect();
        let fits_whole = set.iter().all(|check| check.cost <= check.policy.largest_cost());
        let reported = Reported { charges_what_fits: times.max() > 0 && fits_whole };
        self.store.acquire(&checks, times).then(&self.share, reported)
    }

    fn decide_kept(&self, (set, times): &Self::Kept) -> Reply<Verdict, Self::Acquire> {
        let set: CheckSet<'_> = set.iter().map(OwnedCheck::check).collect();
        self.decide(&set, *times)
    }

    fn made(&self, share: Option<Share>) -> bool {
        share.is_some()
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<F> {
        self.store.refund(&of_whole(&self.shares(grants)))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Infallible> + use<F> {
        self.store.settle(&of_whole(&self.shares(grants)), total)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<F> {
        self.store.renew(&of_whole(&self.shares(grants)), report)
    }

    /// A block has no share of its own.
    fn block(&self, policy: &Policy, key: &Key) -> impl End<BlockStart, Infallible> + use<F> {
        self.store.block(policy, key, None)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<F> {
        self.store.reset(key, policies)
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<F> {
        self.store.close(limit)
    }

    fn in_shadow(&self) -> ByShare<F> {
        ByShare { store: self.store.in_shadow(), share: self.share, at_least_one: self.at_least_one }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.share_of(policy).map_or(Ok(()), |part| self.store.supports(&part))
    }
}

/// The grants as the fallback knows them.
fn of_whole<'a>(shares: &'a [(&'a Grant<'a>, Policy)]) -> GrantSet<'a> {
    shares.iter().map(|(grant, policy)| Grant { policy, share: None, ..**grant }).collect()
}

/// Reports the fallback's verdict for the whole quota.
#[derive(Debug)]
pub struct Reported {
    /// Whether the costs are charged, and each fits its whole quota.
    charges_what_fits: bool,
}

impl After<Result<Verdict, Infallible>> for Reported {
    type Shared = Share;
    type Output = Verdict;

    fn after(self, share: &Share, answer: Result<Verdict, Infallible>) -> Verdict {
        let Ok(verdict) = answer;
        // The outage refuses a cost that only exceeds the share. A look still reports the share.
        if self.charges_what_fits && verdict.wait() == Wait::Never {
            return undecided(0, Source::Fallback);
        }
        verdict.of_share(*share)
    }
}
