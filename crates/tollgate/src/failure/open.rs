//! Requests pass while the store fails.

use std::convert::Infallible;

use tollgate_core::{Check, Grant, Key, Policy, PolicyError, Reply, Store, Times, Verdict};

use super::event::Event;
use super::guarded::{Decided, Done, Guarded};

/// A [`Store`] that grants what the inner store fails to decide: see [`FailureExt::fail_open`](super::FailureExt::fail_open)
/// and the [module docs](super).
#[derive(Clone, Debug)]
pub struct FailOpen<S>(Guarded<S>);

impl<S: Store> FailOpen<S> {
    pub(super) fn new(store: S) -> FailOpen<S> {
        FailOpen(Guarded::new(store, "requests pass without limit"))
    }

    /// Tells `observe` of every [`Event::Decided`] and [`Event::Failed`]. It is called within a request and must not block.
    /// Before clones are made: they tell whom their original did. Of several observers the last is told.
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> FailOpen<S> {
        FailOpen(self.0.observe(observe))
    }
}

impl<S: Store> Store for FailOpen<S> {
    type Error = Infallible;
    type Acquire = Decided<S::Acquire>;
    type Done = Done<S::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        self.0.acquire(set, times, times.max())
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
