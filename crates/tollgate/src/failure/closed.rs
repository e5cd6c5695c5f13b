//! Requests are refused while the store fails.

use std::convert::Infallible;

use tollgate_core::{Check, Grant, Key, Policy, PolicyError, Reply, Store, Times, Verdict};

use super::event::Event;
use super::guarded::{Decided, Done, Guarded};

/// A [`Store`] that refuses what the inner store fails to decide: see
/// [`FailureExt::fail_closed`](super::FailureExt::fail_closed) and the [module docs](super).
#[derive(Clone, Debug)]
pub struct FailClosed<S>(Guarded<S>);

impl<S: Store> FailClosed<S> {
    pub(super) fn new(store: S) -> FailClosed<S> {
        FailClosed(Guarded::new(store, "requests are refused"))
    }

    /// Tells `observe` of every [`Event::Decided`] and [`Event::Failed`]. It is called within a request and must not block.
    /// Before clones are made: they tell whom their original did. Of several observers the last is told.
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> FailClosed<S> {
        FailClosed(self.0.observe(observe))
    }
}

impl<S: Store> Store for FailClosed<S> {
    type Error = Infallible;
    type Acquire = Decided<S::Acquire>;
    type Done = Done<S::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        // What costs nothing passes always: no store's answer could refuse it.
        let is_free = set.iter().all(|check| check.cost == 0);
        self.0.acquire(set, times, if is_free { times.max() } else { 0 })
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        self.0.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        self.0.reset(key, policies)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.0.supports(policy)
    }
}
