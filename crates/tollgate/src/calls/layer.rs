//! The layer of any service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Key;

use crate::limiter::Limiter;
use crate::memory::MemoryStore;

type KeyOf<R> = dyn Fn(&R) -> Option<Key> + Send + Sync;
type CostOf<R> = dyn Fn(&R) -> u64 + Send + Sync;

/// Limits the calls of any [`Service`](tower_service::Service) over `R`, whatever `R` is. For
/// servers over HTTP and gRPC, [`RateLimitLayer`](crate::RateLimitLayer) also makes the answers.
///
/// The [module](crate::calls) has an example. The service must be `Clone`: a call that waits takes
/// it along.
#[must_use]
pub struct CallLimitLayer<R, S = MemoryStore> {
    pub(super) limiter: Limiter<S>,
    pub(super) key: Arc<KeyOf<R>>,
    pub(super) cost: Option<Arc<CostOf<R>>>,
    pub(super) at_most: Option<Duration>,
}

impl<R, S> CallLimitLayer<R, S> {
    /// Charges each call to the key that `key` returns. `|_| Some(Key::global())` is one quota for
    /// all calls.
    ///
    /// A call without a key is refused with [`Reason::NoKey`](crate::Reason::NoKey). To let such
    /// calls pass, return a key and a [cost](CallLimitLayer::cost) of 0.
    pub fn new(
        limiter: Limiter<S>,
        key: impl Fn(&R) -> Option<Key> + Send + Sync + 'static,
    ) -> CallLimitLayer<R, S> {
        CallLimitLayer { limiter, key: Arc::new(key), cost: None, at_most: None }
    }

    /// Sets the cost of a call in units, instead of 1.
    pub fn cost(mut self, cost: impl Fn(&R) -> u64 + Send + Sync + 'static) -> CallLimitLayer<R, S> {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Lets calls wait for up to `time` until they may pass, instead of refusing them, in order of
    /// arrival for each key: see [`Limiter::until_ready`]. A call that would wait longer is refused
    /// at once. A call also waits for a store that is unavailable, unless
    /// [`Limiter::wait_for_store`] says otherwise.
    ///
    /// Without this, only a [`LeakyBucket`](crate::Algorithm::LeakyBucket) lets calls wait, for up
    /// to its `max_wait`.
    ///
    /// # Panics
    /// A call panics outside of a tokio runtime with a timer, if it has to wait.
    pub fn wait_at_most(mut self, time: Duration) -> CallLimitLayer<R, S> {
        self.at_most = Some(time);
        self
    }
}

impl<R, S: Clone> Clone for CallLimitLayer<R, S> {
    fn clone(&self) -> CallLimitLayer<R, S> {
        CallLimitLayer {
            limiter: self.limiter.clone(),
            key: Arc::clone(&self.key),
            cost: self.cost.clone(),
            at_most: self.at_most,
        }
    }
}

impl<R, S: fmt::Debug> fmt::Debug for CallLimitLayer<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimitLayer").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
