//! A store whose verdicts must be awaited.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tollgate::store::{Check, End, Grant, Reply, Store, Times, Verdict};
use tollgate::{Key, MemoryStore, Policy};

/// A [`MemoryStore`] at a distance: each answer is given at the second poll of its future.
#[derive(Clone, Debug)]
pub struct Later {
    store: MemoryStore,
    decides_first: bool,
}

impl Later {
    /// If the caller leaves before the answer, the request is lost and nothing is charged.
    pub fn deciding_last(store: MemoryStore) -> Later {
        Later { store, decides_first: false }
    }

    /// If the caller leaves before the answer, the answer is lost and the charge stands.
    pub fn deciding_first(store: MemoryStore) -> Later {
        Later { store, decides_first: true }
    }

    async fn at_a_distance<T>(decides_first: bool, decide: impl FnOnce() -> T) -> T {
        if decides_first {
            let decided = decide();
            tokio::task::yield_now().await;
            decided
        } else {
            tokio::task::yield_now().await;
            decide()
        }
    }
}

/// The answer of a store that answers at once.
pub fn at_hand<T, F>(reply: Reply<T, F>) -> T {
    match reply {
        Reply::Now(answer) => answer,
        Reply::Later(_) => unreachable!("a store in memory answers on the spot"),
    }
}

/// What a store in memory has done at the first poll.
pub fn at_once<F: Future>(end: F) -> F::Output {
    match pin!(end).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a store in memory answers on the spot"),
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Infallible>> + Send>>;

impl Store for Later {
    type Error = Infallible;
    type Acquire = BoxFuture<Verdict>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let store = self.store.clone();
        let set: Vec<_> =
            set.iter().map(|check| (check.policy.clone(), check.key.clone(), check.cost)).collect();
        Reply::Later(Box::pin(Later::at_a_distance(self.decides_first, move || {
            let set: Vec<_> = set.iter().map(|(policy, key, cost)| Check::new(policy, key, *cost)).collect();
            at_hand(store.acquire(&set, times))
        })))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        let store = self.store.clone();
        let grants: Vec<_> = grants
            .iter()
            .map(|grant| (grant.policy.clone(), grant.key.clone(), grant.units, grant.stamp))
            .collect();
        Later::at_a_distance(self.decides_first, move || {
            let grants: Vec<_> = grants
                .iter()
                .map(|(policy, key, units, stamp)| Grant {
                    policy,
                    key,
                    units: *units,
                    stamp: *stamp,
                    share: None,
                })
                .collect();
            at_once(store.refund(&grants))
        })
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        let (store, key) = (self.store.clone(), key.clone());
        let policies: Vec<Policy> = policies.iter().map(|policy| (*policy).clone()).collect();
        Later::at_a_distance(self.decides_first, move || {
            at_once(store.reset(&key, &policies.iter().collect::<Vec<_>>()))
        })
    }
}
