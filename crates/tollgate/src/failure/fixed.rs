//! The failure policies open and closed: requests pass, or are refused, while the store fails.

use std::convert::Infallible;
use std::future::{Future, Pending};

use tollgate_core::{
    Check, Grant, Key, Policy, PolicyError, Renewal, Reply, Settled, Source, Times, Verdict,
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
    type Done = Pending<Result<(), Infallible>>;

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

    fn made(&self, _: &Grant<'_>) -> bool {
        false
    }

    fn refund(&self, _: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        Reply::Now(Ok(()))
    }

    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl Future<Output = Settled> + Send {
        std::future::ready(Settled::unchanged(grants, total))
    }

    fn renew(&self, grants: &[Grant<'_>]) -> impl Future<Output = Vec<Renewal>> + Send {
        std::future::ready(vec![Renewal::Unanswered; grants.len()])
    }

    fn reset(&self, _: &Key, _: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        Reply::Now(Ok(()))
    }

    fn in_shadow(&self) -> Fixed {
        *self
    }

    fn supports(&self, _: &Policy) -> Result<(), PolicyError> {
        Ok(())
    }
}
