//! The failure policies open and closed: requests pass, or are refused, while the store fails.

use std::convert::Infallible;
use std::future::{Future, Pending, ready};
use std::time::Duration;

use tollgate_core::{
    BlockStart, Check, End, Grant, Key, Policy, PolicyError, RenewalReport, Reply, Settled, Share, Source,
    Times, Unsent, Verdict,
};

use super::outage::undecided;
use super::substitute::Substitute;

/// Lets all requests pass, or refuses all that cost something, while the store fails: see
/// [`fail_open`](crate::StoreExt::fail_open) and [`fail_closed`](crate::StoreExt::fail_closed).
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    passes: bool,
}

impl Fixed {
    pub(crate) const OPEN: Fixed = Fixed { passes: true };
    pub(crate) const CLOSED: Fixed = Fixed { passes: false };
}

/// Makes no grants that can be refunded: no charge is known.
impl Substitute for Fixed {
    /// How often the set is granted if the store fails.
    type Kept = u32;
    type Acquire = Pending<Verdict>;

    fn keep(&self, set: &[Check<'_>], times: Times) -> u32 {
        // A request without a cost always passes: no store would refuse it.
        let passes = self.passes || set.iter().all(|check| check.cost == 0);
        if passes { times.max() } else { 0 }
    }

    fn decide(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, Self::Acquire> {
        self.decide_kept(&self.keep(set, times))
    }

    fn decide_kept(&self, times: &u32) -> Reply<Verdict, Self::Acquire> {
        Reply::Now(undecided(*times, Source::FailurePolicy))
    }

    fn made(&self, _: Option<Share>) -> bool {
        false
    }

    fn refund(&self, _: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        ready(Ok(()))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Infallible> + use<> {
        ready(Ok(Settled::unchanged(grants, total)))
    }

    fn renew(&self, _: &[Grant<'_>], _: RenewalReport) -> impl End<(), Infallible> + use<> {
        ready(Ok(()))
    }

    fn block(&self, _: &Policy, _: &Key) -> impl End<BlockStart, Infallible> + use<> {
        ready(Ok(BlockStart::Dropped))
    }

    fn reset(&self, _: &Key, _: &[&Policy]) -> impl End<(), Infallible> + use<> {
        ready(Ok(()))
    }

    fn close(&self, _: Duration) -> impl Future<Output = Unsent> + Send + use<> {
        ready(Unsent::default())
    }

    fn in_shadow(&self) -> Fixed {
        *self
    }

    fn supports(&self, _: &Policy) -> Result<(), PolicyError> {
        Ok(())
    }
}
