//! A store whose answers are futures.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tollgate_core::{Check, Clock, End, Grant, Key, Policy, Reply, Store, Times, Verdict};

use super::{Mistake, OneLock};

/// The same store, but it decides only when an answer is awaited, at the third poll.
#[derive(Clone, Debug)]
pub(crate) struct Asynchronous {
    store: OneLock,
    /// The latest policy of each scope, if requests that wait are merged by scope.
    merged: Option<Arc<Mutex<HashMap<String, Policy>>>>,
}

impl Asynchronous {
    pub(crate) fn new(mistake: Mistake, clock: Clock) -> Asynchronous {
        Asynchronous { store: OneLock::new(mistake, clock), merged: None }
    }

    /// Decides the requests that wait under the policy of the latest one.
    pub(crate) fn merging(clock: Clock) -> Asynchronous {
        Asynchronous { merged: Some(Arc::default()), ..Asynchronous::new(Mistake::None, clock) }
    }

    fn latest(&self, policy: &Policy) -> Policy {
        let merged = self.merged.as_ref().map(|merged| merged.lock().unwrap_or_else(PoisonError::into_inner));
        merged.and_then(|merged| merged.get(policy.scope()).cloned()).unwrap_or_else(|| policy.clone())
    }
}

type Later<T> = Pin<Box<dyn Future<Output = Result<T, Infallible>> + Send>>;

impl Store for Asynchronous {
    type Error = Infallible;
    type Acquire = Later<Verdict>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Later<Verdict>> {
        let this = self.clone();
        if let Some(merged) = &self.merged {
            let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
            merged.extend(set.iter().map(|check| (check.policy.scope().to_owned(), check.policy.clone())));
        }
        let set: Vec<(Policy, Key, u64)> =
            set.iter().map(|check| (check.policy.clone(), check.key.clone(), check.cost)).collect();
        Reply::Later(Box::pin(async move {
            pending_twice().await;
            let latest: Vec<Policy> = set.iter().map(|(policy, ..)| this.latest(policy)).collect();
            let set = set.iter().zip(&latest);
            let set: Vec<Check<'_>> =
                set.map(|((_, key, cost), policy)| Check::new(policy, key, *cost)).collect();
            this.store.acquire(&set, times).wait().await
        }))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        let refund = self.store.refund(grants);
        async move {
            pending_twice().await;
            refund.await
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        let reset = self.store.reset(key, policies);
        async move {
            pending_twice().await;
            reset.await
        }
    }
}

/// Is ready at the third poll.
async fn pending_twice() {
    let mut asked = 0;
    poll_fn(move |cx| {
        asked += 1;
        cx.waker().wake_by_ref();
        if asked == 3 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
